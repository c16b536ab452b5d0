package coordinator

import (
	"context"
	"fmt"
	"strings"

	"tranche/allocation"
)

// An override raises one budget's limit for a while. It stands in the budget itself (allocation.Override), which makes a new
// version of it: so it goes the way of any change, every region knows of it, and every decision names it.
//
//	           its end is there, or somebody ends it: the limit is what was declared
//	active ─────────────────────────────────────────────────────────────────────────▶ ended
//	   └──── the budget is deleted, or its limit set to 0 ──▶ superseded
//
// A change of the budget meanwhile changes what was declared; the override stays on top of it. Periods that begin at its end
// or later never have it, whatever happens to coordinators: their ledgers are made without it.

// OverrideRequest asks for a raise.
type OverrideRequest struct {
	Budget string              `json:"budget"`
	Units  int64               `json:"units"`
	For    allocation.Duration `json:"for"`
	Reason string              `json:"reason"`
	By     string              `json:"by"` // who approves it
}

// OverrideAnswer is an override, or, with DryRun, what it would be.
type OverrideAnswer struct {
	Override
	DryRun  bool             `json:"dry_run,omitempty"`
	Permits map[string]int64 `json:"permits,omitempty"` // by region, of one period
	Preview *Preview         `json:"preview,omitempty"` // of a dry run: the running period
	Notes   []string         `json:"notes,omitempty"`
}

// EndOverrideRequest ends one before its time.
type EndOverrideRequest struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

func (q OverrideRequest) check(dry bool) error {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return err
	}
	switch {
	case q.For == 0:
		return invalid("for", "is missing: an override must have an end", "give a duration such as 2h")
	case q.For < 0 || q.For > allocation.MaxOverrideFor:
		return invalid("for", fmt.Sprintf("is %s", q.For), fmt.Sprintf("use at most %s; what is to stay is a change of the budget", allocation.MaxOverrideFor))
	case q.Units < 1:
		return invalid("units", fmt.Sprintf("is %d", q.Units), "say by how many units each period is raised: at least 1")
	case len(q.By) > allocation.MaxLabelValue:
		return invalid("by", fmt.Sprintf("has %d bytes", len(q.By)), fmt.Sprintf("use at most %d", allocation.MaxLabelValue))
	}
	return nil
}

func (s *Service) override(ctx context.Context, who actor, q OverrideRequest, dry bool) (OverrideAnswer, error) {
	if err := q.check(dry); err != nil {
		return OverrideAnswer{}, err
	}
	who.reason = q.Reason
	var answer OverrideAnswer
	act := s.inTurn
	if dry {
		act = s.act
	}
	err := act(ctx, func() (Change, error) {
		o, next, err := s.planOverride(q)
		if err != nil {
			return Change{}, err
		}
		cur := s.state.budgets[q.Budget]
		plan, err := s.planBudget(q.Budget, &next, cur)
		if err != nil {
			return Change{}, err
		}
		plan.act = "budget.override"
		o.Version, o.Token = plan.next.Version, who.name
		answer = OverrideAnswer{Override: o, DryRun: dry, Permits: plan.answer.Permits, Notes: append(o.notes(next.Protected), append(outAboveNotes(s.outAbove(plan), o.Limit+o.Units), plan.answer.Warnings...)...)}
		if dry {
			answer.ID, answer.Preview = "", s.preview(plan)
			return Change{}, nil
		}
		change, err := s.writePlan(who, plan, cur)
		key := overridePrefix + o.ID
		change.Reads, change.Puts = append(change.Reads, Item{Key: key}), append(change.Puts, put(key, o))
		return change, err
	})
	return answer, err
}

