package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// The history of what was stranded. The leader looks every two seconds, and writes what changed:
//
//	a line of the report without a record
//	     │
//	     ▼   the running period's figures changed           the line is gone
//	  opened ──────────────────────────────────▶ grew ──────────────────────▶ back ──next look──▶ ended
//	     ▲                                                                      │ it is there again
//	     └──────────────────────────────────────────────────────────────────────┘
//
// Between two writes nothing is kept but in the leader's memory: permit-seconds follow from the ledgers, the statements and
// the time until which they were counted, so another leader goes on where the document stands.
const (
	strandedEvery = 2 * time.Second
	refusedEvery  = 30 * time.Second // how often a record is written only because more was refused elsewhere
	periodEvery   = time.Minute      // and only because a period alike began
	maxTracked    = 2 * maxBudgets   // lines: more than there can be but with very many former incarnations
)

// tracker is what the leader remembers between two looks.
type tracker struct {
	looked time.Time
	fresh  time.Time // since when it could have heard calls without a break; zero: it could not
	live   map[strandingID]Stranding
}

type strandingID struct{ region, incarnation, budget string }

func (e Stranding) id() strandingID    { return strandingID{e.Region, e.Incarnation, e.Budget} }
func (l StrandedLine) id() strandingID { return strandingID{l.Region, l.Incarnation, l.Budget} }

// shardOf is the document of one region and shard of budgets.
type shardOf struct {
	region string
	shard  int
}

// trackStranded is one look.
func (s *Service) trackStranded(ctx context.Context) error {
	now, t := s.now(), &s.tracked
	if now.Sub(t.looked).Abs() < strandedEvery {
		return nil
	}
	t.looked = now
	if s.evidenceAge() > maxEvidenceAge {
		t.fresh = time.Time{} // regions may call other replicas, and we would not know
		return nil
	}
	if t.fresh.IsZero() || t.fresh.After(now) {
		t.fresh = now
	}
	found := map[shardOf]map[strandingID]StrandedLine{}
	// All of them: one that is left out would be taken for resolved.
	for _, line := range s.strandedLines(StrandedFilter{}, maxTracked).Lines {
		key := shardOf{line.Region, allocation.ShardOf(line.Budget)}
		if found[key] == nil {
			found[key] = map[strandingID]StrandedLine{}
		}
		found[key][line.id()] = line
	}
	s.state.mu.Lock()
	for _, d := range s.state.strandings {
		key := shardOf{d.value.Region, d.value.Shard}
		if _, known := found[key]; !known && slices.ContainsFunc(d.value.Entries, func(e Stranding) bool { return e.Ended == nil }) {
			found[key] = nil
		}
	}
	s.state.mu.Unlock()
	due := make([]shardOf, 0, len(found))
	for key := range found {
		due = append(due, key)
	}
	slices.SortFunc(due, func(a, b shardOf) int { return cmp.Or(cmp.Compare(a.region, b.region), cmp.Compare(a.shard, b.shard)) })
	live := map[strandingID]Stranding{}
	_, err := eachOf(ctx, s, due, func(key shardOf) (Change, error) { return s.lookAtShard(key, found[key], now, live), nil })
	t.live = live
	return err
}

// lookAtShard is the change that one document needs. What it finds goes into live, under the lock of the state.
func (s *Service) lookAtShard(key shardOf, lines map[strandingID]StrandedLine, now time.Time, live map[strandingID]Stranding) Change {
	name := strandingKey(key.region, key.shard)
	cur := s.state.strandings[name]
	next := StrandingDocument{Format: documentFormat, Region: key.region, Shard: key.shard}
	if cur != nil {
		next.Entries = slices.Clone(cur.value.Entries)
	}
	write := false
	open := map[strandingID]bool{}
	for i := range next.Entries {
		e := &next.Entries[i]
		if e.Ended != nil {
			continue
		}
		line, there := lines[e.id()]
		wrote := s.goOn(e, line, there, now)
		write = write || wrote
		open[e.id()] = e.Ended == nil
		live[e.id()] = *e
	}
	if now.Sub(s.tracked.fresh) >= s.config.ReportUnreachableAfter {
		for _, id := range sortedIDs(lines) {
			if line := lines[id]; !open[id] && line.WrittenOff == nil && line.holdsSomething() && len(open) < maxStrandings {
				e := s.beginStranding(line, now)
				next.Entries, open[id], live[id], write = append(next.Entries, e), true, e, true
			}
		}
	}
	if !write {
		return Change{}
	}
	item := next.bounded(name, now)
	return Change{Reads: []Item{cur.known(name)}, Puts: []Item{item}}
}

// sortedIDs puts what is stranded most first: if not all find a place, the largest do.
func sortedIDs(lines map[strandingID]StrandedLine) []strandingID {
	ids := make([]strandingID, 0, len(lines))
	for id := range lines {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b strandingID) int {
		return cmp.Or(cmp.Compare(lines[b].Stranded, lines[a].Stranded), cmp.Compare(a.budget, b.budget), cmp.Compare(a.incarnation, b.incarnation))
	})
	return ids
}

func (l StrandedLine) holdsSomething() bool {
	return l.Exposed > 0 || l.Unseen > 0 || l.Ahead != nil && (l.Ahead.Exposed > 0 || l.Ahead.Unseen > 0)
}

