package coordinator

import (
	"cmp"
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

// StrandedReport shows what regions hold that cannot be asked, lost their history, or are frozen. Nobody else may use it
// until there is proof that it can no longer be spent.
type StrandedReport struct {
	At               time.Time                `json:"at"`
	UnreachableAfter string                   `json:"unreachable_after"`
	Revision         int64                    `json:"revision"`
	EvidenceAge      int64                    `json:"evidence_age_ms"`
	Filter           *StrandedFilter          `json:"filter,omitempty"`
	Lines            []StrandedLine           `json:"lines"` // by region, budget, incarnation
	More             int                      `json:"more,omitempty"`
	Total            map[string]StrandedTotal `json:"total"`             // by unit: different units are never added up
	History          []Stranding              `json:"history,omitempty"` // what was stranded and is not any more, the latest first

	most int // lines, if more than maxStrandedLines
}

// StrandedTotal is the sum over the lines of one unit. What is written off stands apart: it counts as spent.
type StrandedTotal struct {
	Stranded      int64 `json:"stranded"` // in the running periods
	Exposed       int64 `json:"exposed"`
	Unseen        int64 `json:"unseen,omitempty"`
	WrittenOff    int64 `json:"written_off,omitempty"`
	AheadStranded int64 `json:"ahead_stranded"` // in the periods after them, of the opened terms
	AheadExposed  int64 `json:"ahead_exposed"`
}

// StrandedLine is one budget's part of one incarnation: in the running period, and ahead in the opened terms.
type StrandedLine struct {
	Region           string                `json:"region"`
	Incarnation      string                `json:"incarnation"`
	Budget           string                `json:"budget"`
	Unit             string                `json:"unit"`
	Template         bool                  `json:"template,omitempty"` // granted and returned are per instance
	Cause            string                `json:"cause"`
	Since            *time.Time            `json:"since,omitempty"`   // the last contact, or when the loss was noticed
	Period           allocation.Period     `json:"period"`            // the running one
	Generation       allocation.Generation `json:"generation"`        // of the ledger
	StatedGeneration allocation.Generation `json:"stated_generation"` // that the owner last stated
	allocation.Remainder
	StatedAt    *time.Time       `json:"stated_at,omitempty"` // when the last statement of this shard arrived; absent: never, or by a former incarnation
	LastContact *time.Time       `json:"last_contact,omitempty"`
	Ahead       *StrandedAhead   `json:"ahead,omitempty"`
	Resolve     []StrandedRemedy `json:"resolve"` // any of these resolves it
	Note        string           `json:"note,omitempty"`

	Record      *StrandedRecord `json:"record,omitempty"` // what became of it so far; absent while nothing was recorded yet
	WrittenOff  *WriteOff       `json:"written_off,omitempty"`
	Compensated *Compensation   `json:"compensated,omitempty"`
	Trade       *StrandedTrade  `json:"trade,omitempty"`
}

// StrandedAhead is what is held of the periods after the running one.
type StrandedAhead struct {
	Periods  int                `json:"periods"`
	Until    allocation.Instant `json:"until"`
	Stranded int64              `json:"stranded"` // sum over the periods
	Exposed  int64              `json:"exposed"`
	Unseen   int64              `json:"unseen,omitempty"`
	// WrittenOff is how much of Stranded lies in terms that a write-off covers.
	WrittenOff int64 `json:"written_off,omitempty"`
}

// StrandedRemedy is one thing that would resolve a line.
type StrandedRemedy struct {
	How  string              `json:"how"`
	At   *allocation.Instant `json:"at,omitempty"` // when, if that is known
	Text string              `json:"text"`
}

// StrandedRecord is the recorded history of a line, up to the report.
type StrandedRecord struct {
	Opened  time.Time  `json:"opened"`
	Grew    *time.Time `json:"grew,omitempty"`
	AtFirst int64      `json:"at_first"` // stranded when it was opened
	Most    int64      `json:"most"`
	allocation.Elapsed
	Refused Refused `json:"refused"` // elsewhere, with capacity_stranded: at least
}

// strandedHolders are the incarnations in a ledger that cannot be asked.
func (s *Service) strandedHolders(l allocation.Ledger, now time.Time) []allocation.Holder {
	var out []allocation.Holder
	for _, e := range l.Entries {
		for _, a := range e.Allocations {
			if a.Held() == 0 || slices.Contains(out, a.Holder) || s.causeOf(a.Holder, l, now) == "" {
				continue
			}
			out = append(out, a.Holder)
		}
	}
	return out
}

// causeOf says why what an incarnation holds of a term is stranded; empty: it is not.
func (s *Service) causeOf(h allocation.Holder, l allocation.Ledger, now time.Time) string {
	current, ok := s.state.currentOf(h.Region)
	switch {
	case !ok || current != h:
		return CauseLostHistory
	case s.state.frozenFor(h, l.Periods.Start()):
		return CauseFrozen
	case !s.canBeAsked(h, now):
		return CauseUnreachable
	}
	return ""
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
	t := r.Total[line.Unit]
	if line.WrittenOff != nil {
		// What is reserved stays exposed: its requests are under way.
		t.WrittenOff = allocation.SumUp(t.WrittenOff, line.Stranded)
		t.Exposed = allocation.SumUp(t.Exposed, line.Reserved)
	} else {
		t.Stranded, t.Exposed = allocation.SumUp(t.Stranded, line.Stranded), allocation.SumUp(t.Exposed, line.Exposed)
		t.Unseen = allocation.SumUp(t.Unseen, line.Unseen)
	}
	if a := line.Ahead; a != nil {
		t.AheadStranded = allocation.SumUp(t.AheadStranded, a.Stranded-a.WrittenOff)
		t.AheadExposed = allocation.SumUp(t.AheadExposed, a.Exposed-a.WrittenOff)
	}
	if t != (StrandedTotal{}) { // "0 tokens" is nothing to tell
		r.Total[line.Unit] = t
	}
	if len(r.Lines) < max(r.most, maxStrandedLines) {
		r.Lines = append(r.Lines, line)
	} else {
		r.More++
	}
}

// stranded makes the report of what a filter selects. It looks at ledgers only while some region cannot be asked, lost its
// history or is frozen.
func (s *Service) stranded(f StrandedFilter) StrandedReport {
	return s.strandedLines(f, maxStrandedLines)
}

// strandedLines is the report with so many lines at most.
func (s *Service) strandedLines(f StrandedFilter, most int) StrandedReport {
	at := s.now()
	report := StrandedReport{
		At: at.UTC(), UnreachableAfter: s.config.ReportUnreachableAfter.String(), EvidenceAge: s.evidenceAge().Milliseconds(),
		Filter: f.orNil(), Lines: []StrandedLine{}, Total: map[string]StrandedTotal{}, most: most,
	}
	s.state.mu.Lock()
	report.Revision = s.state.revision
	names := s.strandedNames(at)
	s.state.mu.Unlock()
	// Some at a time, so that a large report holds up no sync call.
	for part := range slices.Chunk(names, strandedAtOnce) {
		s.state.mu.Lock()
		for _, name := range part {
			if !f.selects(s.state.budgets[name]) {
				continue
			}
			for _, line := range s.strandedOf(name, at) {
				if f.Region == "" || f.Region == line.Region {
					report.add(s.withRecord(line, at))
				}
			}
		}
		s.state.mu.Unlock()
	}
	slices.SortStableFunc(report.Lines, func(a, b StrandedLine) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	if f.History {
		s.state.mu.Lock()
		report.History = s.pastStrandings(f)
		s.state.mu.Unlock()
	}
	return report
}

// strandedNames are the budgets that may have something stranded.
func (s *Service) strandedNames(at time.Time) []string {
	if !s.allInContact(at) || s.state.frozen() {
		return slices.Sorted(maps.Keys(s.state.terms))
	}
	names := map[string]bool{}
	for ref := range s.state.left {
		names[ref.Budget] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func (s *Service) allInContact(at time.Time) bool {
	for _, r := range s.state.regions {
		if r.doc != nil && r.doc.value.Incarnation != "" && !r.inContact(at, s.config.ReportUnreachableAfter) {
			return false
		}
	}
	return true
}

// strandedOf is the lines of one budget: one per incarnation that cannot be asked.
func (s *Service) strandedOf(budget string, at time.Time) []StrandedLine {
	return s.linesOf(budget, at, func(l allocation.Ledger) []allocation.Holder { return s.strandedHolders(l, at) })
}

// linesOf is a line for each incarnation that is chosen, from the term that holds the running period on.
func (s *Service) linesOf(budget string, at time.Time, choose func(allocation.Ledger) []allocation.Holder) []StrandedLine {
	now := allocation.At(at)
	var most int64
	if b := s.state.budgets[budget]; b != nil {
		most = b.value.Budget.WithDefaults().MaxInstances
	}
	lines := map[allocation.Holder]*StrandedLine{}
	var order []allocation.Holder
	for _, l := range s.state.opened(budget, now) {
		for _, h := range choose(l.value) {
			ref := refOf(l.value)
			st, statedAt := s.lastStatement(h, ref)
			line := lines[h]
			ahead := 0
			if line == nil {
				line = s.newLine(l.value, h, st, statedAt)
				line.Cause, line.Note = s.causeOf(h, l.value, at), s.lostLimitNote(h, l.value)
				lines[h], order = line, append(order, h)
				if i, running := l.value.Periods.Find(now); running {
					line.Period, line.Remainder = l.value.Periods.At(i), l.value.RemainderAt(h, i, st, most)
					ahead = i + 1
				}
			}
			if sum, periods := l.value.RemainderAhead(h, ahead, st, most); periods > 0 {
				line.ahead(sum, periods, l.value.Periods.End())
				if s.state.writtenOff(h, budget, l.value.Periods.At(l.value.Periods.Len()-1).Start) != nil {
					line.Ahead.WrittenOff = allocation.SumUp(line.Ahead.WrittenOff, sum.Stranded)
				}
			}
		}
	}
	out := make([]StrandedLine, 0, len(order))
	for _, h := range order {
		line := *lines[h]
		if line.Granted == line.Returned && line.Ahead == nil {
			continue // it held something of periods that are over
		}
		line.Resolve = line.remedies(s.sealing(line.Region))
		out = append(out, line)
	}
	return out
}

// sealing is the incarnation of a region that was ended to be sealed.
func (s *Service) sealing(region string) string {
	if r := s.state.regions[region]; r != nil && r.doc != nil {
		return r.doc.value.Sealing
	}
	return ""
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
		return s.state.formerStatement(h, ref), nil
	}
	at, st := sh.at, sh.of(ref)
	if s.state.isFormer(h) { // its successor has not stated this shard yet
		st, _ = raisedBy(st, s.state.formerStatement(h, ref))
	}
	return st, &at
}

func (s *Service) newLine(l allocation.Ledger, h allocation.Holder, st allocation.ShareStatement, statedAt *time.Time) *StrandedLine {
	line := &StrandedLine{
		Region: h.Region, Incarnation: h.Incarnation, Budget: l.Budget, Unit: l.Unit, Template: l.Template,
		Generation: l.Generation, StatedGeneration: st.Generation, StatedAt: statedAt,
	}
	if r := s.state.regions[h.Region]; r != nil && !r.contact.At.IsZero() && r.contact.Incarnation == h.Incarnation {
		at := r.contact.At
		line.LastContact, line.Since = &at, &at
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
			entry := l.value.EntryAt(i)
			e := allocation.Elsewhere{
				Budget: budget, Period: l.value.Periods.At(i).Start, Limit: entry.Limit, Generation: l.value.Generation.Number,
				Unallocated: l.value.Unallocated(i), Kept: l.value.KeptAt(i),
			}
			seen := map[allocation.Holder]bool{}
			for _, a := range entry.Allocations {
				if a.Region == call.Region && a.Incarnation == call.Incarnation {
					e.Returned += a.Returned
					continue
				}
				if seen[a.Holder] {
					continue
				}
				seen[a.Holder] = true
				st, _ := s.lastStatement(a.Holder, refOf(l.value))
				left := l.value.RemainderAt(a.Holder, i, st, 0)
				switch {
				case s.causeOf(a.Holder, l.value, at) == "":
					e.Spendable += left.Stranded
					e.Reserved += left.Reserved
				case s.state.writtenOff(a.Holder, budget, e.Period) == nil: // else it counts as spent
					e.Stranded += left.Stranded
					e.Reserved += left.Reserved // may come back, too
				}
			}
			out = append(out, e)
			break
		}
	}
	return out
}
