package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

const (
	// maxStrandedLines bounds one report; totals count all.
	maxStrandedLines = 10_000
	// strandedAtOnce is how many budgets are looked at under one hold of the lock.
	strandedAtOnce = 500
)

// StrandedReport shows what regions hold that cannot be asked. Nobody else may use it until they are back.
type StrandedReport struct {
	At               time.Time        `json:"at"`
	UnreachableAfter string           `json:"unreachable_after"`
	Revision         int64            `json:"revision"`
	EvidenceAge      int64            `json:"evidence_age_ms"`
	Lines            []StrandedLine   `json:"lines"` // by region, budget, generation
	More             int              `json:"more,omitempty"`
	Total            map[string]int64 `json:"total"` // stranded in the running periods, by unit
	Permits          int64            `json:"permits"`
}

// StrandedLine is one budget's share of one incarnation: in the running period, and ahead in the opened terms.
type StrandedLine struct {
	Region           string                `json:"region"`
	Incarnation      string                `json:"incarnation"`
	Budget           string                `json:"budget"`
	Unit             string                `json:"unit"`
	Template         bool                  `json:"template,omitempty"` // granted and returned are per instance
	Period           allocation.Period     `json:"period"`             // the running one
	Generation       allocation.Generation `json:"generation"`         // of the ledger
	StatedGeneration allocation.Generation `json:"stated_generation"`  // that the owner last stated
	allocation.Remainder
	StatedAt    *time.Time     `json:"stated_at,omitempty"` // when the last statement of this shard arrived; absent: never
	LastContact *time.Time     `json:"last_contact,omitempty"`
	Ahead       *StrandedAhead `json:"ahead,omitempty"`
	Resolves    string         `json:"resolves"`
}

// StrandedAhead is what is held of the periods after the running one.
type StrandedAhead struct {
	Periods  int                `json:"periods"`
	Until    allocation.Instant `json:"until"`
	Stranded int64              `json:"stranded"` // sum over the periods
	Exposed  int64              `json:"exposed"`
	Unseen   int64              `json:"unseen,omitempty"`
}

// strandedHolders are the incarnations in a ledger that cannot be asked.
func (s *Service) strandedHolders(l allocation.Ledger, now time.Time) []allocation.Holder {
	var out []allocation.Holder
	for _, e := range l.Entries {
		for _, a := range e.Allocations {
			if a.Held() == 0 || slices.Contains(out, a.Holder) || s.canBeAsked(a.Holder, now) {
				continue
			}
			out = append(out, a.Holder)
		}
	}
	return out
}

// canBeAsked says whether this very incarnation called lately.
func (s *Service) canBeAsked(h allocation.Holder, now time.Time) bool {
	r := s.state.regions[h.Region]
	if r == nil {
		return false
	}
	current, ok := r.holder()
	return ok && current == h && r.inContact(now, s.config.ReportUnreachableAfter)
}

// add takes one line into the report.
func (r *StrandedReport) add(line StrandedLine) {
	if line.Stranded != 0 { // "0 tokens" is nothing to tell
		r.Total[line.Unit] += line.Stranded
	}
	r.Permits += line.Stranded
	if len(r.Lines) < maxStrandedLines {
		r.Lines = append(r.Lines, line)
	} else {
		r.More++
	}
}

