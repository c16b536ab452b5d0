package fleet

import (
	"slices"
	"time"

	"tranche/allocation"
)

// told judges one answer to an admission, as its client hears it.
func (c *checks) told(cl *claim, r allocation.Request, a *asking) {
	d := a.decision
	if !a.elsewhere {
		c.order.told(cl.region, a.from, d)
		c.order.state(cl, a.from, d)
	}
	if r.Op == allocation.Check {
		return
	}
	key := claimKey{cl.region.name, cl.key}
	truth := c.saidOf(key, d)
	c.judgeReplay(cl, a, truth)
	if !d.Admitted() {
		if d.Reason == allocation.AdmissionIDReleased {
			c.must(truth != nil, 6, "%s: %s is said to be released, and was never known", cl.region.name, cl.key.ID)
		}
		return
	}
	if truth == nil {
		c.fail(11, "%s admits %s, and no database has committed it", cl.region.name, cl.key.ID)
		return
	}
	c.must(!truth.first.Lost && truth.lost == 0 || a.from <= truth.lost || !c.mayLack(key.region, truth.first), 11, "%s admits %s, and its commit was lost at %s", cl.region.name, cl.key.ID, truth.lost)
	c.must(truth.first.Lost || c.database(cl.region, truth.first).Replicated(truth.first), 11, "%s admits %s, and its commit is not on the synchronous replica", cl.region.name, cl.key.ID)
	c.acknowledge(truth)
	if !d.Replayed {
		c.must(!slices.Contains(cl.fresh, truth.first), 6, "%s admits %s anew for the second time", cl.region.name, cl.key.ID)
		cl.fresh = append(cl.fresh, truth.first)
	}
	c.must(d.At == truth.now.At && len(d.Budgets) == len(truth.now.Lines), 6, "%s answers %s with an admission of %d in %d budgets, and it is of %d in %d", cl.region.name,
		cl.key.ID, d.At, len(d.Budgets), truth.now.At, len(truth.now.Lines))
	if cl.first == nil || cl.firstOf != truth.first && c.admissionOf(key).first == truth.first {
		cl.first, cl.firstOf, cl.firstAt = &d, truth.first, a.to // the first one ever, or that of an id that was lost
		return
	}
	if !cl.region.fleet.retained(cl) || cl.firstOf != truth.first {
		return
	}
	same := d.At == cl.first.At && len(d.Budgets) == len(cl.first.Budgets)
	for i := range d.Budgets {
		same = same && d.Budgets[i].UsageKey == cl.first.Budgets[i].UsageKey && d.Budgets[i].Requested == cl.first.Budgets[i].Requested
	}
	c.must(same, 6, "%s answers %s in another way than at first: %+v, then %+v", cl.region.name, cl.key.ID, *cl.first, d)
}

// toldOf judges an answer to a settle, a release or an extension.
func (c *checks) toldOf(cl *claim, r allocation.Request, from time.Duration, d allocation.Decision, elsewhere bool) {
	if !elsewhere {
		c.order.state(cl, from, d)
	}
	truth := c.admissionOf(claimKey{cl.region.name, cl.key})
	if !d.Admitted() {
		if d.Reason == allocation.AdmissionIDUnknown && cl.first != nil && c.fleet.retained(cl) && !(truth != nil && c.mayLack(cl.region.name, truth.first)) {
			c.fail(6, "%s does not know %s any more, which it admitted", cl.region.name, cl.key.ID)
		}
		return
	}
	if d.State == allocation.StateReleased || d.State == allocation.StateLapsedReleased {
		c.released(cl, from, elsewhere)
	}
	c.must(truth != nil, 11, "%s: %s of %s is answered with %s, and it is not known", cl.region.name, r.Op, cl.key.ID, d.State)
	if r.Op != allocation.Extend {
		c.must(d.State != allocation.StateReserved, 11, "%s: %s of %s is answered, and it is reserved still", cl.region.name, r.Op, cl.key.ID)
	}
}

// ghosts judges, at the end, that what was refused was not charged (invariant 7): a claim that is charged, and every node
// that ever decided it, also a copy of it that came once more, came to a refusal.
func (c *checks) ghosts() {
	for key, cl := range c.claims {
		if cl.underway > 0 || cl.charged || cl.op == allocation.Check {
			continue
		}
		v := c.admissionOf(key)
		// A commit that nobody was told of, and that a failover lost with all that came of it, charges nobody: the refusal is of the
		// database that counts.
		gone := v != nil && v.first.Lost && len(v.counts) == 0
		c.must(v == nil || len(v.now.Lines) == 0 || gone, 7, "%s: every decision about %s was a refusal, and it is charged", key.region, key.key.ID)
	}
}
