package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tranche/allocation"
)

// A compensation raises a budget's limit while permits are stranded. It gives nothing away: what is stranded stays its
// owner's, and the cap of the running term is, honestly and audited, higher by so much. When the region comes back, or the
// term that was running ends, the limit is what it was. Both changes go the way of any change of a budget.
//
//	           the region calls again or was sealed, the term ends, or an operator says so: limit and weights as before
//	active ──────────────────────────────────────────────────────────────────────────────────────────▶ cancelled
//	   └──── the budget was changed or deleted meanwhile: what that says holds ──▶ superseded

// CompensateRequest asks for a raise. Units 0 is all that is stranded.
type CompensateRequest struct {
	Budget      string `json:"budget"`
	Region      string `json:"region"`
	Incarnation string `json:"incarnation,omitempty"` // needed where several hold permits
	Units       int64  `json:"units,omitempty"`
	Reason      string `json:"reason"`
	By          string `json:"by"`
}

// CompensateAnswer is a compensation, or, with DryRun, what it would be.
type CompensateAnswer struct {
	Compensation
	DryRun  bool             `json:"dry_run,omitempty"`
	Permits map[string]int64 `json:"permits"` // by region, of one period
	Notes   []string         `json:"notes"`
}

// CompensationsList is all that are kept, the latest first.
type CompensationsList struct {
	*Evidence
	Compensations []Compensation `json:"compensations"`
}

func (s *Service) compensate(ctx context.Context, who actor, q CompensateRequest, dry bool) (CompensateAnswer, error) {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return CompensateAnswer{}, err
	}
	who.reason = q.Reason
	var answer CompensateAnswer
	act := s.inTurn
	if dry {
		act = s.act
	}
	err := act(ctx, func() (Change, error) {
		line, err := s.holderOf(q.Budget, q.Region, q.Incarnation)
		if err != nil {
			return Change{}, err
		}
		c, next, err := s.planCompensation(line, q)
		if err != nil {
			return Change{}, err
		}
		cur := s.state.budgets[q.Budget]
		plan, err := s.planBudget(q.Budget, &next, cur)
		if err != nil {
			return Change{}, err
		}
		if h, n := s.withheld(plan); n > 0 {
			return Change{}, refused(limitsKnownNext, "nobody would get anything: incarnation %s of region %s is lost, and %s", h.Incarnation, h.Region, lostLimitWhy)
		}
		plan.act = "budget.compensate"
		c.Version, c.Token = plan.next.Version, who.name
		answer = CompensateAnswer{Compensation: c, DryRun: dry, Permits: s.compensated(plan, line), Notes: append(s.compensateNotes(c, line, plan), s.compensateWarnings(plan)...)}
		if dry {
			answer.ID = ""
			return Change{}, nil
		}
		change, err := s.writePlan(who, plan, cur)
		key := compensationPrefix + c.ID
		change.Reads, change.Puts = append(change.Reads, Item{Key: key}), append(change.Puts, put(key, c))
		return change, err
	})
	return answer, err
}

// planCompensation decides what the budget becomes.
func (s *Service) planCompensation(line StrandedLine, q CompensateRequest) (Compensation, allocation.Budget, error) {
	b := s.state.budgets[q.Budget].value
	units := q.Units
	if units == 0 {
		units = line.Stranded
	}
	none := allocation.Budget{}
	switch other := s.state.activeCompensation(q.Budget); {
	case b.Deleted:
		return Compensation{}, none, notFound("budget", q.Budget)
	case other != nil:
		return Compensation{}, none, refused("cancel it first: `tranche budgets compensate "+q.Budget+" --cancel`",
			"%s is compensated already, by %d for region %s", q.Budget, other.value.Units, other.value.Region)
	case b.Budget.Override != nil:
		return Compensation{}, none, refused("end it first: `tranche override end "+b.Budget.Override.ID+"`", "%s has an override, of %d until %s", q.Budget, b.Budget.Override.Units, b.Budget.Override.Until)
	case line.Template:
		return Compensation{}, none, refused("change its limit, which is per instance", "%s is a template", q.Budget)
	case b.Budget.LimitOrZero() == 0:
		return Compensation{}, none, refused("change the budget itself: `tranche budgets apply`", "the limit of %s is 0: somebody stopped it", q.Budget)
	case units <= 0 || units > line.Stranded:
		return Compensation{}, none, invalid("units", fmt.Sprintf("is %d", q.Units), fmt.Sprintf("use 1 to %d: no more than is stranded in the running period", line.Stranded))
	case b.Budget.LimitOrZero() > allocation.MaxUnits-units:
		return Compensation{}, none, invalid("units", fmt.Sprintf("is %d", units), "use less: the limit would be above the largest that there is")
	}
	running := s.state.runningTerm(q.Budget, s.instant())
	if running == nil {
		return Compensation{}, none, refused("wait until a term is opened", "no term of %s is open", q.Budget)
	}
	limit := b.Budget.LimitOrZero() + units
	given := units - (b.Budget.Kept(limit) - b.Budget.Kept(b.Budget.LimitOrZero()))
	policy, err := b.Budget.Allocation.Compensate(line.Region, given, s.partsNow(b.Budget, running))
	if errors.Is(err, allocation.ErrNotCompensated) {
		return Compensation{}, none, refused("change the budget itself: `tranche budgets apply`", "%s: %s", q.Budget, err.Error())
	}
	next := b.Budget
	next.Limit, next.Allocation = &limit, policy
	c := Compensation{
		Format: documentFormat, ID: fmt.Sprintf("%d-%s", s.now().UnixMilli(), s.random.hex(4)), Budget: q.Budget, Unit: line.Unit,
		Region: line.Region, Incarnation: line.Incarnation, Units: units, Until: running.Periods.End(), State: CompensationActive,
		Before: CompensatedBudget{b.Budget.LimitOrZero(), b.Budget.Allocation}, After: CompensatedBudget{limit, policy},
		Reason: q.Reason, By: q.By, Made: s.now().UTC(),
	}
	return c, next, nil
}