// stranded makes the report. It looks at ledgers only while some region cannot be asked.
func (s *Service) stranded() StrandedReport {
	at := s.now()
	report := StrandedReport{
		At: at.UTC(), UnreachableAfter: s.config.ReportUnreachableAfter.String(), EvidenceAge: s.evidenceAge().Milliseconds(),
		Lines: []StrandedLine{}, Total: map[string]int64{},
	}
	s.state.mu.Lock()
	report.Revision = s.state.revision
	var names []string
	if !s.allInContact(at) {
		names = slices.Sorted(maps.Keys(s.state.terms))
	}
	s.state.mu.Unlock()
	// Some at a time, so that a large report holds up no sync call.
	for part := range slices.Chunk(names, strandedAtOnce) {
		s.state.mu.Lock()
		for _, name := range part {
			for _, line := range s.strandedOf(name, at) {
				report.add(line)
			}
		}
		s.state.mu.Unlock()
	}
	slices.SortStableFunc(report.Lines, func(a, b StrandedLine) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return report
}

func (s *Service) allInContact(at time.Time) bool {
	for _, r := range s.state.regions {
		if r.doc != nil && r.doc.value.Incarnation != "" && !r.inContact(at, s.config.ReportUnreachableAfter) {
			return false
		}
	}
	return true
}

// strandedOf is the lines of one budget: one per incarnation, from the term that holds the running period on.
func (s *Service) strandedOf(budget string, at time.Time) []StrandedLine {
	now := allocation.At(at)
	var most int64
	if b := s.state.budgets[budget]; b != nil {
		most = b.value.Budget.WithDefaults().MaxInstances
	}
	lines := map[allocation.Holder]*StrandedLine{}
	var order []allocation.Holder
	for _, l := range s.state.opened(budget, now) {
		for _, h := range s.strandedHolders(l.value, at) {
			ref := refOf(l.value)
			st, statedAt := s.lastStatement(h, ref)
			line := lines[h]
			ahead := 0
			if line == nil {
				line = s.newLine(l.value, h, st, statedAt)
				lines[h], order = line, append(order, h)
				if i, running := l.value.Periods.Find(now); running {
					line.Period, line.Remainder = l.value.Periods.At(i), l.value.RemainderAt(h, i, st, most)
					ahead = i + 1
				}
			}
			if sum, periods := l.value.RemainderAhead(h, ahead, st, most); periods > 0 {
				line.ahead(sum, periods, l.value.Periods.End())
			}
		}
	}
	out := make([]StrandedLine, 0, len(order))
	for _, h := range order {
		out = append(out, *lines[h])
	}
	return out
}

func (l *StrandedLine) ahead(sum allocation.Remainder, periods int, until allocation.Instant) {
	if l.Ahead == nil {
		l.Ahead = &StrandedAhead{}
	}
	l.Ahead.Periods += periods
	l.Ahead.Until = until
	total := allocation.Remainder{Stranded: l.Ahead.Stranded, Exposed: l.Ahead.Exposed, Unseen: l.Ahead.Unseen}.Add(sum)
	l.Ahead.Stranded, l.Ahead.Exposed, l.Ahead.Unseen = total.Stranded, total.Exposed, total.Unseen
}

// lastStatement is what an incarnation last stated of a share. Another incarnation does not speak for it.
func (s *Service) lastStatement(h allocation.Holder, ref allocation.ShareRef) (allocation.ShareStatement, *time.Time) {
	r := s.state.regions[h.Region]
	if r == nil {
		return allocation.ShareStatement{}, nil
	}
	sh := r.shards[allocation.ShardOf(ref.Budget)]
	if sh == nil || sh.incarnation != h.Incarnation {
		return allocation.ShareStatement{}, nil
	}
	at := sh.at
	return sh.shares[ref], &at
}

func (s *Service) newLine(l allocation.Ledger, h allocation.Holder, st allocation.ShareStatement, statedAt *time.Time) *StrandedLine {
	line := &StrandedLine{
		Region: h.Region, Incarnation: h.Incarnation, Budget: l.Budget, Unit: l.Unit, Template: l.Template,
		Generation: l.Generation, StatedGeneration: st.Generation, StatedAt: statedAt,
		Resolves: fmt.Sprintf("region %s calls again: its statement says what it spent, and the line goes", h.Region),
	}
	if r := s.state.regions[h.Region]; r != nil {
		if !r.contact.At.IsZero() {
			at := r.contact.At
			line.LastContact = &at
		}
		if current, _ := r.holder(); current != h {
			line.Resolves = "it lost its history: these permits stay out until their periods are over"
		}
	}
	return line
}

// elsewhere tells a region what is left outside it of the budgets that it names as low, in their running periods.
func (s *Service) elsewhere(call allocation.SyncCall) []allocation.Elsewhere {
	at := s.now()
	now := allocation.At(at)
	var out []allocation.Elsewhere
	for _, budget := range call.Low {
		for _, l := range s.state.opened(budget, now) {
			i, running := l.value.Periods.Find(now)
			if !running {
				break
			}
			e := allocation.Elsewhere{Budget: budget, Period: l.value.Periods.At(i).Start, Unallocated: l.value.Unallocated(i)}
			seen := map[allocation.Holder]bool{}
			for _, a := range l.value.EntryAt(i).Allocations {
				if seen[a.Holder] || a.Region == call.Region && a.Incarnation == call.Incarnation {
					continue
				}
				seen[a.Holder] = true
				st, _ := s.lastStatement(a.Holder, refOf(l.value))
				left := l.value.RemainderAt(a.Holder, i, st, 0)
				if s.canBeAsked(a.Holder, at) {
					e.Spendable += left.Stranded
					e.Reserved += left.Reserved
				} else {
					e.Stranded += left.Stranded
				}
			}
			out = append(out, e)
			break
		}
	}
	return out
}
