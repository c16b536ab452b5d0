package allocation

import (
	"fmt"
	"slices"
)

// What the percentage of a LadderStep is a part of.
const (
	OfBudget = "budget" // what is left of the whole budget is known
	OfShare  = "share"  // it is not: of this region's share in its place
)

// LadderStep says what a budget's ladder made of a request, and on what that rests.
type LadderStep struct {
	Budget     string `json:"budget"` // with its instance
	Action     string `json:"action"`
	Route      string `json:"route,omitempty"` // for degraded
	Percent    int64  `json:"used_percent"`    // rounded down
	Of         string `json:"of"`
	ObservedAt int64  `json:"observed_at,omitempty"` // when the rest of the budget was known, Unix microseconds by the owner's clock; 0: of the share
}

// used is the part of a budget that is spent or reserved, in percent rounded down, before this request: of the whole budget
// where what is elsewhere is known for this period, else of this region's share. What a region holds that cannot be asked is
// not used, and what is on its way between two of them counts as used until it arrives.
func (l *Locked) used(u *Usage, line Line, limit int64) (percent int64, of string) {
	e, known := l.Elsewhere[line.UsageKey.Budget]
	whole, left, of := u.Granted-u.Returned, u.Granted-u.Returned-u.Spent-u.Reserved, OfShare
	if known && !u.Template && e.Period == line.Period && e.Limit == limit {
		whole, of = limit, OfBudget
		left = saturated(max(0, left), saturated(e.Unallocated, saturated(e.Spendable, e.Stranded)))
	}
	if whole <= 0 {
		return ladderFull, of
	}
	return proportion(ladderFull, max(0, whole-max(0, left)), whole), of
}

// step is what a budget's ladder says of a request that would fit; ActionPreferred where it has none.
func (l *Locked) step(p Plan, line Line) (LadderStep, Reason) {
	step := LadderStep{Budget: line.Key(), Action: ActionPreferred}
	u := l.Usage[line.UsageKey]
	if line.Budget.Ladder == nil || u == nil {
		return step, Allow
	}
	rungs := line.Budget.Ladder.rungs(p.priority())
	step.Percent, step.Of = l.used(u, line, l.Catalogue.limit(line.UsageKey))
	reason, action := rungs.rung(step.Percent)
	if step.Action = action; step.Of == OfBudget {
		step.ObservedAt = l.ObservedAt
	}
	if action == ActionDegraded {
		step.Route = rungs.Route
	}
	return step, reason
}

// climb lays the ladders of the budgets that are enforced over a request that all of them would admit: the highest rung decides, of
// equal ones the first budget's by name. A budget in shadow only notes what it would refuse; one that is metered says nothing.
func (l *Locked) climb(p Plan, d *Decision) {
	if !slices.ContainsFunc(p.Lines, func(line Line) bool { return line.Budget.Ladder != nil }) {
		return
	}
	height := map[string]int{ActionPreferred: 0, ActionDegraded: 1, ActionDeferred: 2, ActionRefused: 3}
	var highest *LadderStep
	for i, line := range p.Lines {
		b := &d.Budgets[i]
		if b.Reason != Allow || b.Enforcement == Meter {
			continue
		}
		step, reason := l.step(p, line)
		if b.Enforcement == Shadow {
			if b.Reason = reason; reason != Allow && d.Would == "" {
				d.Would, d.WouldBlame = reason, line.Key()
			}
			continue
		}
		if step.Action != ActionPreferred && (highest == nil || height[step.Action] > height[highest.Action]) {
			highest = &step
		}
		if reason == Allow {
			continue
		}
		if b.Reason = reason; d.Reason == Allow || height[step.Action] > height[d.Action] {
			rungs := line.Budget.Ladder.rungs(p.priority())
			d.Reason, d.Action, d.Blames, d.Retry = reason, step.Action, line.Key(), rungs.wait(resets(line.Until, l.now()))
			of := line.Key()
			if step.Of == OfShare {
				of = "this region's share of " + of
			}
			d.Detail = fmt.Sprintf("%d percent of %s are used, and its ladder turns %s requests away", step.Percent, of, p.priority())
		}
	}
	if highest == nil {
		return
	}
	if d.Ladder = highest; highest.Action == ActionDegraded {
		d.Action, d.Route = ActionDegraded, highest.Route
	}
}

// wait is when a request that the ladder turned away is to come back, in seconds: never past the period's end.
func (r *Rungs) wait(resets int64) int64 {
	wait := int64(r.RetryAfter)
	if wait == 0 {
		wait = int64(defaultLadderRetry)
	}
	if resets > 0 {
		wait = min(wait, resets)
	}
	return max(1, wait)
}
