package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// A refusal costs an owner no write, so nobody but the node that made it knows of it. Nodes count refusals by budget and
// reason since they started, and tell the coordinator the sums: POST /v1/refusals. A message may be lost, repeated or late:
// of each node's run the highest count wins. A node that ends takes with it what it had not told, so all sums are "at least".
const (
	maxRefusalRows  = 500 // of one region
	maxRefusalsTold = 300 // of one message
)

// RefusalReport is what one node refused since it started.
type RefusalReport = allocation.RefusalReport

// RefusalDocument is what the nodes of a region refused, by node, run, budget and reason.
type RefusalDocument struct {
	Format int          `json:"format"`
	Region string       `json:"region"`
	Rows   []RefusalRow `json:"rows"`
	// Used is when keys were last used in the region, by fingerprint, Unix seconds, to about a minute.
	Used map[string]int64 `json:"used,omitempty"`
	// Estimates is how far true costs were from estimates, by node, run, capability and unit.
	Estimates []EstimateRow `json:"estimates,omitempty"`
}

// RefusalRow is one node's count for one budget and reason, in one of its runs.
type RefusalRow struct {
	Node   string            `json:"node"`
	Run    string            `json:"run"`
	Budget string            `json:"budget"`
	Reason allocation.Reason `json:"reason"`
	Refused
	At time.Time `json:"at"` // when it last rose
}

type refusalKey struct {
	node, run, budget string
	reason            allocation.Reason
}

func (r RefusalRow) key() refusalKey { return refusalKey{r.Node, r.Run, r.Budget, r.Reason} }

// heardRefusals is what this replica knows of one region's refusals.
type heardRefusals struct {
	rows      map[refusalKey]RefusalRow
	unwritten bool
	writtenAt time.Time
	used      map[string]int64 // keys, by fingerprint: Unix seconds
	estimates map[estimateKey]EstimateRow
}

func checkRefusals(q RefusalReport) error {
	switch {
	case q.Format != allocation.SyncFormat:
		return invalid("format", fmt.Sprintf("is %d", q.Format), fmt.Sprintf("this coordinator speaks %d; upgrade the older side", allocation.SyncFormat))
	case q.Node == "" || len(q.Node) > 255 || q.Run == "" || len(q.Run) > 64:
		return invalid("node", "or run is missing or too long", "name the node, at most 255 bytes, and its run, at most 64")
	case len(q.Used) > allocation.MaxUsedKeys:
		return invalid("used", fmt.Sprintf("names %d keys", len(q.Used)), fmt.Sprintf("name at most %d", allocation.MaxUsedKeys))
	case len(q.Counts) > maxRefusalsTold:
		return invalid("counts", fmt.Sprintf("are %d", len(q.Counts)), fmt.Sprintf("send at most %d", maxRefusalsTold))
	}
	if err := checkEstimates(q.Estimates); err != nil {
		return err
	}
	for _, c := range q.Counts {
		if c.Requests < 0 || c.Units < 0 || len(c.Budget) > maxBudgetName || !knownReason(c.Reason) {
			return invalid("counts", fmt.Sprintf("of %.70q cannot be", c.Budget), "name a budget and a reason, and count from 0")
		}
	}
	return nil
}

const maxBudgetName = 1024

func knownReason(r allocation.Reason) bool {
	return slices.ContainsFunc(allocation.Answers(), func(a allocation.Answer) bool { return a.Reason == r })
}

// hearRefusals takes a node's counts.
func (s *Service) hearRefusals(region string, q RefusalReport) error {
	if err := checkRefusals(q); err != nil {
		return err
	}
	now := s.now().UTC()
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	r := s.state.regions[region]
	if r == nil || r.doc == nil {
		return notFound("region", region)
	}
	for _, c := range q.Counts {
		if s.state.budgets[c.Budget] == nil {
			continue // names are bounded by what was declared
		}
		row := RefusalRow{Node: q.Node, Run: q.Run, Budget: c.Budget, Reason: c.Reason, Refused: Refused{c.Requests, c.Units}, At: now}
		if r.refusals.take(row) {
			r.refusals.unwritten = true
		}
	}
	r.refusals.bound()
	r.refusals.hearEstimates(q, now)
	for fingerprint, at := range q.Used {
		if s.state.documents[keyRef(fingerprint)] != nil && at <= now.Unix()+usedSkew {
			r.refusals.unwritten = r.refusals.use(fingerprint, at) || r.refusals.unwritten
		}
	}
	return nil
}

// take enters a row if it is newer than what is known.
func (h *heardRefusals) take(row RefusalRow) bool {
	if have, ok := h.rows[row.key()]; ok && have.Requests >= row.Requests {
		return false
	}
	if h.rows == nil {
		h.rows = map[refusalKey]RefusalRow{}
	}
	h.rows[row.key()] = row
	return true
}

// bound forgets what rose longest ago.
func (h *heardRefusals) bound() {
	if len(h.rows) <= maxRefusalRows {
		return
	}
	for _, row := range sortedRefusals(h.rows)[maxRefusalRows*9/10:] {
		delete(h.rows, row.key())
	}
}

// sortedRefusals is the latest first.
func sortedRefusals(rows map[refusalKey]RefusalRow) []RefusalRow {
	return slices.SortedFunc(maps.Values(rows), func(a, b RefusalRow) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Reason, b.Reason))
	})
}

// enterRefusals takes what another replica heard.
func (s *state) enterRefusals(d *doc[RefusalDocument]) {
	s.refusals[d.value.Region] = d
	r := s.region(d.value.Region)
	for _, row := range d.value.Rows {
		r.refusals.take(row)
	}
	for fingerprint, at := range d.value.Used {
		r.refusals.use(fingerprint, at)
	}
	for _, row := range d.value.Estimates {
		r.refusals.takeEstimate(row)
	}
	r.refusals.boundEstimates()
	r.refusals.bound()
}

// dueRefusals is the document to write of one region's refusals, if there is one.
func (s *Service) dueRefusals(r *region, now time.Time) []Change {
	if !r.refusals.unwritten || r.refusals.writtenAt.Add(persistEvery).After(now) {
		return nil
	}
	r.refusals.unwritten, r.refusals.writtenAt = false, now
	d := RefusalDocument{Format: documentFormat, Region: r.name, Rows: sortedRefusals(r.refusals.rows), Used: maps.Clone(r.refusals.used), Estimates: sortedEstimates(r.refusals.estimates)}
	key := refusalPrefix + r.name
	known := s.state.refusals[r.name].known(key)
	value := put(key, d)
	for len(value.Value) > maxStatementBytes {
		d.Rows, d.Estimates = d.Rows[:len(d.Rows)*3/4], d.Estimates[:len(d.Estimates)*9/10]
		forgetOldest(d.Used)
		value = put(key, d)
	}
	return []Change{{Reads: []Item{known}, Puts: []Item{value}}}
}

// refusedElsewhere is what each other region refused of a budget for one reason; those that refused nothing are left out.
func (s *state) refusedElsewhere(budget, region string, reason allocation.Reason) map[string]Refused {
	var by map[string]Refused
	for _, r := range s.ordered {
		sum := Refused{}
		for _, row := range r.refusals.rows {
			if row.Budget == budget && row.Reason == reason {
				sum = sum.add(row.Refused)
			}
		}
		if r.name != region && sum != (Refused{}) {
			if by == nil {
				by = map[string]Refused{}
			}
			by[r.name] = sum
		}
	}
	return by
}