// planOverride decides what the budget becomes.
func (s *Service) planOverride(q OverrideRequest) (Override, allocation.Budget, error) {
	none := allocation.Budget{}
	d := s.state.budgets[q.Budget]
	if d == nil || d.value.Deleted {
		return Override{}, none, notFound("budget", q.Budget)
	}
	b, now := d.value.Budget, s.instant()
	limit, until := b.LimitOrZero(), now+allocation.Instant(q.For)
	switch c := s.state.activeCompensation(q.Budget); {
	case b.Override != nil:
		return Override{}, none, refused("end it first: `tranche override end "+b.Override.ID+" --reason TEXT --by NAME`", "%s has an override already, of %d until %s, approved by %s", q.Budget, b.Override.Units, b.Override.Until, b.Override.By)
	case c != nil:
		return Override{}, none, refused("cancel that first: `tranche budgets compensate "+q.Budget+" --cancel`", "%s is compensated, by %d for region %s", q.Budget, c.value.Units, c.value.Region)
	case b.IsTemplate():
		return Override{}, none, refused("declare a budget for the instance that needs more", "%s is a template: its limit is per instance", q.Budget)
	case limit == 0:
		return Override{}, none, refused("change the budget itself: `tranche budgets apply`", "the limit of %s is 0: somebody stopped it", q.Budget)
	case q.Units > limit || limit > allocation.MaxUnits-q.Units:
		return Override{}, none, invalid("units", fmt.Sprintf("is %d, and the limit %d", q.Units, limit), fmt.Sprintf("use 1 to %d: more than twice as much is a change of the budget", min(limit, allocation.MaxUnits-limit)))
	}
	periods := periodsUntil(b.Window.With(s.config.Zones), now, until)
	if periods == 0 {
		return Override{}, none, refused("wait until it begins", "no period of %s runs now", q.Budget)
	}
	o := Override{
		Format: documentFormat, ID: "o-" + s.random.hex(6), Budget: q.Budget, Unit: b.Unit, Units: q.Units, From: now, Until: until, Periods: periods,
		Total: manyUnits(q.Units, periods), Limit: limit, State: OverrideActive, Reason: q.Reason, By: q.By, Made: s.now().UTC(),
	}
	raised := limit + q.Units
	b.Limit, b.Override = &raised, &allocation.Override{ID: o.ID, Units: o.Units, Until: until, By: o.By}
	return o, b, nil
}

// manyUnits is n times so many, at most the largest number that every reader keeps.
func manyUnits(units, n int64) int64 {
	if n > allocation.MaxUnits/max(1, units) {
		return allocation.MaxUnits
	}
	return units * n
}

func (o Override) notes(protected int64) []string {
	notes := []string{
		fmt.Sprintf("until %s at most %d %s may be spent of each period instead of %d: %s, so at most %d more in all", o.Until, o.Limit+o.Units, o.Unit, o.Limit, countWord(int(o.Periods), "period"), o.Total),
		fmt.Sprintf("then nothing is granted beyond %d any more; what is out above it stays out, as overcommitted, until it is returned or its period is over", o.Limit),
		"a region that is cut off when it ends keeps its part of the raised period that runs, and of no later one",
	}
	if protected > 0 {
		notes = append(notes, fmt.Sprintf("when it ends, essential traffic may still spend the protected %d of the period that runs, also above %d", protected, o.Limit))
	}
	return notes
}

// keepOverride is a budget as a change declares it, with the override that stands on top of it. A caller that read the budget
// sends the override back, and then the limit includes it; one that has it from a file does not know of it. Limit 0 stops
// everything, and ends it.
func keepOverride(b allocation.Budget, cur *doc[BudgetDocument]) (allocation.Budget, error) {
	var stands *allocation.Override
	if cur != nil && !cur.value.Deleted {
		stands = cur.value.Budget.Override
	}
	switch {
	case b.Override != nil && (stands == nil || *b.Override != *stands):
		return b, invalid("override", "is not one that stands", "leave it out, and give the limit as declared; `tranche override` makes one")
	case b.LimitOrZero() == 0:
		b.Override = nil
	case b.Override != nil && b.LimitOrZero() <= stands.Units:
		return b, invalid("limit", fmt.Sprintf("is %d, of which the override is %d", b.LimitOrZero(), stands.Units), "leave `override` out, and give the limit as declared; or 0 to stop everything")
	case b.Override != nil:
		return b, b.WithoutOverride().Validate() // what is declared holds when it ends, and must be right then
	case stands != nil:
		if *b.Limit > allocation.MaxUnits-stands.Units {
			return b, invalid("limit", fmt.Sprintf("is %d, and the override %d", *b.Limit, stands.Units), "use less, or end the override first")
		}
		limit := *b.Limit + stands.Units
		b.Limit, b.Override = &limit, stands
	}
	return b, nil
}

