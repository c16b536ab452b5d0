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
//	             former call ──refused──▶ statement ──raises──▶ its document (former.go) ──closing──▶ ClosedRegion.Spent
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
			for ref, said := range raised { // known from the document, but where that has no room for it
				s.state.regions[h.Region].makeFormer(st.Shard, h.Incarnation).raise(ref, said)
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

// formerChange is the change of its document, and of the history of what was stranded with it. It rests on the ledgers that it is
// about, as their closing rests on the document: what a closing did not count goes into its record.
func (s *Service) formerChange(h allocation.Holder, n int, shares []allocation.ShareStatement, raised map[allocation.ShareRef]allocation.ShareStatement) (change Change) {
	key := formerKey(h.Region, n, h.Incarnation)
	f := s.state.regions[h.Region].formerOf(n, h.Incarnation)
	next, doc := shard{incarnation: h.Incarnation, shares: map[allocation.ShareRef]allocation.ShareStatement{}, number: 1}, (*doc[StatementDocument])(nil)
	if f != nil {
		next, doc = f.shard, f.doc
		next.shares = maps.Clone(f.shares)
	}
	change.Reads = []Item{doc.known(key)}
	late := map[string]int64{} // by budget
	for _, said := range shares {
		ref := allocation.ShareRef{Budget: said.Budget, Term: said.Term}
		l := s.state.ledgers[ref]
		if l == nil || !slices.Contains(holders(l.value), h) {
			continue
		}
		known, _ := s.lastStatement(h, ref)
		if st, more := raisedBy(known, inTerm(said, l.value)); more {
			next.raise(ref, st)
			change.Reads = append(change.Reads, l.item)
			late[ref.Budget] = allocation.SumUp(late[ref.Budget], spentOf(st)-spentOf(known))
			raised[ref] = st
		}
	}
	if len(raised) == 0 && (f == nil || f.written()) {
		return Change{}
	}
	change.Puts = []Item{{Key: key, Value: statementValue(h.Region, n, &next)}}
	s.state.addLateSpent(&change, h, late, s.now())
	return change
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

// isFormer says whether an incarnation was replaced, and is known to have been.
func (s *state) isFormer(h allocation.Holder) bool {
	r := s.regions[h.Region]
	if r == nil {
		return false
	}
	d := cmp.Or(r.doc, r.tomb)
	return d != nil && d.value.Incarnation != h.Incarnation && slices.Contains(d.value.Former, h.Incarnation)
}

// addLateSpent adds to the history of stranded permits what a former incarnation turned out to have spent, by
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
