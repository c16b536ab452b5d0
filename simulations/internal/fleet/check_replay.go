package fleet

import (
	"slices"
	"time"

	"tranche/allocation"
)

// judgeReplay judges an answer to an admission by what was said of its id before: what was given back is no admission, and
// what is admitted is not refused because a counter is used up since (invariant 6).
func (c *checks) judgeReplay(cl *claim, a *asking, truth *admissionView) {
	if !c.fleet.retained(cl) {
		return
	}
	released := truth != nil && (truth.now.State == allocation.StateReleased || truth.now.State == allocation.StateLapsedReleased)
	told := cl.gone > 0 && a.from > cl.gone && cl.goneElsewhere == a.elsewhere
	switch d := a.decision; {
	case d.Reason == allocation.AdmissionIDReleased:
		c.released(cl, a.from, a.elsewhere)
	case d.Admitted():
		// A settle that comes late ends a reservation for good after it was released: then it is an admission again.
		c.must(!told || !released && d.Replayed, 6, "%s admits %s (replayed: %v), and had said at %s that it was given back",
			cl.region.name, cl.key.ID, d.Replayed, cl.gone)
	case byCounter(d.Reason) && truth != nil && len(truth.now.Lines) > 0 && !c.mayLack(cl.region.name, truth.first):
		c.must(!c.after(cl, a, truth), 6, "%s refuses %s by %s, and has admitted it before", cl.region.name, cl.key.ID, d.Reason)
	}
}

// released notes that somebody was told so. What was asked before history was lost says nothing of what came after.
func (c *checks) released(cl *claim, from time.Duration, elsewhere bool) {
	if cl.gone == 0 && from > c.order.since[cl.region.name] {
		cl.gone, cl.goneElsewhere = c.fleet.w.Elapsed(), elsewhere
	}
}

// after says whether a refusal was certainly decided after the admission: it was asked for when somebody already knew of
// the admission; or the two were decided under the lock of one usage row, and the refusal by a later clock.
func (c *checks) after(cl *claim, a *asking, truth *admissionView) bool {
	if cl.first != nil && cl.firstOf == truth.first && a.from > cl.firstAt {
		return true
	}
	sameRow := slices.ContainsFunc(truth.now.Lines, func(line allocation.AdmissionLine) bool {
		return slices.ContainsFunc(a.decision.Budgets, func(b allocation.BudgetDecision) bool { return b.UsageKey == line.UsageKey })
	})
	return sameRow && c.fleet.plan.faults.clocks.databasesRight() && a.decision.At > truth.now.At
}

// byCounter says whether a reason is that a cost does not fit.
func byCounter(r allocation.Reason) bool {
	switch r {
	case allocation.RegionShareSpent, allocation.CeilingReached, allocation.CapacityStranded, allocation.CostExceedsLimit:
		return true
	}
	return false
}
