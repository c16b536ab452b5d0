package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// actsView is what is known of acts on what is stranded. None of them moves a permit.
type actsView struct {
	writeOffs     map[string]coordinator.WriteOff
	compensations map[string]coordinator.Compensation
	through       map[writtenOff]allocation.Instant // the end of what was ever written off: etcd may lose it, and it was told to callers
	most          map[writtenOff]int64              // that was ever held of one period
}

// writtenOff is what one incarnation held of one budget.
type writtenOff struct {
	budget string
	allocation.Holder
}

// Where etcd keeps them; see coordinator/stranded_docs.go.
const (
	writeOffsAt     = coordinator.Root + "writeoffs/"
	compensationsAt = coordinator.Root + "compensations/"
)

// actsAgain reads what etcd has now: at the beginning nothing, and what there was where it was put back.
func (c *checks) actsAgain() {
	through, most := c.acts.through, c.acts.most
	if through == nil {
		through, most = map[writtenOff]allocation.Instant{}, map[writtenOff]int64{}
	}
	c.acts = actsView{map[string]coordinator.WriteOff{}, map[string]coordinator.Compensation{}, through, most}
	for _, item := range c.fleet.etcd.Items(writeOffsAt) {
		w := read[coordinator.WriteOff](c, coordinator.Event{Item: item})
		c.acts.writeOffs[w.ID] = w
	}
	for _, item := range c.fleet.etcd.Items(compensationsAt) {
		d := read[coordinator.Compensation](c, coordinator.Event{Item: item})
		c.acts.compensations[d.ID] = d
	}
}

// judgeActs judges the acts of one revision, before the rest of it is entered.
func (c *checks) judgeActs(events []coordinator.Event) {
	for _, e := range events {
		switch {
		case e.Deleted:
			delete(c.acts.writeOffs, strings.TrimPrefix(e.Key, writeOffsAt))
			delete(c.acts.compensations, strings.TrimPrefix(e.Key, compensationsAt))
		case strings.HasPrefix(e.Key, writeOffsAt):
			w := read[coordinator.WriteOff](c, e)
			if _, known := c.acts.writeOffs[w.ID]; !known {
				// It says what a replica saw, which may be a moment old, and rests on no ledger.
				most := c.acts.most[writtenOff{w.Budget, allocation.Holder{Region: w.Region, Incarnation: w.Incarnation}}]
				c.must(c.isTemplate(w.Budget) || w.Now.Stranded <= most, 1, "%d of %s in %s are written off, and it never held more than %d", w.Now.Stranded, w.Budget, w.Region, most)
			}
			c.acts.writeOffs[w.ID] = w
			at := writtenOff{w.Budget, allocation.Holder{Region: w.Region, Incarnation: w.Incarnation}}
			c.acts.through[at] = max(c.acts.through[at], w.Through)
		case strings.HasPrefix(e.Key, compensationsAt):
			d := read[coordinator.Compensation](c, e)
			c.judgeCompensation(d, events)
			c.acts.compensations[d.ID] = d
		}
	}
}

// noteHeld notes what a ledger says to be held.
func (c *checks) noteHeld(l allocation.Ledger) {
	for _, e := range l.Entries {
		held := map[allocation.Holder]int64{}
		for _, a := range e.Allocations {
			held[a.Holder] += a.Held()
		}
		for h, n := range held {
			at := writtenOff{l.Budget, h}
			c.acts.most[at] = max(c.acts.most[at], n)
		}
	}
}

// mostHeld is the most that a holder holds of any period of a budget's open terms, before a revision or after it.
func (c *checks) mostHeld(budget string, h allocation.Holder, events []coordinator.Event) (most int64) {
	look := func(l allocation.Ledger) {
		for _, e := range l.Entries {
			held := int64(0)
			for _, a := range e.Allocations {
				if a.Holder == h {
					held += a.Held()
				}
			}
			most = max(most, held)
		}
	}
	for ref, v := range c.ledgers {
		if ref.Budget == budget && !v.closed && !v.restored {
			look(v.doc)
		}
	}
	for _, e := range events {
		if e.Deleted || !strings.HasPrefix(e.Key, coordinator.Root+"ledgers/") {
			continue
		}
		if l := read[allocation.Ledger](c, e); l.Budget == budget {
			look(l)
		}
	}
	return most
}

func (c *checks) isTemplate(budget string) bool {
	v := c.budgets[budget]
	return v != nil && v.doc.Budget.IsTemplate()
}

