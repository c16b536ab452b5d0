package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"tranche/allocation"
)

// Nodes tell with their refusals how far true costs were from estimates. As with those, of each node's run the highest
// count wins, and a node that ends takes with it what it had not told.
const (
	maxEstimateRows = 100 // of one region
	estimatesOf     = 30 * 24 * time.Hour
	maxInFlight     = 200 // budgets of one answer
)

// EstimateRow is one node's count for one capability and unit, in one of its runs.
type EstimateRow struct {
	Node string `json:"node"`
	Run  string `json:"run"`
	allocation.EstimateCount
	At time.Time `json:"at"` // when it last rose
}

type estimateKey struct{ node, run, capability, unit string }

func (r EstimateRow) key() estimateKey { return estimateKey{r.Node, r.Run, r.Capability, r.Unit} }

func checkEstimates(list []allocation.EstimateCount) error {
	if len(list) > allocation.MaxEstimates {
		return invalid("estimates", fmt.Sprintf("are %d", len(list)), fmt.Sprintf("send at most %d", allocation.MaxEstimates))
	}
	for _, c := range list {
		if !c.Valid() || c.Capability == "" || len(c.Capability) > allocation.MaxLabelValue || c.Unit == "" || len(c.Unit) > allocation.MaxLabelName {
			return invalid("estimates", fmt.Sprintf("of %.70q cannot be", c.Capability), "name a capability and a unit, count from 0, and count each settlement in one bucket")
		}
	}
	return nil
}

// hearEstimates takes a node's counts. The caller holds the lock.
func (h *heardRefusals) hearEstimates(q RefusalReport, now time.Time) {
	for _, c := range q.Estimates {
		if h.takeEstimate(EstimateRow{Node: q.Node, Run: q.Run, EstimateCount: c, At: now}) {
			h.unwritten = true
		}
	}
	h.boundEstimates()
}

// takeEstimate enters a row if it is newer than what is known.
func (h *heardRefusals) takeEstimate(row EstimateRow) bool {
	if have, ok := h.estimates[row.key()]; ok && have.Settled >= row.Settled {
		return false
	}
	if h.estimates == nil {
		h.estimates = map[estimateKey]EstimateRow{}
	}
	h.estimates[row.key()] = row
	return true
}

// boundEstimates forgets what rose longest ago.
func (h *heardRefusals) boundEstimates() {
	if len(h.estimates) > maxEstimateRows {
		for _, row := range sortedEstimates(h.estimates)[maxEstimateRows*9/10:] {
			delete(h.estimates, row.key())
		}
	}
}

// sortedEstimates is the latest first.
func sortedEstimates(rows map[estimateKey]EstimateRow) []EstimateRow {
	return slices.SortedFunc(maps.Values(rows), func(a, b EstimateRow) int {
		return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Run, b.Run), a.EstimateCount.Compare(b.EstimateCount))
	})
}

// EstimatesAnswer is how good estimates were, and what reservations that are open now may still come to.
type EstimatesAnswer struct {
	*Evidence
	Since     time.Time        `json:"since"` // runs of nodes that settled nothing since then are left out
	Estimates []EstimateAnswer `json:"estimates"`
	InFlight  []InFlight       `json:"in_flight"` // budgets with something reserved or overdrawn, the most reserved first
	More      int              `json:"more,omitempty"`
	Rule      string           `json:"rule"` // by which a true cost may exceed what is reserved
}

// EstimateAnswer is one capability in one unit, over all regions.
type EstimateAnswer struct {
	Capability  string                 `json:"capability"`
	Unit        string                 `json:"unit"`
	Regions     []string               `json:"regions"`
	Settled     int64                  `json:"settled"`
	Estimated   int64                  `json:"estimated"`
	True        int64                  `json:"true"`
	Overdraft   int64                  `json:"overdraft"`
	BiasPercent float64                `json:"bias_percent"` // true costs above estimates; below 0: lower
	Median      *float64               `json:"median_ratio"` // half of the settlements lie within it; null: above 16
	Most        *float64               `json:"p90_ratio"`
	Worst       int64                  `json:"worst_percent"`
	Ratios      []RatioCount           `json:"ratios"` // buckets that hold something
	Suggestion  *allocation.Suggestion `json:"suggestion,omitempty"`
	Change      string                 `json:"change"` // for a person: what to change, or why nothing is suggested
}

// RatioCount is one bucket of true cost over estimate.
type RatioCount struct {
	AtMost *float64 `json:"at_most"` // null: no end
	Count  int64    `json:"count"`
}

// InFlight is what open reservations of one budget hold in periods that are not closed, and what they may come to.
type InFlight struct {
	Budget    string `json:"budget"`
	Unit      string `json:"unit"`
	Reserved  int64  `json:"reserved"`  // by all regions, as last stated
	Overdraft int64  `json:"overdraft"` // recorded in those periods so far
	// AtWorst is the largest overdraft that the open reservations come to if each costs the highest ratio that was ever seen
	// in this unit, and nothing of it fits. Absent: nothing was settled in this unit yet, so nothing is known.
	AtWorst      *int64 `json:"largest_overdraft_seen_ratio,omitempty"`
	WorstPercent int64  `json:"worst_percent,omitempty"`
}