// raisedWarnings warns of an override that stood before a change and stands on top of it: the limit that counts is not the one
// that was declared.
func raisedWarnings(old, b allocation.Budget) []string {
	if o := b.Override; o != nil && old.Override != nil && *old.Override == *o {
		return []string{fmt.Sprintf("override %s of %d stands on top until %s: of the declared %d, %d may be spent of each period; to end it: `tranche override end %s --reason TEXT --by NAME`",
			o.ID, o.Units, o.Until, b.WithoutOverride().LimitOrZero(), b.LimitOrZero(), o.ID)}
	}
	return nil
}

// endOverride is an operator's word.
func (s *Service) endOverride(ctx context.Context, who actor, id string, q EndOverrideRequest) (Override, error) {
	if err := checkReason(q.Reason, q.By, false); err != nil {
		return Override{}, err
	}
	who.reason = q.Reason
	var after Override
	err := s.inTurn(ctx, func() (Change, error) {
		d := s.state.overrides[id]
		if d == nil {
			return Change{}, notFound("override", id)
		}
		if d.value.State != OverrideActive {
			return Change{}, refused("nothing is left to do", "it is %s: %s", d.value.State, d.value.Why)
		}
		change, next, err := s.planOverrideEnd(who, d, named(q.By, who), "ended before its time: "+strings.TrimSpace(q.Reason))
		after = next
		return change, err
	})
	return after, err
}

// endOverrides ends what is over.
func (s *Service) endOverrides(ctx context.Context) error {
	return endEach(ctx, s, func() map[string]*doc[Override] { return s.state.overrides }, s.overrideOver,
		func(d *doc[Override], why string) (Change, error) {
			change, _, err := s.planOverrideEnd(background, d, background.name, why)
			return change, err
		})
}

// overrideOver says why an override is over; empty: it is not.
func (s *Service) overrideOver(o Override) string {
	switch {
	case o.State != OverrideActive:
		return ""
	case !s.state.stands(o):
		return s.state.gone(o)
	case o.Until <= s.instant():
		return "its end was there"
	}
	return ""
}

// stands says whether a budget still has the override.
func (s *state) stands(o Override) bool {
	b := s.budgets[o.Budget]
	return b != nil && !b.value.Deleted && b.value.Budget.Override != nil && b.value.Budget.Override.ID == o.ID
}

// planOverrideEnd takes the override off the budget. It is never refused for what the budget is: an end that waits for a
// person is none.
func (s *Service) planOverrideEnd(who actor, d *doc[Override], by, why string) (Change, Override, error) {
	next, at := d.value, s.now().UTC()
	next.Ended, next.EndedBy, next.Why, next.State = &at, by, why, OverrideEnded
	key, cur := overridePrefix+next.ID, s.state.budgets[next.Budget]
	if !s.state.stands(next) {
		if next.State = OverrideSuperseded; cur != nil {
			next.EndVersion = cur.value.Version
		}
		return Change{Reads: []Item{d.item, cur.known(budgetKey(next.Budget))}, Puts: []Item{put(key, next), s.auditLine(who, "budget.override_superseded", next.Budget, d.value, next)}}, next, nil
	}
	b := cur.value.Budget.WithoutOverride()
	plan, err := s.planUnchecked(next.Budget, &b, cur)
	if err != nil {
		return Change{}, next, err
	}
	plan.act, next.EndVersion = "budget.override_ended", plan.next.Version
	change, err := s.writePlan(who, plan, cur)
	change.Reads, change.Puts = append(change.Reads, d.item), append(change.Puts, put(key, next))
	return change, next, err
}
