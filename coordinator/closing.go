package coordinator

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"tranche/allocation"
)

// closeTerms closes ledgers that are over everywhere: every owner that holds permits of one spends none of its periods any
// more, and has stated all that it spent (see stated_through.go). No clock of ours decides (invariant 5); a region that is cut off keeps its ledgers open.
//
// The ledger goes and the closing comes in one transaction. It is never opened again: its budget records how far terms
// were opened, and new ones begin after that.
func (s *Service) closeTerms(ctx context.Context) (closed int, err error) {
	s.state.mu.Lock()
	due := s.termsOver()
	s.state.mu.Unlock()
	return eachOf(ctx, s, due, func(ref allocation.ShareRef) (Change, error) { return s.closeTerm(ref), nil })
}

// overFew is up to how many ledgers each round looks whether they can be closed; rounds follow each change.
const overFew = 200

// termsOver are ledgers that can be closed. While a region is cut off those that cannot be are more with every hour, so only some
// are looked at, and where they are many not in each round. The caller holds the lock.
func (s *Service) termsOver() []allocation.ShareRef {
	if s.state.frozen() {
		return nil
	}
	at := s.now()
	now := allocation.At(at)
	s.state.over.add(s.state.ends.take(int64(now), maxPerTick)...)
	if ago := at.Sub(s.state.overSeen); len(s.state.over.waiting) > overFew && ago >= 0 && ago < backgroundTick {
		return nil
	}
	s.state.overSeen = at
	there := func(ref allocation.ShareRef) bool { return s.state.ledgers[ref] != nil }
	return slices.DeleteFunc(s.state.over.next(maxPerTick, there, compareRefs), func(ref allocation.ShareRef) bool {
		l := s.state.ledgers[ref].value
		return l.Periods.End() > now || !s.overEverywhere(l) // the clock may have been ahead before
	})
}

// overEverywhere says whether every incarnation that the ledger ever granted to has closed the term, and if none of them can
// say so any more, whether any region has: no clock of ours decides.
func (s *Service) overEverywhere(l allocation.Ledger) bool {
	end, all := l.Periods.End(), holders(l)
	for _, h := range all {
		if r := s.state.regions[h.Region]; r == nil || !r.over(h, end, s.state.descent().History) {
			return false
		}
	}
	return len(all) == 0 || slices.ContainsFunc(s.state.ordered, func(r *region) bool { return r.contact.statedThrough(s.state.descent().History) >= end })
}

// over says whether an incarnation spends nothing more of periods that end by then, and has stated all of it. A former one
// states nothing any more: what it last stated stands, once its successor has closed these periods, or if it has none.
func (r *region) over(h allocation.Holder, end allocation.Instant, under allocation.History) bool {
	stated := r.contact.statedThrough(under) >= end
	if r.contact.Incarnation == h.Incarnation && stated {
		return true
	}
	d := cmp.Or(r.doc, r.tomb)
	if d == nil || !slices.Contains(d.value.Former, h.Incarnation) {
		return false
	}
	now := d.value.Incarnation
	return now == "" || r.contact.Incarnation == now && stated
}

// holders are the incarnations to which the ledger ever granted something, in their order.
func holders(l allocation.Ledger) []allocation.Holder {
	var out []allocation.Holder
	seen := map[allocation.Holder]bool{}
	for _, e := range l.Entries {
		for _, a := range e.Allocations {
			if a.Granted > 0 && !seen[a.Holder] {
				seen[a.Holder] = true
				out = append(out, a.Holder)
			}
		}
	}
	return out
}

