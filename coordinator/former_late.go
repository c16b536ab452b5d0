package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// A former incarnation whose database comes back is refused, and forgets what it states: it is heard once. Of a term that is
// closed its word goes into the record (see closing_late.go). Of one that is open it is kept here until the term closes, or
// the record would say for good that nothing is known of what was spent.
//
//	             former call ──refused──▶ statement ──raises──▶ Stranding.Former, in etcd ──closing──▶ ClosedRegion.Spent
//	returned, generation, shares: nothing of them counts (invariant 8), and the ledger is not touched
//
// No permit moves: what was granted to it and not returned stays out to the period's end. What is known to be spent only goes
// from stranded to spent, so that nobody gets more for it. It is entered where it is more than what was known: counters only
// rise, so a lower one is older news, or comes from a copy that lacks commits.

// raisedBy is an account with what another one of the same share and incarnation says beyond it; more: that is something.
func raisedBy(known, said allocation.ShareStatement) (next allocation.ShareStatement, more bool) {
	next = known
	if known.Generation.Number == 0 {
		next.Budget, next.Term, next.Generation = said.Budget, said.Term, said.Generation
	}
	next.Usage = slices.Clone(known.Usage)
	for _, u := range said.Usage {
		i := slices.IndexFunc(next.Usage, func(k allocation.UsageStatement) bool { return k.Period == u.Period && k.Class == u.Class })
		switch {
		case i < 0 && u.Spent+u.Reserved+u.Overdraft > 0:
			next.Usage, more = append(next.Usage, u), true
		case i < 0 || u.Spent < next.Usage[i].Spent || u.Overdraft < next.Usage[i].Overdraft:
		case u.Spent > next.Usage[i].Spent || u.Overdraft > next.Usage[i].Overdraft:
			u.Instances = max(u.Instances, next.Usage[i].Instances)
			next.Usage[i], more = u, true
		}
	}
	if !more {
		return known, false
	}
	slices.SortFunc(next.Usage, func(a, b allocation.UsageStatement) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), cmp.Compare(a.Class, b.Class))
	})
	return next, true
}

func spentOf(st allocation.ShareStatement) (sum int64) {
	for _, u := range st.Usage {
		sum = allocation.SumUp(sum, u.Spent)
	}
	return sum
}

// enterFormer keeps what the refused call of a former incarnation states of open terms, before it is refused.
func (s *Service) enterFormer(ctx context.Context, h allocation.Holder, statements []allocation.Statement) error {
	entered := 0
	for _, st := range statements {
		for part := range slices.Chunk(st.Shares, maxCountsPerTxn) {
			raised := map[allocation.ShareRef]allocation.ShareStatement{}
			err := s.act(ctx, func() (Change, error) {
				clear(raised)
				return s.formerChange(h, st.Shard, part, raised), nil
			})
			if err != nil {
				return fmt.Errorf("keep what a former incarnation states: %w", err)
			}
			s.state.mu.Lock()
			for ref, st := range raised {
				s.state.rememberFormer(h, ref, st)
			}
			s.state.mu.Unlock()
			entered += len(raised)
		}
	}
	if entered > 0 {
		s.log.Info("what a former incarnation states of open terms is kept for their records", "region", h.Region, "incarnation", h.Incarnation, "shares", entered)
	}
	return nil
}

// formerChange is the change of the history of stranded permits, and what it raises. What was never recorded as stranded, as
// all of it was known to be spent, has no place there; it is kept in memory, and by the next look of the tracker.
func (s *Service) formerChange(h allocation.Holder, shard int, shares []allocation.ShareStatement, raised map[allocation.ShareRef]allocation.ShareStatement) Change {
	key := strandingKey(h.Region, shard)
	cur := s.state.strandings[key]
	next := StrandingDocument{}
	if cur != nil {
		next = cur.value
		next.Entries = slices.Clone(next.Entries)
	}
	write := false
	for _, said := range shares {
		ref := allocation.ShareRef{Budget: said.Budget, Term: said.Term}
		l := s.state.ledgers[ref]
		if l == nil || !slices.Contains(holders(l.value), h) {
			continue
		}
		known, _ := s.lastStatement(h, ref)
		st, more := raisedBy(known, inTerm(said, l.value))
		if more {
			raised[ref] = st
		}
		i := newestOf(next.Entries, h, said.Budget)
		if i < 0 {
			continue
		}
		e := &next.Entries[i]
		// This replica may have heard in memory what etcd has not.
		at := slices.IndexFunc(e.Former, func(f allocation.ShareStatement) bool { return f.Term == ref.Term })
		if at >= 0 {
			known = e.Former[at]
		}
		if _, more := raisedBy(known, st); !more {
			continue
		}
		if e.Former = slices.Clone(e.Former); at < 0 {
			at, e.Former = len(e.Former), append(e.Former, allocation.ShareStatement{})
		}
		e.Former[at], write = st, true
		e.LateSpent = allocation.SumUp(e.LateSpent, spentOf(st)-spentOf(known))
	}
	if !write {
		return Change{}
	}
	return Change{Reads: []Item{cur.item}, Puts: []Item{next.bounded(key, s.now())}}
}

