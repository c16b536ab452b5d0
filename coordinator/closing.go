package coordinator

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

const (
	// maxClosingBytes bounds one record; beyond it, periods are joined.
	maxClosingBytes = 48 << 10
	// maxClosingsBytes is what all records together may take in etcd before they are archived early.
	maxClosingsBytes = 128 << 20
	// endedGrace is how long after its end a term is closed of which no owner is left to say that it is over.
	endedGrace = 10 * time.Minute
)

// closeTerms closes ledgers that are over everywhere: every owner that holds permits of one spends none of its periods any
// more, and has stated all that it spent (see stated_through.go). No clock of ours decides while there is such an owner
// (invariant 5); a region that is cut off keeps its ledgers open.
//
// The ledger goes and the closing comes in one transaction. It is never opened again: its budget records how far terms
// were opened, and new ones begin after that.
func (s *Service) closeTerms(ctx context.Context) (closed int, err error) {
	now := s.instant()
	s.state.mu.Lock()
	due := portion(s.state, &s.state.closing, func(budget string) (due []allocation.ShareRef) {
		for _, l := range s.state.terms[budget] {
			if l.value.Periods.End() <= now && !s.state.frozen() && s.overEverywhere(l.value, now) {
				due = append(due, refOf(l.value))
			}
		}
		return due
	})
	s.state.mu.Unlock()
	return eachOf(ctx, s, due, func(ref allocation.ShareRef) (Change, error) { return s.closeTerm(ref, now), nil })
}

// overEverywhere says whether every incarnation that the ledger ever granted to has closed the term, and stated it. One
// that has ended states nothing any more: what it held stays stranded, and hinders nobody.
func (s *Service) overEverywhere(l allocation.Ledger, now allocation.Instant) bool {
	held := holders(l)
	ended := 0
	for _, h := range held {
		if s.hasEnded(h) {
			ended++
		} else if !s.hasStated(h, l.Periods.End()) {
			return false
		}
	}
	return ended == 0 || ended < len(held) || l.Periods.End() <= now-allocation.Instant(endedGrace/time.Second)
}

// hasStated says whether the incarnation has stated all that it did in the periods that end at or before an instant.
func (s *Service) hasStated(h allocation.Holder, end allocation.Instant) bool {
	r := s.state.regions[h.Region]
	return r != nil && r.contact.Incarnation == h.Incarnation && r.contact.StatedThrough >= end
}

// hasEnded says whether the incarnation is its region's no more: another took its place, or the region was removed.
func (s *Service) hasEnded(h allocation.Holder) bool {
	r := s.state.regions[h.Region]
	return r == nil || r.doc == nil || r.doc.value.Incarnation != h.Incarnation
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

func (s *Service) closeTerm(ref allocation.ShareRef, now allocation.Instant) Change {
	l := s.state.ledgers[ref]
	if l == nil || s.state.frozen() || !s.overEverywhere(l.value, now) {
		return Change{}
	}
	key := closingKey(ref.Budget, ref.Term)
	change := Change{
		Reads:   []Item{l.item, s.state.closings[key].known(key)},
		Puts:    []Item{put(key, s.closingOf(l.value))},
		Deletes: []string{l.item.Key},
	}
	for _, h := range holders(l.value) {
		// It has ended for as long as this document says so.
		if r := s.state.regions[h.Region]; s.hasEnded(h) && (r == nil || r.doc == nil) {
			change.Reads = append(change.Reads, Item{Key: regionKey(h.Region)})
		}
	}
	s.state.onStanding(&change)
	return change
}

// closingOf is the record of a term that is over everywhere.
func (s *Service) closingOf(l allocation.Ledger) Closing {
	c := Closing{
		Format: documentFormat, Budget: l.Budget, Unit: l.Unit, Template: l.Template, Term: l.Periods.Start(), Until: l.Periods.End(), Periods: l.Periods,
		Version: l.Version, Generation: l.Generation, Closed: s.now().UTC(), Regions: []ClosedRegion{},
	}
	var accounts []allocation.Account
	for _, h := range holders(l) {
		st, _ := s.lastStatement(h, refOf(l))
		final := !s.hasEnded(h)
		accounts = append(accounts, allocation.Account{Holder: h, Statement: st, Final: final})
		c.Regions = append(c.Regions, ClosedRegion{Holder: h, NeverStated: !final})
	}
	c.Detail = l.Record(accounts)
	for i, p := range c.Detail {
		if i == 0 {
			c.Total = p
		} else {
			c.Total = c.Total.Join(p)
		}
	}
	for _, sh := range c.Total.Shares {
		at := &c.Regions[sh.Holder]
		at.Granted, at.Returned, at.RecordSums = sh.Granted, sh.Returned, sh.RecordSums
	}
	c.Total.Shares = nil
	for i := range c.Regions {
		s.completeBySums(&c, i)
	}
	most := maxClosingBytes
	if s.state.closingBytes > maxClosingsBytes {
		most = 0 // nobody takes them out of etcd: only sums, until there is room again
	}
	for len(c.Detail) > 1 && len(encode(c)) > most {
		c.Detail, c.Joined = allocation.Coarser(c.Detail), true
	}
	return c
}

// completeBySums takes what is known only in sum of an account whose periods had no room in its document.
func (s *Service) completeBySums(c *Closing, i int) {
	at := &c.Regions[i]
	sum, some, unknown := s.keptSum(at.Holder, allocation.ShareRef{Budget: c.Budget, Term: c.Term})
	if at.Unknown = unknown; !some {
		return
	}
	before := at.RecordSums
	at.Spent, at.Reserved, at.Overdraft, at.InSum = sum.Spent, sum.Reserved, sum.Overdraft, true
	c.Total.Spent += at.Spent - before.Spent
	c.Total.Reserved += at.Reserved - before.Reserved
	c.Total.Overdraft += at.Overdraft - before.Overdraft
	used := at.Spent + at.Reserved - before.Spent - before.Reserved
	if at.NeverStated {
		at.Stranded = max(0, at.Stranded-used)
		c.Total.Stranded = max(0, c.Total.Stranded-used)
	} else if !c.Template {
		c.Total.Unused = max(0, c.Total.Unused-used)
	}
}

// sweep removes what is kept for a while only: closings, once they are archived, and finished rebalances.
func (s *Service) sweep(ctx context.Context) error {
	if err := s.archiveClosings(ctx); err != nil {
		return err
	}
	before := s.now().Add(-s.config.ClosingRetention)
	s.state.mu.Lock()
	due := s.sweepStranded()
	sorted := sortedRebalances(s.state.rebalances)
	for i, d := range sorted {
		if d.value.State != RebalanceMoving && (d.value.Ended.Before(before) || i < len(sorted)-maxRebalances) {
			due = append(due, d.item)
		}
	}
	s.state.mu.Unlock()
	_, err := s.removeAll(ctx, due)
	return err
}

// removeAll removes documents that are as they were read.
func (s *Service) removeAll(ctx context.Context, due []Item) (int, error) {
	return eachOf(ctx, s, slices.Clone(due), func(item Item) (Change, error) {
		return Change{Reads: []Item{item}, Deletes: []string{item.Key}}, nil
	})
}