// bounded is the document within its bounds: of what has ended the oldest goes first.
func (d StrandingDocument) bounded(key string, now time.Time) Item {
	d.Entries = slices.DeleteFunc(d.Entries, func(e Stranding) bool { return e.Ended != nil && now.Sub(*e.Ended) > strandedRetention })
	for {
		item := put(key, d)
		if len(d.Entries) <= maxStrandings && len(item.Value) <= maxStatementBytes {
			return item
		}
		if i := slices.IndexFunc(d.Entries, func(e Stranding) bool { return e.Ended != nil }); i >= 0 {
			d.Entries = slices.Delete(d.Entries, i, i+1)
			continue
		}
		d.Entries = d.Entries[:len(d.Entries)-1] // the last was the least when it was opened
	}
}

// beginStranding begins a record.
func (s *Service) beginStranding(line StrandedLine, now time.Time) Stranding {
	h := allocation.Holder{Region: line.Region, Incarnation: line.Incarnation}
	e := Stranding{
		Budget: line.Budget, Unit: line.Unit, Region: line.Region, Incarnation: line.Incarnation, Generation: line.Generation,
		Cause: line.Cause, Since: now.UTC(), Opened: now.UTC(), Period: line.Period, AtFirst: line.Remainder, Latest: line.Remainder, Most: line.Stranded,
		RefusedSeen: s.state.refusedElsewhere(line.Budget, line.Region, allocation.CapacityStranded),
		SpentAtCut:  s.spentOthers(line.Budget, line.Region, line.Period.Start), SpentStated: s.spentStated(h, line.Budget), SpentFrom: s.firstTerm(line.Budget),
	}
	if line.Since != nil {
		e.Since = *line.Since
	}
	e.Counted = allocation.At(e.Since)
	if e.Period.Start > e.Counted {
		e.SpentAtCut = nil // the region was away before the period began
	}
	s.count(&e, now)
	return e
}

// count brings what grows with time up to now.
func (s *Service) count(e *Stranding, now time.Time) {
	until := allocation.At(now)
	most := int64(0)
	if b := s.state.budgets[e.Budget]; b != nil {
		most = b.value.Budget.WithDefaults().MaxInstances
	}
	if until > e.Counted {
		for _, l := range s.state.terms[e.Budget] {
			st, _ := s.lastStatement(e.holder(), refOf(l.value))
			e.Elapsed = e.Elapsed.Add(l.value.StrandedOver(e.holder(), st, e.Counted, until, most))
		}
		e.Counted = until
	}
	e.countRefused(s.state.refusedElsewhere(e.Budget, e.Region, allocation.CapacityStranded))
}

// goOn brings one open record on, and says whether that is worth a write.
func (s *Service) goOn(e *Stranding, line StrandedLine, there bool, now time.Time) (write bool) {
	was := *e
	if live, ok := s.tracked.live[e.id()]; ok && live.Counted > e.Counted && live.Opened.Equal(e.Opened) {
		e.Elapsed, e.Counted, e.RefusedBy, e.RefusedSeen = live.Elapsed, live.Counted, live.RefusedBy, live.RefusedSeen
	}
	if there && line.WrittenOff != nil {
		s.count(e, now)
		e.end(ResolvedWrittenOff, now)
		return true
	}
	if !there || !line.holdsSomething() {
		return s.resolve(e, line, there, now)
	}
	s.count(e, now)
	next := now.UTC()
	if e.Back != nil {
		e.Back, write = nil, true
	}
	if line.Stranded > e.Most {
		e.Most, e.Grew, write = line.Stranded, &next, true
	}
	if line.Period != e.Period && now.Sub(e.Period.Start.Time()) >= periodEvery {
		e.Period, e.SpentAtCut, e.RefusedBefore, write = line.Period, nil, e.RefusedBy, true
	}
	if line.Remainder != e.Latest && line.Period == e.Period || line.Cause != e.Cause {
		e.Latest, e.Cause, write = line.Remainder, line.Cause, true
	}
	later := total(e.RefusedBy).Requests > total(was.RefusedBy).Requests && time.Duration(e.Counted-was.Counted)*time.Second >= refusedEvery
	return write || later
}

// resolve ends a record whose line is gone: at the first look it is noted as back, at the next it ends, so that what the
// region's first calls state is counted.
func (s *Service) resolve(e *Stranding, line StrandedLine, there bool, now time.Time) bool {
	if e.Back == nil {
		s.count(e, now)
		back := now.UTC()
		e.Back = &back
		return true
	}
	how := ResolvedPeriodEnd
	switch current, ok := s.state.currentOf(e.Region); {
	case ok && current == e.holder() && s.canBeAsked(current, now):
		how = ResolvedReturned
		e.LateSpent = max(0, s.saidSpent(e.holder(), e.Budget, e.SpentFrom, allocation.Never)-e.SpentStated)
	case there && line.Returned > e.Latest.Returned:
		how = ResolvedSealed // nothing else counts a return of one that does not call
	}
	e.end(how, *e.Back)
	return true
}

func (e *Stranding) end(how string, at time.Time) {
	at = at.UTC()
	e.How, e.Ended = how, &at
}

// spentOthers is what the incarnations of other regions stated as spent in one period, by region.
func (s *Service) spentOthers(budget, but string, period allocation.Instant) map[string]int64 {
	out := map[string]int64{}
	for _, l := range s.state.terms[budget] {
		if _, ok := l.value.Periods.Index(period); !ok {
			continue
		}
		for _, h := range holders(l.value) {
			if h.Region == but {
				continue
			}
			st, _ := s.lastStatement(h, refOf(l.value))
			for _, u := range st.Usage {
				if u.Period == period {
					out[h.Region] = allocation.SumUp(out[h.Region], u.Spent)
				}
			}
		}
	}
	return out
}