// inTerm is an account without what is not of the ledger's periods, and without what does not count of a former incarnation.
func inTerm(st allocation.ShareStatement, l allocation.Ledger) allocation.ShareStatement {
	st.Returned, st.Held = nil, nil
	st.Usage = slices.DeleteFunc(slices.Clone(st.Usage), func(u allocation.UsageStatement) bool {
		_, of := l.Periods.Index(u.Period)
		return !of
	})
	return st
}

// newestOf is the last entry of an incarnation and budget, ended or not; -1: there is none.
func newestOf(entries []Stranding, h allocation.Holder, budget string) int {
	for i := len(entries) - 1; i >= 0; i-- {
		if e := &entries[i]; e.Budget == budget && e.Incarnation == h.Incarnation {
			return i
		}
	}
	return -1
}

// rememberFormer keeps an account of a former incarnation in memory; it never takes back what is known.
func (s *state) rememberFormer(h allocation.Holder, ref allocation.ShareRef, st allocation.ShareStatement) {
	if s.ledgers[ref] == nil { // so it is bounded by what is open
		return
	}
	if s.formers[h] == nil {
		s.formers[h] = map[allocation.ShareRef]allocation.ShareStatement{}
	}
	if before, known := s.formers[h][ref]; known {
		st, _ = raisedBy(st, before)
	}
	s.formers[h][ref] = st
}

// formerStatement is what a former incarnation last stated of a share, as this replica heard it and as it was recorded.
func (s *state) formerStatement(h allocation.Holder, ref allocation.ShareRef) (st allocation.ShareStatement) {
	st = s.formers[h][ref]
	d := s.strandings[strandingKey(h.Region, allocation.ShardOf(ref.Budget))]
	if d == nil {
		return st
	}
	for i := range d.value.Entries {
		e := &d.value.Entries[i]
		if e.Budget != ref.Budget || e.Incarnation != h.Incarnation {
			continue
		}
		for _, f := range e.Former {
			if f.Term != ref.Term {
				continue
			}
			if st.Generation.Number == 0 {
				st = f
			} else {
				st, _ = raisedBy(st, f)
			}
		}
	}
	return st
}

// isFormer says whether an incarnation was replaced, and is known to have been.
func (s *state) isFormer(h allocation.Holder) bool {
	r := s.regions[h.Region]
	if r == nil {
		return false
	}
	d := cmp.Or(r.doc, r.tomb)
	return d != nil && d.value.Incarnation != h.Incarnation && slices.Contains(d.value.Former, h.Incarnation)
}

// forgetClosed takes out of the record what former incarnations stated of terms that are closed: their records have it.
func (s *state) forgetClosed(e *Stranding) {
	if !slices.ContainsFunc(e.Former, func(f allocation.ShareStatement) bool { return s.isClosedTerm(f) }) {
		return
	}
	e.Former = slices.DeleteFunc(slices.Clone(e.Former), s.isClosedTerm)
	if len(e.Former) == 0 {
		e.Former = nil
	}
}

func (s *state) isClosedTerm(f allocation.ShareStatement) bool {
	return s.ledgers[allocation.ShareRef{Budget: f.Budget, Term: f.Term}] == nil
}

// addLateSpent adds to the history of stranded permits what a former incarnation turned out to have spent in closed terms, by
// budget: the last record of each says so, though it has ended.
func (s *state) addLateSpent(change *Change, h allocation.Holder, spent map[string]int64, now time.Time) {
	docs := map[string]StrandingDocument{}
	for _, budget := range slices.Sorted(maps.Keys(spent)) {
		key := strandingKey(h.Region, allocation.ShardOf(budget))
		next, seen := docs[key]
		if !seen {
			if s.strandings[key] == nil {
				continue
			}
			next = s.strandings[key].value
			next.Entries = slices.Clone(next.Entries)
		}
		if i := newestOf(next.Entries, h, budget); i >= 0 {
			next.Entries[i].LateSpent = allocation.SumUp(next.Entries[i].LateSpent, spent[budget])
			docs[key] = next
		}
	}
	for _, key := range slices.Sorted(maps.Keys(docs)) {
		change.Reads, change.Puts = append(change.Reads, s.strandings[key].item), append(change.Puts, docs[key].bounded(key, now))
	}
}