// partsNow is what each region has of a period now: by the policy, and by what was moved by hand. A raise that went by the
// policy alone would undo the move: of what the lost region gave away, it would be granted as much again, and that is stranded.
func (s *Service) partsNow(b allocation.Budget, running *allocation.Ledger) map[string]int64 {
	parts := s.permits(b)
	i, some := movedFrom(*running, s.instant())
	if !some {
		i, _ = running.Periods.Find(s.instant()) // it is the last of its term
	}
	for _, a := range running.EntryAt(i).Allocations {
		if current, ok := s.state.currentOf(a.Region); ok && current == a.Holder {
			parts[a.Region] = max(0, parts[a.Region]+a.Moved)
		}
	}
	return parts
}

// compensateWarnings are those of the change, but that a move is undone: it is part of the raise, and undone when that ends.
func (s *Service) compensateWarnings(plan budgetPlan) []string {
	warnings := slices.Clone(plan.answer.Warnings)
	if moved := s.movedByHand(plan.next.Budget.Name); moved != "" {
		if i := slices.Index(warnings, undoesMoves(moved)); i >= 0 {
			warnings[i] = fmt.Sprintf("what rebalances moved (of each period: %s) stands until it ends, and is undone then: move again, or change the weights", moved)
		}
	}
	return warnings
}

// compensated is what each region gets of a period. Where an incarnation is lost, its region has another one, which gets its
// part as well: so it is what the present ones will hold of the running period, as the ledger will be.
func (s *Service) compensated(plan budgetPlan, line StrandedLine) map[string]int64 {
	if line.Cause != CauseLostHistory {
		return plan.answer.Permits
	}
	for _, w := range plan.ledgers {
		i, running := w.after.Periods.Find(s.instant())
		if w.before == nil || !running {
			continue
		}
		held := map[string]int64{}
		for region := range plan.answer.Permits {
			held[region] = 0
		}
		for _, a := range w.after.EntryAt(i).Allocations {
			if current, ok := s.state.currentOf(a.Region); ok && current == a.Holder {
				held[a.Region] += a.Held()
			}
		}
		return held
	}
	return plan.answer.Permits
}

// compensateNotes are what it lets be spent, and what ends it.
func (s *Service) compensateNotes(c Compensation, line StrandedLine, plan budgetPlan) []string {
	out := s.outAbove(plan)
	most := max(c.After.Limit, out)
	if line.Cause == CauseLostHistory {
		return append(lostNotes(c, line, most), outAboveNotes(out, c.After.Limit)...)
	}
	notes := []string{
		fmt.Sprintf("until it is cancelled, at most %d may be spent of each period instead of %d: if region %s spends what it holds, all of it", most, max(c.Before.Limit, out), c.Region),
		fmt.Sprintf("it is cancelled when region %s calls again with what it holds, or is sealed; what was spent by then stays spent", c.Region),
	}
	if c.Until != allocation.Never {
		notes = append(notes, fmt.Sprintf("or when the running term ends, at %s", c.Until))
	}
	// The terms that are open have the raise to their end: a region that hears of no end keeps its part of them.
	notes = append(notes, fmt.Sprintf("a region that is cut off when it ends keeps its part of the raise until it is back, in each period of the terms that are open then: now those until %s", plan.next.OpenedThrough))
	return append(notes, outAboveNotes(out, c.After.Limit)...)
}

