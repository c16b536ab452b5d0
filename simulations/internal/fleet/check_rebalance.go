package fleet

import (
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// judgeRebalances judges those that end in one revision although their giver did not return all, before the rest of it is
// entered: what is still the giver's own is promised to it again, and what has moved stays the taker's (invariant 4). A return
// that comes later would move permits for a move of which everybody was told that it is over.
func (c *checks) judgeRebalances(events []coordinator.Event) {
	for _, e := range events {
		if e.Deleted || !strings.HasPrefix(e.Key, coordinator.Root+"rebalances/") {
			continue
		}
		d := read[coordinator.Rebalance](c, e)
		if d.State != coordinator.RebalanceEnded {
			continue
		}
		c.fleet.notes["rebalances that could not finish"]++
		for _, term := range d.Terms {
			if v := c.ledgers[allocation.ShareRef{Budget: d.Budget, Term: term}]; v != nil && !v.closed && !v.restored {
				c.judgeTakenBack(d, v.doc, c.ledgerIn(events, v))
			}
		}
	}
}

// ledgerIn is a ledger as a revision leaves it.
func (c *checks) ledgerIn(events []coordinator.Event, v *ledgerView) allocation.Ledger {
	for _, e := range events {
		if e.Key == v.key && !e.Deleted {
			return read[allocation.Ledger](c, e)
		}
	}
	return v.doc
}

// judgeTakenBack judges one term: the periods that begin later than any replica's clock shows, for all of which a move counts.
func (c *checks) judgeTakenBack(d coordinator.Rebalance, old, next allocation.Ledger) {
	if old.History != next.History {
		return
	}
	giver, taker := allocation.Holder{Region: d.From, Incarnation: d.Giver}, allocation.Holder{Region: d.To, Incarnation: d.Taker}
	for i := range old.Periods.Len() {
		start := old.Periods.At(i).Start
		before, after := old.EntryAt(i), next.EntryAt(i)
		gave, there := allocationOf(before, giver, allocation.General)
		took, also := allocationOf(before, taker, allocation.General)
		if start < max(c.latest, d.Since) || !there || !also {
			continue
		}
		back := min(max(0, gave.Held()-gave.Target), d.Units, took.Target)
		gives, _ := allocationOf(after, giver, allocation.General)
		takes, _ := allocationOf(after, taker, allocation.General)
		c.must(gives.Target == gave.Target+back && takes.Target == took.Target-back, 4,
			"%s, period %s: a move of %d from %s to %s cannot finish, and %d were not returned: the targets go from %d and %d to %d and %d",
			d.Budget, start, d.Units, d.From, d.To, back, gave.Target, took.Target, gives.Target, takes.Target)
	}
}
