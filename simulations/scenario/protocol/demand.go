package protocol

import (
	"slices"

	"tranche/allocation"
)

// allot answers demand for the budgets of policy demand, after a call of a region was counted. The model's owners state no
// rates: a region's rate is what it used in the period so far, and a region that names a budget as low asks for a chunk.
func (c *coordinator) allot(call allocation.SyncCall) {
	now := c.w.instant()
	for _, b := range c.budgets {
		if b.Budget.Allocation.Policy != allocation.PolicyDemand {
			continue
		}
		for _, l := range b.ledgers {
			i, is := l.Periods.Find(now)
			if !is || l.Version != b.Version || l.Members != c.members.Number {
				continue
			}
			next, changed, err := l.Allot(i, c.seekers(*l, i, call, now), c.generation(*l))
			if err == nil && changed { // a term that lists too many periods that differ goes on with its bases
				c.replace(l, next)
			}
		}
	}
}

// seekers are the regions as the policy sees them.
func (c *coordinator) seekers(l allocation.Ledger, i int, call allocation.SyncCall, now allocation.Instant) []allocation.Seeker {
	period := l.Periods.At(i)
	passed := max(1, int64(now-period.Start))
	var out []allocation.Seeker
	for _, h := range c.members.Holders {
		s := allocation.Seeker{Holder: h, Askable: c.inContact(h)}
		for _, u := range c.stated[statedKey{h, allocation.ShareRef{Budget: l.Budget, Term: l.Periods.Start()}}].Usage {
			if u.Period == period.Start && u.Class == allocation.General {
				s.Used = u.Spent + u.Reserved
			}
		}
		s.Rate = min(s.Used, allocation.MaxUnits/60) * 60 / passed
		if h.Region == call.Region && slices.Contains(call.Low, l.Budget) {
			s.Unmet = allocation.LeastChunk(l.EntryAt(i).Limit)
		}
		out = append(out, s)
	}
	return out
}