func lostNotes(c Compensation, line StrandedLine, most int64) []string {
	notes := []string{
		fmt.Sprintf("incarnation %s of region %s is lost: what it spent of the %d that are stranded nobody can say. If it spent all, %d are spent of the running period instead of %d",
			c.Incarnation, c.Region, line.Stranded, most, c.Before.Limit),
		fmt.Sprintf("what is granted is for the running period, and goes to whoever holds less than its part: region %s, which began anew, as well", c.Region),
	}
	if c.Until != allocation.Never {
		return append(notes, fmt.Sprintf("no call cancels it: it ends with the running term, at %s, by a seal, or when an operator cancels it; what was spent by then stays spent", c.Until))
	}
	return append(notes, "no call cancels it: it ends by a seal, or when an operator cancels it; what was spent by then stays spent")
}

// cancelCompensation is an operator's word.
func (s *Service) cancelCompensation(ctx context.Context, who actor, id string) (Compensation, error) {
	var after Compensation
	err := s.inTurn(ctx, func() (Change, error) {
		d := s.state.compensations[id]
		if d == nil {
			return Change{}, notFound("compensation", id)
		}
		if d.value.State != CompensationActive {
			return Change{}, refused("nothing is left to do", "it is %s: %s", d.value.State, d.value.Why)
		}
		change, next, err := s.planCancel(who, d, "an operator cancelled it")
		after = next
		return change, err
	})
	return after, err
}

// endCompensations cancels what is over.
func (s *Service) endCompensations(ctx context.Context) error {
	return endEach(ctx, s, func() map[string]*doc[Compensation] { return s.state.compensations }, s.compensationOver,
		func(d *doc[Compensation], why string) (Change, error) {
			change, _, err := s.planCancel(background, d, why)
			return change, err
		})
}

// compensationOver says why a compensation is over; empty: it is not.
func (s *Service) compensationOver(c Compensation) string {
	switch b := s.state.budgets[c.Budget]; {
	case c.State != CompensationActive:
		return ""
	case b == nil || b.value.Deleted || b.value.Version != c.Version:
		return "the budget was changed"
	case s.canBeAsked(c.holder(), s.now()):
		return fmt.Sprintf("region %s calls again", c.Region)
	case s.strandsNothing(c):
		return fmt.Sprintf("nothing of incarnation %s of region %s is stranded any more", c.Incarnation, c.Region)
	case c.Until <= s.instant():
		return "the term that was running is over"
	}
	return ""
}

// strandsNothing says whether the entry that a compensation is tied to is resolved: a seal proved how much of it is free, or
// its last word came, and all of it is known to be spent.
func (s *Service) strandsNothing(c Compensation) bool {
	l := s.state.runningTerm(c.Budget, s.instant())
	if l == nil {
		return false
	}
	i, running := l.Periods.Find(s.instant())
	st, _ := s.lastStatement(c.holder(), refOf(*l))
	return running && l.RemainderAt(c.holder(), i, st, 0).Stranded == 0
}

// planCancel puts the limit back to what it was, unless somebody changed the budget since.
func (s *Service) planCancel(who actor, d *doc[Compensation], why string) (Change, Compensation, error) {
	next, at := d.value, s.now().UTC()
	next.Ended, next.Why, next.State = &at, why, CompensationCancelled
	key := compensationPrefix + next.ID
	cur := s.state.budgets[next.Budget]
	if cur == nil || cur.value.Deleted || cur.value.Version != next.Version {
		next.State = CompensationSuperseded
		change := Change{Reads: []Item{d.item}, Puts: []Item{put(key, next), s.auditLine(who, "budget.compensation_superseded", next.Budget, d.value, next)}}
		return change, next, nil
	}
	b := cur.value.Budget
	limit := next.Before.Limit
	b.Limit, b.Allocation = &limit, next.Before.Allocation
	plan, err := s.planBudget(next.Budget, &b, cur)
	if err != nil {
		return Change{}, next, err
	}
	plan.act = "budget.compensation_cancelled"
	change, err := s.writePlan(who, plan, cur)
	change.Reads, change.Puts = append(change.Reads, d.item), append(change.Puts, put(key, next))
	return change, next, err
}

func (s *Service) listCompensations() CompensationsList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := CompensationsList{Evidence: s.evidence(), Compensations: []Compensation{}}
	for _, d := range sortedCompensations(s.state.compensations) {
		list.Compensations = append(list.Compensations, d.value)
	}
	return list
}
