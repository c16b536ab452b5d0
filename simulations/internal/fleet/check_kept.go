package fleet

import "tranche/allocation"

// judgeKept judges that what a budget keeps is granted to nobody but a region that begins anew: whoever else is granted a
// permit leaves at least that much unallocated.
func (c *checks) judgeKept(ref allocation.ShareRef, old, next allocation.Ledger, i int) {
	e, before := next.EntryAt(i), allocation.Entry{}
	kept := keptOf(next, e)
	if kept == 0 || c.standing.Frozen(ref.Term) {
		return
	}
	if len(old.Entries) > 0 {
		before = old.EntryAt(i)
	}
	granted := ""
	for _, a := range e.Allocations {
		if was, _ := allocationOf(before, a.Holder, a.Class); a.Granted == was.Granted {
			continue
		}
		if c.isLost(a.Holder) || hadAnother(e, a.Holder) {
			return // what is unallocated may be its own
		}
		granted = a.Region
	}
	if granted == "" {
		return
	}
	left := e.Limit - outOf(next, e)
	c.must(left >= kept, 4, "%s, period %s: %s is granted of what is kept: %d are left of a limit of %d, and %d are to be", ref.Budget, next.Periods.At(i).Start, granted, left, e.Limit, kept)
}

// keptOf is how much of an entry's limit is kept, by this package's own sum.
func keptOf(l allocation.Ledger, e allocation.Entry) int64 {
	if l.Policy.Policy != allocation.PolicyFixed {
		return 0
	}
	return (max(0, e.Limit-e.OpeningSpent)*l.Policy.KeepPercent + 99) / 100
}

// hadAnother says whether an incarnation before this one of its region holds, or has spent, permits of the period.
func hadAnother(e allocation.Entry, h allocation.Holder) bool {
	for _, a := range e.Allocations {
		if a.Region == h.Region && a.Incarnation != h.Incarnation && a.Granted > a.Returned {
			return true
		}
	}
	return false
}