// judgeCompensation judges that a raise is of no more than is stranded, and that its end puts the limit back, unless somebody
// changed the budget since (invariant 2).
func (c *checks) judgeCompensation(d coordinator.Compensation, events []coordinator.Event) {
	before, known := c.acts.compensations[d.ID]
	v := c.budgets[d.Budget]
	if v == nil || known && before.State != coordinator.CompensationActive {
		return
	}
	next := v.doc
	for _, e := range events {
		if !e.Deleted && strings.HasPrefix(e.Key, coordinator.Root+"budgets/") {
			if b := read[coordinator.BudgetDocument](c, e); b.Budget.Name == d.Budget {
				next = b
			}
		}
	}
	limit := next.Budget.LimitOrZero()
	switch {
	case !known:
		c.must(next.Version == d.Version && limit == d.After.Limit && v.doc.Budget.LimitOrZero()+d.Units == limit, 2,
			"%s is raised by %d for what is stranded in %s, from %d to %d", d.Budget, d.Units, d.Region, v.doc.Budget.LimitOrZero(), limit)
		most := c.mostHeld(d.Budget, allocation.Holder{Region: d.Region, Incarnation: d.Incarnation}, events)
		c.must(d.Units <= most, 2, "%s is raised by %d for what is stranded in %s, which held %d at most", d.Budget, d.Units, d.Region, most)
	case d.State == coordinator.CompensationCancelled:
		c.must(v.doc.Version == d.Version && next.Version > d.Version && limit == d.Before.Limit, 2,
			"the raise of %s for what is stranded in %s is cancelled (%s), and the limit is %d: it was %d before", d.Budget, d.Region, d.Why, limit, d.Before.Limit)
	case d.State == coordinator.CompensationSuperseded:
		c.must(v.doc.Version != d.Version || v.doc.Deleted, 2, "the raise of %s for what is stranded in %s ends without a change, and nobody changed the budget", d.Budget, d.Region)
	}
}

// writtenOffOf is the most that counts as spent of a period although it was not: what was granted to those of whom it is
// written off.
func (c *checks) writtenOffOf(k allocation.UsageKey) (sum int64) {
	for at, through := range c.acts.through {
		if at.budget != k.Budget || k.Period >= through {
			continue
		}
		for ref, l := range c.ledgers { // its owner may have no row of the period, and so no term
			if ref.Budget != k.Budget || k.Period < ref.Term || k.Period >= l.doc.Periods.End() {
				continue
			}
			sum += l.granted(at.Holder, k.Period, allocation.General) + l.granted(at.Holder, k.Period, allocation.Protected)
		}
	}
	return sum
}

// returnedOff judges a return of an incarnation that was replaced: what it held is written off, and nobody can give it back
// (invariant 5). One that left has its database still, and what it stated a moment before may be counted a moment after.
func (c *checks) returnedOff(ref allocation.ShareRef, from int, old, next allocation.Ledger, a allocation.Allocation) {
	d := c.members[a.Region]
	if d == nil || next.History != old.History || !slices.Contains(d.Former, a.Incarnation) || c.departed[a.Incarnation] {
		return
	}
	period := next.Periods.At(from)
	for _, w := range c.acts.writeOffs {
		if w.Budget == ref.Budget && w.Region == a.Region && w.Incarnation == a.Incarnation && period.Start < w.Through {
			c.fail(5, "%s, period %s: %d are counted as returned by incarnation %s of %s, which was replaced, and what it held is written off", ref.Budget, period.Start, a.Returned, a.Incarnation, a.Region)
			return
		}
	}
}

// standing are the raises that are to be over: their region calls again, or their term has ended.
func (f *fleet) standing() (list []string) {
	now := allocation.At(f.w.Now())
	for _, d := range sortedBy(f.check.acts.compensations) {
		if m := f.check.members[d.Region]; d.State == coordinator.CompensationActive && (d.Until <= now-5 || m != nil && m.Confirmed && m.Incarnation == d.Incarnation) {
			list = append(list, fmt.Sprintf("%s is raised by %d for what was stranded in %s, which calls again, or until %s", d.Budget, d.Units, d.Region, d.Until))
		}
	}
	return list
}

// missingOfActs is what has yet to be noted of acts.
func (f *fleet) missingOfActs(say func(string, ...any)) {
	for _, w := range sortedBy(f.check.acts.writeOffs) {
		if m := f.check.members[w.Region]; m != nil && m.Confirmed && m.Incarnation == w.Incarnation && !w.Recorded {
			say("the write-off of %s in %s does not say that it came back", w.Budget, w.Region)
		}
	}
	for _, s := range f.standing() {
		say("%s", s)
	}
}

func sortedBy[K cmp.Ordered, V any](m map[K]V) (list []V) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[k])
	}
	return list
}
