package fleet

import (
	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// clocks notes how late it ever was by the clock of some replica: what was to be opened by then may have been left out.
func (c *checks) clocks() {
	for _, r := range c.fleet.replicas {
		c.latest = max(c.latest, allocation.Instant(r.process.Clock.Micros()/1_000_000))
	}
}

// openedAnew notes how far a budget is opened by a term that an etcd that went back had held and lost, which was opened or
// stated again. The next term begins after it, wherever the last one ended that etcd never held before: that is no gap.
// Until there was one of those nothing is known of what is opened, as the budget in the snapshot may be opened further.
func (c *checks) openedAnew(budget string, end allocation.Instant) {
	if ended, known := c.ends[budget]; known {
		c.ends[budget] = max(ended, end)
	}
}

// samePeriods compares every instant: the form may be another.
func samePeriods(a, b allocation.Periods) bool {
	if a.Len() != b.Len() || a.End() != b.End() {
		return false
	}
	for i := range a.Len() {
		if a.At(i) != b.At(i) {
			return false
		}
	}
	return true
}

// sealKey is one share of one incarnation, or one row of it.
type sealKey struct {
	database, incarnation string
	share                 allocation.ShareRef
	row                   allocation.UsageKey // zero: the share itself
}

// judgeSealed judges that nothing is spent or reserved after the commit of a seal, of the row or of the share that it is
// made from; what was reserved may be settled, released, or lapse (invariant 9).
func (c *checks) judgeSealed(r *region, x *ownertwin.Commit, ref allocation.ShareRef, u ownertwin.UsageChange) {
	share := sealKey{x.Database, x.Incarnation, ref, allocation.UsageKey{}}
	row := sealKey{x.Database, x.Incarnation, ref, u.After.UsageKey}
	if s, there := r.db.Share(ref); there && s.Sealed {
		c.sealed[share] = true
	}
	was := c.sealed[share] || c.sealed[row] || u.Before.Sealed
	if was {
		before, after := u.Before.Spent+u.Before.Reserved, u.After.Spent+u.After.Reserved
		c.must(after <= before && u.After.Reserved <= u.Before.Reserved, 9, "%s: %d of %s, period %s are spent or reserved after its seal, and %d were before",
			x.Database, after, u.After.Budget, u.After.Period, before)
		c.must(u.After.Sealed, 9, "%s: the sealed usage of %s, period %s is open again", x.Database, u.After.Budget, u.After.Period)
	}
	if u.After.Sealed {
		c.sealed[row] = true
	}
}
