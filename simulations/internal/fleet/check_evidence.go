package fleet

import (
	"slices"

	"tranche/allocation"
)

// evident judges that a decision says what it rests on (invariant 12): whom it is about, where and when it was made, and
// by which version, generation and revision; and that all of it is so.
func (c *checks) evident(n *node, r allocation.Request, d allocation.Decision) {
	cl := c.claims[claimKey{n.region.name, r.Key}]
	if cl == nil {
		return
	}
	e := d.Evidence
	c.revisions = max(c.revisions, c.fleet.etcd.Revision())
	c.must(d.Reason != "" && allocation.AnswerTo(d.Reason).Reason == d.Reason && d.Action != "" && d.At > 0 && d.Key == r.Key && d.Region == n.region.name, 12,
		"%s decides %s without saying what, when or where: %+v", n.process.Name(), r.Key.ID, d)
	replay := d.Replayed || d.Admitted() && r.Op != allocation.Spend && r.Op != allocation.Reserve && r.Op != allocation.Check // it shows the first evidence
	c.must(e.Correlation == r.Correlation || replay && cl.sent[e.Correlation], 12, "%s decides %s for the caller's %s, and it was sent as %s",
		n.process.Name(), r.Key.ID, e.Correlation, r.Correlation)
	c.must(n.region.node(e.Node) && (replay || e.Node == n.process.Name()), 12, "%s decides %s as %q", n.process.Name(), r.Key.ID, e.Node)
	if e.Incarnation == "" && len(d.Budgets) == 0 {
		return // no owner was asked
	}
	// An owner that starts over has heard of no ledger yet, and refuses by that; it releases and settles what was before.
	charges := d.Admitted() && (r.Op == allocation.Spend || r.Op == allocation.Reserve)
	heard := e.LedgerRevision > 0 && e.ObservedAt > 0 || !charges && (d.Admitted() || !slices.ContainsFunc(d.Budgets, func(b allocation.BudgetDecision) bool { return b.Generation > 0 }))
	c.must(e.Incarnation != "" && (e.Config > 0 || len(d.Budgets) == 0) && heard && e.LedgerRevision <= c.revisions, 12,
		"%s decides %s on the ground of %+v, and etcd was never above revision %d", n.process.Name(), r.Key.ID, e, c.revisions)
	for _, b := range d.Budgets {
		c.evidentOf(cl, d, b)
	}
	if b := firstRefusing(d); b != nil {
		name := allocation.Line{UsageKey: b.UsageKey}.Key()
		c.must(d.Reason == b.Reason && d.Blames == name, 12, "%s refuses %s by %s for %q, and %s says %s", n.process.Name(), r.Key.ID, d.Reason, d.Blames, name, b.Reason)
	}
}

// firstRefusing is the budget that a refusal is to blame: the first by name, and what is protected only after all counters.
// Nil: it is no refusal by a budget's counters.
func firstRefusing(d allocation.Decision) (first *allocation.BudgetDecision) {
	for i := range d.Budgets {
		b := &d.Budgets[i]
		switch {
		case d.Admitted(), b.Reason == allocation.Allow, b.Enforcement != "":
		case b.Reason != allocation.OnlyProtectedLeft:
			return b
		case first == nil:
			first = b
		}
	}
	return first
}

// evidentOf judges one budget's part.
func (c *checks) evidentOf(cl *claim, d allocation.Decision, b allocation.BudgetDecision) {
	v := c.budgets[b.Budget]
	if v == nil {
		c.fail(12, "%s is decided by the budget %s, which never was", d.Key.ID, b.Budget)
		return
	}
	limit, known := v.limitIn(b.Version, b.Period, b.Limit)
	c.must(known && b.Limit == limit && b.Unit == v.unit && b.Reason != "", 12, "%s is decided by version %d of %s with limit %d of %s, and it was %d of %s",
		d.Key.ID, b.Version, b.Budget, b.Limit, b.Unit, limit, v.unit)
	c.must(b.Requested == cl.costs[b.Unit], 12, "%s asks for %d %s, and it is decided for %d", d.Key.ID, cl.costs[b.Unit], b.Unit, b.Requested)
	if b.Reason != allocation.Allow && !byCounter(b.Reason) {
		return
	}
	if b.Reason != allocation.Allow && b.Generation == 0 && b.Share == 0 {
		return // no row was needed to know that, or the region holds nothing that one could be made of
	}
	l := c.ledgers[allocation.ShareRef{Budget: b.Budget, Term: c.terms[b.UsageKey]}]
	if l == nil {
		return // its row was never made: nothing was ever spent of it
	}
	i, there := l.doc.Periods.Index(b.Period)
	c.must(there && l.doc.Periods.At(i).End == b.Until && l.numbers[b.Generation], 12, "%s is decided in the period %s–%s of %s under generation %d, and its ledger never had that",
		d.Key.ID, b.Period, b.Until, b.Budget, b.Generation)
}

// node says whether a region has a node of that name.
func (r *region) node(name string) bool {
	for _, n := range r.nodes {
		if n.process.Name() == name {
			return true
		}
	}
	return false
}
