package fleet

import (
	"math/rand/v2"

	"tranche/allocation"
)

// tenantWatched is the tenant of budgets that are not enforced, or for some requests only, beside one that is.
const tenantWatched = "watched"

// modeKey is one admission id at one budget.
type modeKey struct {
	claimKey
	budget string
}

// drawWatched adds, in some runs, budgets that only watch, and lets some budgets begin with a part of their first period
// spent elsewhere.
func (p *plan) drawWatched(r *rand.Rand) {
	for i := range p.budgets {
		b := &p.budgets[i]
		if limit := *b.Limit; r.IntN(6) == 0 && !b.IsTemplate() && !b.steady && limit > 1 {
			b.OpeningSpent = 1 + r.Int64N(limit/2)
		}
	}
	if r.IntN(3) == 0 {
		p.addWatched(r)
	}
}

func (p *plan) addWatched(r *rand.Rand) {
	add := func(name, mode string, limit int64, f *allocation.EnforceFor) {
		p.budgets = append(p.budgets, budgetPlan{Budget: allocation.Budget{
			Name: "watched/" + name, Unit: "requests", Limit: &limit, Match: map[string]string{"tenant": tenantWatched}, Allocation: p.even(),
			Window:             allocation.Window{Every: allocation.Duration(oneOf(r, 10, 15, 30))},
			LongestReservation: allocation.Duration(2 + r.IntN(15)), OnLapse: oneOf(r, allocation.OnLapseSpend, allocation.OnLapseRelease), RunsAloneFor: 60,
			Enforcement: mode, EnforceFor: f,
		}})
	}
	add("enforced", "", int64(20+r.IntN(40)), nil)
	add("meter", allocation.Meter, int64(3+r.IntN(15)), nil)
	add("part", allocation.Shadow, int64(3+r.IntN(15)), &allocation.EnforceFor{Percent: oneOf[int64](r, 20, 50, 80)})
	add("shadow", allocation.Shadow, int64(3+r.IntN(15)), nil)
}

// watching is the plan's own word on a budget that is enforced for no request: shadow or meter. It changes never.
func (c *checks) watching(budget string) string {
	for i := range c.fleet.plan.budgets {
		if p := &c.fleet.plan.budgets[i]; p.Name == budget && p.EnforceFor == nil && p.Enforcement != allocation.Enforce {
			return p.Enforcement
		}
	}
	return ""
}

// openingOf is what of a period was spent before its budget was declared.
func (c *checks) openingOf(k allocation.UsageKey) int64 {
	l := c.ledgers[allocation.ShareRef{Budget: k.Budget, Term: c.terms[k]}]
	if l == nil {
		return 0
	}
	i, there := l.doc.Periods.Index(k.Period)
	if !there {
		return 0
	}
	return l.doc.EntryAt(i).OpeningSpent
}

// judgeOpening judges that a ledger counts what was spent before as the operator declared it, in the budget's first term only.
func (c *checks) judgeOpening(l allocation.Ledger, b *budgetView) {
	var declared int64
	for i := range c.fleet.plan.budgets {
		if p := &c.fleet.plan.budgets[i]; p.Name == l.Budget && b.first {
			declared = p.OpeningSpent
			if anew, is := c.fleet.anew[l.Budget]; is && b.doc.Budget.OpeningSpent == anew {
				declared = anew
			}
		}
	}
	b.first = false
	c.must(l.EntryAt(0).OpeningSpent == declared, 1, "the term of %s of %s begins with %d spent before, and %d were declared", l.Periods.Start(), l.Budget, l.EntryAt(0).OpeningSpent, declared)
}

// judgeMadeAnew judges the same of a ledger that etcd lost: what owners state of it says what was spent before.
func (c *checks) judgeMadeAnew(v *ledgerView, next allocation.Ledger, b *budgetView) {
	if !c.standing.Frozen(next.Periods.Start()) {
		c.judgeOpening(next, b) // nobody stated it: it is opened anew
		return
	}
	c.must(next.EntryAt(0).OpeningSpent == v.doc.EntryAt(0).OpeningSpent, 1, "the term of %s of %s is made anew with %d spent before, and it was %d",
		next.Periods.Start(), next.Budget, next.EntryAt(0).OpeningSpent, v.doc.EntryAt(0).OpeningSpent)
}

// judgeWatched judges what a decision says of budgets that are not enforced (invariant 11: what lets traffic through is
// declared, and says so). Such a budget refuses nobody, and it is enforced for an id at every try or at none.
func (c *checks) judgeWatched(n *node, d allocation.Decision) {
	for _, b := range d.Budgets {
		name := allocation.Line{UsageKey: b.UsageKey}.Key()
		mode := c.watching(b.Budget)
		c.must(mode == "" || b.Enforcement == mode, 11, "%s decides %s by %s as %q, and it is declared as %s", n.process.Name(), d.Key.ID, name, b.Enforcement, mode)
		c.must(d.Admitted() || b.Enforcement == "" || d.Blames != name, 11, "%s refuses %s by %s for %s, which is in %s", n.process.Name(), d.Key.ID, d.Reason, name, b.Enforcement)
		k := modeKey{claimKey{n.region.name, d.Key}, b.Budget}
		was, known := c.modes[k]
		c.must(!known || was == b.Enforcement, 11, "%s decides %s by %s as %q, and it was decided as %q before", n.process.Name(), d.Key.ID, name, b.Enforcement, was)
		c.modes[k] = b.Enforcement
	}
	if mode := c.watching(d.Blames); mode != "" {
		c.fail(11, "%s refuses %s by %s for %s, which is in %s", n.process.Name(), d.Key.ID, d.Reason, d.Blames, mode)
	}
}

// judgeAmount judges what a new admission charges of one budget: all that it costs; in shadow all, or nothing of a request
// that would have been refused; of a budget that only counts, what does not fit stands outside.
func (c *checks) judgeAmount(r *region, a *allocation.Admission, line allocation.AdmissionLine, cost int64) {
	charged, mode := line.Held+line.Spent, line.Enforcement
	if planned := c.watching(line.Budget); planned != "" {
		mode = planned
	}
	right := charged == cost && line.Overdraft == 0
	switch mode {
	case allocation.Shadow:
		would := false
		for _, l := range a.Lines {
			would = would || l.Enforcement == allocation.Shadow && l.Would != ""
		}
		right = right && !would || would && charged == 0 && line.Overdraft == 0
	case allocation.Meter:
		right = charged <= cost && (line.Would == "" || charged == 0) && (a.Op == allocation.Reserve || line.Would != "" || charged+line.Overdraft == cost)
	}
	c.must(line.Requested == cost && right, 7, "%s charges %s with %d and %d above to %s %s, which it costs %d, in %q (would refuse by %q)",
		r.name, a.ID, charged, line.Overdraft, line.Budget, line.Instance, cost, mode, line.Would)
}

// chargedBy is what an admission charges to the row of a line, at most.
func chargedBy(line allocation.AdmissionLine) int64 {
	if line.Uncharged() {
		return 0
	}
	return line.Requested
}