const overdraftRule = "A settlement is always taken. What a true cost is above what its reservation holds is charged as far as it fits into " +
	"the region's share, and the rest is recorded as overdraft, outside the limit. No rule bounds one true cost but the largest number of units " +
	"of a request; what is not reserved cannot be overdrawn. So the largest possible overdraft is that of the open reservations alone."

func finite(x float64) *float64 {
	if math.IsInf(x, 1) {
		return nil
	}
	x = math.Round(1000*x) / 1000
	return &x
}

// estimates reports on all regions.
func (s *Service) estimates() EstimatesAnswer {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a := EstimatesAnswer{Evidence: s.evidence(), Since: s.now().UTC().Add(-estimatesOf), Estimates: []EstimateAnswer{}, InFlight: []InFlight{}, Rule: overdraftRule}
	sums, where := map[estimateKey]allocation.EstimateCount{}, map[estimateKey][]string{}
	for _, r := range s.state.ordered {
		for _, row := range sortedEstimates(r.refusals.estimates) {
			if row.At.Before(a.Since) {
				continue
			}
			k := estimateKey{capability: row.Capability, unit: row.Unit}
			if sum, ok := sums[k]; ok {
				sums[k] = sum.Merge(row.EstimateCount)
			} else {
				sums[k] = row.EstimateCount
			}
			if !slices.Contains(where[k], r.name) {
				where[k] = append(where[k], r.name)
			}
		}
	}
	worst := map[string]int64{}
	for _, c := range slices.SortedFunc(maps.Values(sums), allocation.EstimateCount.Compare) {
		a.Estimates = append(a.Estimates, estimateAnswer(c, where[estimateKey{capability: c.Capability, unit: c.Unit}]))
		worst[c.Unit] = max(worst[c.Unit], c.Worst)
	}
	a.InFlight, a.More = s.inFlight(worst)
	return a
}

func estimateAnswer(c allocation.EstimateCount, regions []string) EstimateAnswer {
	e := EstimateAnswer{
		Capability: c.Capability, Unit: c.Unit, Regions: regions, Settled: c.Settled, Estimated: c.Estimated, True: c.True, Overdraft: c.Overdraft,
		BiasPercent: math.Round(10*c.Bias()) / 10, Median: finite(c.Within(50)), Most: finite(c.Within(90)), Worst: c.Worst, Ratios: []RatioCount{},
	}
	for i, n := range c.Ratios {
		if n > 0 {
			e.Ratios = append(e.Ratios, RatioCount{finite(allocation.RatioBound(i)), n})
		}
	}
	s, enough := c.Suggest()
	switch {
	case !enough:
		e.Change = fmt.Sprintf("none: %d settlements are too few to say; %d are needed", c.Settled, allocation.MinSettled)
		return e
	case s.Factor == 1:
		e.Change = fmt.Sprintf("none: %d %% of the settlements lie within their estimates, and not much below", allocation.SuggestedPercent)
	default:
		e.Change = fmt.Sprintf("where requests of capability %s are admitted, multiply costs.%s (header Tranche-Cost-%s) by %.2f: from %d on average to %d",
			c.Capability, c.Unit, c.Unit, s.Factor, s.From, s.To)
		if s.Capped {
			e.Change += fmt.Sprintf("; it is capped at a factor of %d, look again when that is in force", allocation.LargestChange)
		}
	}
	e.Suggestion = &s
	return e
}

// add adds what the owners last stated of a term, in all of its periods: a reservation may outlive its period.
func (f *InFlight) add(s *Service, l allocation.Ledger) {
	seen := map[allocation.Holder]bool{}
	for _, e := range l.Entries {
		for _, al := range e.Allocations {
			if seen[al.Holder] {
				continue
			}
			seen[al.Holder] = true
			st, _ := s.lastStatement(al.Holder, refOf(l))
			for _, u := range st.Usage {
				f.Reserved, f.Overdraft = allocation.SumUp(f.Reserved, u.Reserved), allocation.SumUp(f.Overdraft, u.Overdraft)
			}
		}
	}
}

// inFlight are the budgets with something reserved or overdrawn in periods that are not closed. The caller holds the lock.
func (s *Service) inFlight(worst map[string]int64) (list []InFlight, more int) {
	list = []InFlight{}
	for _, name := range slices.Sorted(maps.Keys(s.state.budgets)) {
		d := s.state.budgets[name].value
		f := InFlight{Budget: name, Unit: d.Budget.Unit, WorstPercent: worst[d.Budget.Unit]}
		for _, l := range s.state.terms[name] {
			f.add(s, l.value)
		}
		if f.Reserved == 0 && f.Overdraft == 0 {
			continue
		}
		if p := f.WorstPercent; p > 0 {
			above := int64(math.MaxInt64)
			if x := float64(f.Reserved) * float64(max(0, p-100)) / 100; x < math.MaxInt64 {
				above = int64(math.Ceil(x))
			}
			f.AtWorst = &above
		}
		list = append(list, f)
	}
	slices.SortStableFunc(list, func(a, b InFlight) int { return cmp.Compare(b.Reserved, a.Reserved) })
	most := min(len(list), maxInFlight)
	return list[:most], len(list) - most
}
