package fleet

import (
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// What must hold where etcd went back: a ledger that was restored may know less than was granted, so while it is frozen
// owners state what they hold, and nothing is granted. What they held under a higher limit that was lost may be more than
// the limit allows now. That is overcommitted, and explained by a limit that once counted.

// standingChanged judges a freeze, and a thaw.
func (c *checks) standingChanged(next allocation.Standing) {
	before := c.standing
	c.must(next.History.Number >= before.History.Number && (next.History == before.History || next.History.Number > before.History.Number), 8,
		"etcd goes from history %s to %s", before.History, next.History)
	c.standing, c.unnoticed = next, c.unnoticed && next.History == before.History
	if before.Freeze == nil && next.Freeze != nil {
		c.must(c.restores > 0 || strings.Contains(next.Freeze.Why, "a cold start"), 8, "etcd never went back, and all is frozen: %s", next.Freeze.Why)
	}
	if before.Freeze != nil && next.Freeze == nil {
		c.thawed(before)
	}
}

// thawed judges that everything that any owner holds stands in its ledger before anything is granted again: what is not
// there would be granted once more.
func (c *checks) thawed(before allocation.Standing) {
	for _, ref := range c.openLedgers() {
		v := c.ledgers[ref]
		for i := range v.doc.Periods.Len() {
			c.heldInAll(ref, v, v.doc.Periods.At(i).Start)
		}
	}
	for _, r := range c.fleet.regions {
		d := c.members[r.name]
		if d == nil || d.Incarnation != r.db.Incarnation() {
			continue // what its database holds, nobody can speak for any more
		}
		h := allocation.Holder{Region: r.name, Incarnation: d.Incarnation}
		for _, s := range r.db.Shares() {
			ref := allocation.ShareRef{Budget: s.Budget, Term: s.Term()}
			v := c.ledgers[ref]
			// What it had closed it need not state, also if its database lost that since.
			if v == nil || v.closed || s.Periods.End() <= max(r.db.ClosedBefore(), c.closed[r.name]) || !before.Frozen(ref.Term) {
				continue
			}
			for _, e := range s.Entries {
				i, _ := v.doc.Periods.Index(e.From)
				a, _ := allocationOf(v.doc.EntryAt(i), h, e.Class)
				c.must(!v.restored && a.Granted >= e.Granted, 2, "all is stated, and %s was granted %d of %s, period %s, of which its ledger knows %d",
					r.name, e.Granted, s.Budget, e.From, a.Granted)
			}
		}
	}
	c.noteOutlived()
	for _, v := range c.ledgers {
		if !c.overSomewhere(v.doc.Periods.End()) {
			v.stated, v.lost = append(v.stated, v.lost...), nil
		}
	}
}

// overSomewhere says whether some owner has closed all periods of a term: it need not state the term any more, and settles what
// it has reserved in there by what it was granted in whatever history that was.
func (c *checks) overSomewhere(end allocation.Instant) bool {
	return slices.ContainsFunc(c.fleet.regions, func(r *region) bool { return end <= r.db.ClosedBefore() })
}

// heldInAll judges that all owners together hold no more of a period than its limit ever was, whatever the ledger says.
func (c *checks) heldInAll(ref allocation.ShareRef, v *ledgerView, period allocation.Instant) {
	if v.doc.Template {
		return // what is spent of each instance is judged where it is spent
	}
	k := allocation.UsageKey{Budget: ref.Budget, Period: period, Class: allocation.General}
	held := int64(0)
	for _, r := range c.fleet.regions {
		if u, there := r.db.Row(ref, k); there {
			held += u.Granted - u.Returned
		}
	}
	c.must(held <= v.highest, 2, "%s, period %s: the owners hold %d together, and its limit was never above %d", ref.Budget, period, held, v.highest)
}

// ownShare is a share as one incarnation stores it.
type ownShare struct {
	incarnation string
	allocation.ShareRef
}

// forgotten notes what a commit that is lost stored of shares: its owner may have stated it before its database went back.
func (c *checks) forgotten(x *ownertwin.Commit) {
	for _, s := range x.Shares {
		at := ownShare{x.Incarnation, allocation.ShareRef{Budget: s.Budget, Term: s.Term()}}
		c.stored[at] = append(c.stored[at], s)
	}
}

// stated judges what a region is counted to hold while all is frozen: no more than its owner was granted. What it stated a
// moment before its database went back may be counted after, and still is out: so what that lost counts, of that incarnation.
func (c *checks) stated(ref allocation.ShareRef, period allocation.Instant, a allocation.Allocation) {
	db := c.databaseOf(a.Region)
	if db == nil || db.Incarnation() != a.Incarnation {
		c.fail(3, "%s, period %s: %d are counted as stated by incarnation %s of %s, which is gone", ref.Budget, period, a.Granted, a.Incarnation, a.Region)
		return
	}
	s, _ := db.Share(ref)
	e, _ := s.EntryFor(period, a.Class)
	granted := e.Granted
	for _, s := range c.stored[ownShare{a.Incarnation, ref}] {
		e, _ = s.EntryFor(period, a.Class)
		granted = max(granted, e.Granted)
	}
	c.must(a.Granted <= granted, 4, "%s, period %s: %d are counted as granted to %s, whose owner has stored %d", ref.Budget, period, a.Granted, a.Region, granted)
}

// restated says whether more may be out of a ledger than its limit allows: it only takes in what was out already.
func (c *checks) restated(v *ledgerView, old, next allocation.Ledger) bool {
	return c.standing.Frozen(next.Periods.Start()) || next.History != old.History && len(c.standing.Lost) > 0
}

// isLost says whether nobody can state what an incarnation holds.
func (c *checks) isLost(h allocation.Holder) bool {
	return slices.ContainsFunc(c.standing.Lost, func(l allocation.LostHolder) bool { return l.Holder == h })
}

// gone says whether an incarnation was replaced, or etcd never heard of it: what it held stays out.
func (c *checks) gone(h allocation.Holder) bool {
	d := c.members[h.Region]
	return c.isLost(h) || d != nil && slices.Contains(d.Former, h.Incarnation)
}