func (s *Service) closeTerm(ref allocation.ShareRef) Change {
	l := s.state.ledgers[ref]
	if l == nil || s.state.frozen() || !s.overEverywhere(l.value) {
		return Change{}
	}
	c := Closing{
		Format: documentFormat, Budget: ref.Budget, Unit: l.value.Unit, Term: ref.Term, Periods: l.value.Periods,
		Generation: l.value.Generation, Closed: s.now().UTC(), Regions: []ClosedRegion{},
		OpeningSpent: l.value.EntryAt(0).OpeningSpent,
	}
	var usage [][]allocation.UsageStatement
	for _, h := range holders(l.value) {
		st, _ := s.lastStatement(h, ref)
		c.Regions, usage = append(c.Regions, s.closedRegion(h, l.value, st)), append(usage, st.Usage)
	}
	s.state.sum(&c, l.value)
	c.enterPeriods(l.value, usage)
	key := closingKey(ref.Budget, ref.Term)
	change := Change{
		Reads:   append(s.state.formerItems(l.value), l.item, s.state.closings[key].known(key)),
		Puts:    []Item{put(key, c)},
		Deletes: []string{l.item.Key},
	}
	s.state.onStanding(&change)
	return change
}

// closedRegion is what an incarnation last stated of a term that is closed now. If it stated nothing of it since etcd went
// back, it may have been told before that that the term is closed, and will never state it again: then all that it held
// is counted as spent, which may be too much, and never too little by what this ledger granted. The same where the document that
// this replica read had no room for what was stated.
func (s *Service) closedRegion(h allocation.Holder, l allocation.Ledger, st allocation.ShareStatement) ClosedRegion {
	sum := ClosedRegion{Holder: h}
	for _, u := range st.Usage {
		sum.Spent, sum.Reserved, sum.Overdraft = sum.Spent+u.Spent, sum.Reserved+u.Reserved, sum.Overdraft+u.Overdraft
	}
	now := s.state.descent().History
	if st.Partial || now.Number > 1 && !s.state.statedUnder(h, refOf(l), now) {
		sum.Unstated = true
		sum.Spent = max(sum.Spent, heldOver(l, h)-sum.Reserved)
	}
	return sum
}

// statedUnder says whether an incarnation has stated a share since a history began.
func (s *state) statedUnder(h allocation.Holder, ref allocation.ShareRef, under allocation.History) bool {
	r := s.regions[h.Region]
	if r == nil {
		return false
	}
	n := allocation.ShardOf(ref.Budget)
	sh := r.shards[n]
	if f := r.formerOf(n, h.Incarnation); f != nil && (sh == nil || sh.incarnation != h.Incarnation) {
		sh = &f.shard
	}
	if sh == nil || sh.incarnation != h.Incarnation || sh.under != under {
		return false
	}
	_, stated := sh.shares[ref]
	return stated
}

// heldOver is what an incarnation holds of all periods of a term together.
func heldOver(l allocation.Ledger, h allocation.Holder) (sum int64) {
	for i, e := range l.Entries {
		next := l.Periods.Len()
		if i+1 < len(l.Entries) {
			next = l.Entries[i+1].From
		}
		for _, a := range e.Allocations {
			if a.Holder == h {
				sum += a.Held() * int64(next-e.From)
			}
		}
	}
	return sum
}

// sweep removes what is kept for a while only: closings and finished rebalances.
func (s *Service) sweep(ctx context.Context) error {
	before := s.now().Add(-s.config.ClosingRetention)
	s.state.mu.Lock()
	var over []*doc[Closing]
	for _, c := range s.state.closings {
		if c.value.Closed.Before(before) {
			over = append(over, c)
		}
	}
	due := append(append(s.sweepStranded(), s.sweepOverrides()...), s.sweepFeed()...)
	due = append(due, s.sweepRebalances(before)...)
	s.state.mu.Unlock()
	// They may be many, so without the lock: a document in the picture is replaced, never changed.
	slices.SortFunc(over, func(a, b *doc[Closing]) int { return cmp.Compare(a.item.Key, b.item.Key) })
	closings, failed := s.archiveClosings(over[:min(maxPerTick, len(over))])
	_, err := eachOf(ctx, s, append(due, closings...), func(item Item) (Change, error) {
		return Change{Reads: []Item{item}, Deletes: []string{item.Key}, aged: true}, nil
	})
	return errors.Join(failed, err)
}
