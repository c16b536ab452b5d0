package fleet

import (
	"slices"

	"tranche/allocation"
)

// judgeBounds judges that demand moves no share past what its budget promises a region at least and at most: what a change
// of the budget or of the regions makes of it is another matter.
func (c *checks) judgeBounds(ref allocation.ShareRef, old, next allocation.Ledger, was, now allocation.Allocation) {
	if next.Policy.Policy != allocation.PolicyDemand || old.Version != next.Version || old.Members != next.Members || c.standing.Frozen(ref.Term) {
		return
	}
	least, most := next.Policy.Min[now.Region], next.Policy.Max[now.Region]
	c.must(most == 0 || now.Target <= max(most, was.Target), 4, "%s: demand raises the target of %s from %d to %d, and its most is %d", ref.Budget, now.Region, was.Target, now.Target, most)
	// One that drained when the term was opened takes no part in it: what it holds comes back.
	if !slices.Contains(next.Regions, now.Region) {
		return
	}
	// What it was promised and never held may be promised to less: others have it, and may have spent it.
	c.must(now.Target >= min(least, was.Target, now.Granted-now.Returned), 4, "%s: demand recalls what %s holds, from %d to %d, and its least is %d", ref.Budget, now.Region, was.Target, now.Target, least)
}
