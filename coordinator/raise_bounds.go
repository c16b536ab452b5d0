package coordinator

import (
	"bytes"
	"fmt"

	"tranche/allocation"
)

// outAbove is the most permits that are out of one of the opened periods, after a change, where that is more than the limit: a
// raise that does not reach so far grants nothing, and no bound may be said that is lower. 0: nowhere.
func (s *Service) outAbove(plan budgetPlan) (most int64) {
	now := s.instant()
	for _, w := range plan.ledgers {
		l := w.after
		running := runningIndex(l, now)
		for i, e := range l.Entries {
			if over := l.Overcommitted(e.From); over > 0 && (i+1 == len(l.Entries) || l.Entries[i+1].From > running) {
				most = max(most, e.Limit+over)
			}
		}
	}
	return most
}

// outAboveNotes says so.
func outAboveNotes(out, limit int64) []string {
	if out <= limit {
		return nil
	}
	return []string{fmt.Sprintf("%d are out already, more than %d: all of them may be spent of the period in which they are, and nothing more is granted of it until they are returned", out, limit)}
}

// keepCompensation lets a compensation stand through a change of its budget that keeps its limit and its split, such as one of
// what was read: the raise would stay for good else, and nobody would have said so. Any other change ends it, and is told so.
func (s *Service) keepCompensation(plan *budgetPlan, cur *doc[BudgetDocument]) (reads, puts []Item) {
	d := s.state.activeCompensation(plan.next.Budget.Name)
	if d == nil || cur == nil || plan.next.Deleted || d.value.Version != cur.value.Version {
		return nil, nil
	}
	c, b := d.value, plan.next.Budget
	if b.LimitOrZero() != c.After.Limit || !sameSplit(b.Allocation, c.After.Allocation) {
		plan.answer.Warnings = append(plan.answer.Warnings, fmt.Sprintf("it ends the compensation of %d for region %s (limit %d, and %d before it): nothing is put back, and the limit and the split stay as this change has them", c.Units, c.Region, c.After.Limit, c.Before.Limit))
		return nil, nil
	}
	plan.answer.Warnings = append(plan.answer.Warnings, fmt.Sprintf("the compensation of %d for region %s stands: when it ends, the limit is %d again, with the split that was before; to end it: `tranche budgets compensate %s --cancel`", c.Units, c.Region, c.Before.Limit, c.Budget))
	c.Version = plan.next.Version
	return []Item{d.item}, []Item{put(d.item.Key, c)}
}

// sameSplit says whether two policies are one, be it written out or not.
func sameSplit(a, b allocation.Policy) bool {
	full := func(p allocation.Policy) []byte {
		return encode(allocation.Budget{Allocation: p}.WithDefaults().Allocation)
	}
	return bytes.Equal(full(a), full(b))
}

// checkOverrideWindow refuses another window under an override that would count in its periods: whoever approved the override
// was told in how many periods it counts, and how much it lets be spent in all.
func checkOverrideWindow(b allocation.Budget, cur *doc[BudgetDocument]) error {
	if b.Override == nil || cur == nil || b.Window.Equal(cur.value.Budget.Window) || cur.value.OpenedThrough >= b.Override.Until {
		return nil
	}
	return refused("end it first: `tranche override end "+b.Override.ID+" --reason TEXT --by NAME`",
		"override %s stands until %s, and another window would count from %s: it would raise other periods than was approved", b.Override.ID, b.Override.Until, cur.value.OpenedThrough)
}

// endsMoves names a raise that stands now: its end changes the budget, and so undoes a move.
func (s *Service) endsMoves(d Rebalance) []string {
	if b := s.state.budgets[d.Budget]; b != nil && b.value.Budget.Override != nil && b.value.Budget.Override.Until < d.Until {
		return []string{fmt.Sprintf("override %s ends at %s, and that undoes it: move again then", b.value.Budget.Override.ID, b.value.Budget.Override.Until)}
	}
	if c := s.state.activeCompensation(d.Budget); c != nil {
		return []string{fmt.Sprintf("the compensation for region %s ends when that is back, at the latest at %s, and that undoes it: move again then", c.value.Region, c.value.Until)}
	}
	return nil
}
