package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// A plan moves permits of all budgets that a selector finds. Its document is written first, with the units of each budget;
// then a rebalance is made for each, in transactions of their own, by whoever took the request and by the leader, which
// goes on after a crash. Each has an id that follows from the plan's, and is made once.
//
//	applying ──each budget has its rebalance──▶ moving ──all have ended──▶ done, or ended if some were not done

// Bounds of plans.
const (
	maxPlanBudgets = 1000 // that one plan moves
	maxLeftOut     = 1000 // that are listed
	maxPlans       = 100  // that are kept
	// planPatience is how long a budget of a plan waits for a ledger that follows a change, or a region that is silent.
	planPatience = time.Minute
)

// RebalancePlanRequest moves Units, or Percent of what the giver is to hold, of each budget that declares all labels of
// Match in its own match.
type RebalancePlanRequest struct {
	From    string            `json:"from"`
	To      string            `json:"to"`
	Match   map[string]string `json:"match"`
	Units   int64             `json:"units,omitempty"`
	Percent int64             `json:"percent,omitempty"`
}

// RebalancePlan is what was decided of all of them. Applied: each has its rebalance.
type RebalancePlan struct {
	Format int `json:"format"`
	RebalancePlanRequest
	ID           string        `json:"id"`
	Budgets      []PlannedMove `json:"budgets"`
	LeftOut      []LeftOut     `json:"left_out,omitempty"`
	LeftOutCount int           `json:"left_out_count"` // with those beyond the 1,000 that are listed
	Made         time.Time     `json:"made"`
	By           string        `json:"by"`
	Address      string        `json:"address"` // that the request came from
	Applied      bool          `json:"applied"`
}

// PlannedMove is one budget of a plan.
type PlannedMove struct {
	Budget  string `json:"budget"`
	Unit    string `json:"unit"`
	Version int64  `json:"version"`
	Units   int64  `json:"units"` // of each period
}

// LeftOut is a budget that the selector finds and that is not moved.
type LeftOut struct {
	Budget string `json:"budget"`
	Why    string `json:"why"`
}

// RebalancePlanAnswer is a plan and how far it is, or, with DryRun, what it would be.
type RebalancePlanAnswer struct {
	*Evidence
	RebalancePlan
	DryRun  bool                 `json:"dry_run,omitempty"`
	State   string               `json:"state,omitempty"`   // not of a dry run
	Blocked string               `json:"blocked,omitempty"` // of a dry run: why it cannot be applied now
	Moves   []RebalanceAnswer    `json:"moves"`
	Total   map[string]PlanTotal `json:"total"` // by unit
}

// PlanTotal sums the moves of one unit, each over one period.
type PlanTotal struct {
	Budgets int `json:"budgets"`
	Moved
}

// PlanApplying is the state of a plan of which some budgets wait for their rebalance. The others are a rebalance's.
const PlanApplying = "applying"

// RebalancePlansList is all plans that are kept, oldest first.
type RebalancePlansList struct {
	*Evidence
	Plans []RebalancePlanAnswer `json:"plans"`
}

func (p RebalancePlan) moveID(i int) string { return fmt.Sprintf("%s-%04d", p.ID, i) }

func (p RebalancePlan) request(m PlannedMove) RebalanceRequest {
	return RebalanceRequest{Budget: m.Budget, From: p.From, To: p.To, Units: m.Units}
}

// rebalanceMatching plans, and unless it is a preview applies. Once the plan is written it is carried out, whoever waits for
// the answer.
func (s *Service) rebalanceMatching(ctx context.Context, who actor, q RebalancePlanRequest, dry bool) (RebalancePlanAnswer, error) {
	var answer RebalancePlanAnswer
	err := s.act(ctx, func() (Change, error) {
		var err error
		if answer, err = s.planMatching(who, q); err != nil {
			return Change{}, err
		}
		answer.DryRun = dry
		if dry {
			return Change{}, nil
		}
		p := answer.RebalancePlan
		switch {
		case answer.Blocked != "":
			return Change{}, refused("bring it back first; `tranche regions list` shows the last contact", "%s", answer.Blocked)
		case len(p.Budgets) == 0:
			return Change{}, refused("preview it with dry_run=true: it says why each is left out", "none of the %d budgets that match can be moved", p.LeftOutCount)
		case len(s.state.plans) >= maxPlans:
			return Change{}, refused("wait until the oldest are forgotten", "%d plans are kept already", maxPlans)
		}
		return Change{
			Reads: []Item{{Key: planKey(p.ID)}},
			Puts:  []Item{put(planKey(p.ID), p), s.auditLine(who, "rebalance.plan", p.ID, nil, p)},
		}, nil
	})
	if err != nil || dry {
		return answer, err
	}
	if err := s.applyPlan(ctx, answer.ID); err != nil {
		s.log.Warn("the rest of a plan is left to the background work", "plan", answer.ID, "error", err)
		s.nudgeBackground()
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if d := s.state.plans[answer.ID]; d != nil {
		answer = s.answerPlan(d.value, true)
	}
	return answer, nil
}

// planMatching decides what of each budget is moved, and says why others are left out.
func (s *Service) planMatching(who actor, q RebalancePlanRequest) (RebalancePlanAnswer, error) {
	a := RebalancePlanAnswer{Moves: []RebalanceAnswer{}, Total: map[string]PlanTotal{}, RebalancePlan: RebalancePlan{
		Format: documentFormat, RebalancePlanRequest: q, ID: fmt.Sprintf("%d-%s", s.now().UnixMilli(), s.random.hex(4)),
		Budgets: []PlannedMove{}, Made: s.now().UTC(), By: who.name, Address: who.from,
	}}
	if len(q.Match) == 0 {
		return a, invalid(byMatch, "names no label", "name labels as the budgets declare them in match, such as tenant=acme; one budget is moved with POST /v1/rebalances")
	}
	if err := checkMove(q.From, q.To, q.Units, q.Percent); err != nil {
		return a, err
	}
	giver, taker, err := s.movers(q.From, q.To)
	if err != nil {
		return a, err
	}
	a.Blocked = s.cannotMove(giver, taker)
	for _, name := range s.state.names {
		b := s.state.budgets[name]
		if b.value.Deleted || !(StrandedFilter{Match: q.Match}).selects(b) {
			continue
		}
		r := RebalanceRequest{Budget: name, From: q.From, To: q.To, Units: q.Units, Percent: q.Percent}
		m, err := s.planMove(r)
		if err != nil {
			if a.LeftOutCount++; a.LeftOutCount <= maxLeftOut {
				a.LeftOut = append(a.LeftOut, LeftOut{name, asProblem(err).Error()})
			}
			continue
		}
		if len(a.Budgets) == maxPlanBudgets {
			return a, refused("narrow the selector by another label", "more than %d budgets match", maxPlanBudgets)
		}
		a.Budgets = append(a.Budgets, PlannedMove{Budget: name, Unit: b.value.Budget.Unit, Version: b.value.Version, Units: m.units})
		a.take(s.answerMove(s.newRebalance(a.moveID(len(a.Moves)), who.name, r, m), m.writes[0].after), b.value.Budget.Unit)
	}
	if len(a.Budgets)+a.LeftOutCount == 0 {
		return a, invalid(byMatch, "no budget declares these labels", "`tranche budgets list` shows what there is")
	}
	return a, nil
}

// take adds one move.
func (a *RebalancePlanAnswer) take(m RebalanceAnswer, unit string) {
	a.Moves = append(a.Moves, m)
	t := a.Total[unit]
	t.Budgets++
	t.Asked = allocation.SumUp(t.Asked, m.Units)
	t.Returned, t.Granted = allocation.SumUp(t.Returned, m.Returned), allocation.SumUp(t.Granted, m.Granted)
	a.Total[unit] = t
}

// applyPlans goes on with plans that nobody finished.
func (s *Service) applyPlans(ctx context.Context) error {
	s.state.mu.Lock()
	var due []string
	for _, d := range sortedPlans(s.state.plans) {
		if !d.value.Applied {
			due = append(due, d.value.ID)
		}
	}
	s.state.mu.Unlock()
	for _, id := range due {
		if err := s.applyPlan(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// applyPlan makes the rebalances that a plan still lacks. Others may do the same at once: each is made once.
func (s *Service) applyPlan(ctx context.Context, id string) error {
	s.state.mu.Lock()
	var missing []int
	if d := s.state.plans[id]; d != nil && !d.value.Applied {
		for i := range d.value.Budgets {
			if s.state.rebalances[d.value.moveID(i)] == nil {
				missing = append(missing, i)
			}
		}
	}
	s.state.mu.Unlock()
	if _, err := eachOf(ctx, s, missing, func(i int) (Change, error) { return s.applyMove(id, i), nil }); err != nil {
		return err
	}
	_, err := s.once(ctx, func() (Change, error) {
		d := s.state.plans[id]
		if d == nil || d.value.Applied {
			return Change{}, nil
		}
		next := d.value
		for i := range next.Budgets {
			if s.state.rebalances[next.moveID(i)] == nil {
				return Change{}, nil // the next round goes on
			}
		}
		next.Applied = true
		return Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next)}}, nil
	})
	return err
}

// applyMove makes one rebalance of a plan, or the record that it is refused now.
func (s *Service) applyMove(id string, i int) Change {
	p := s.state.plans[id]
	if p == nil || s.state.rebalances[p.value.moveID(i)] != nil {
		return Change{}
	}
	planned, who := p.value.Budgets[i], actor{name: p.value.By, from: p.value.Address}
	q := p.value.request(planned)
	waits := s.now().Sub(p.value.Made) < planPatience
	if _, err := s.movable(q.Budget); err != nil && waits {
		return Change{}
	}
	m, err := s.planMove(q)
	if b := s.state.budgets[q.Budget]; err == nil && b.value.Version != planned.Version {
		err = fmt.Errorf("the budget was changed: it is at version %d, and was planned at %d", b.value.Version, planned.Version)
	}
	if err == nil {
		if why := s.cannotMove(m.giver, m.taker); why != "" {
			if waits {
				return Change{} // this replica may have heard no call yet
			}
			err = errors.New(why)
		}
	}
	if err != nil {
		d := Rebalance{
			Format: documentFormat, ID: p.value.moveID(i), Plan: id, Budget: q.Budget, From: q.From, To: q.To, Units: q.Units, Version: planned.Version,
			State: RebalanceRefused, Why: whyNot(err), Made: p.value.Made, By: p.value.By, Ended: s.now().UTC(), Moved: Moved{Asked: q.Units},
		}
		return Change{
			Reads: []Item{{Key: rebalanceKey(d.ID)}, p.item},
			Puts:  []Item{put(rebalanceKey(d.ID), d), s.auditLine(who, "rebalance.refused", q.Budget, nil, d)},
		}
	}
	d := s.newRebalance(p.value.moveID(i), p.value.By, q, m)
	d.Plan = id
	change := s.moveChange(d, m)
	change.Reads = append(change.Reads, p.item)
	change.Puts = append(change.Puts, s.auditLine(who, "rebalance", q.Budget, nil, d))
	return change
}

// whyNot is an error as a person is told of it.
func whyNot(err error) string {
	var p *Problem
	if errors.As(err, &p) || errors.Is(err, allocation.ErrTooManyEntries) {
		return asProblem(err).Error()
	}
	return err.Error()
}

// answerPlan is a plan and its moves; without each, only the sums.
func (s *Service) answerPlan(p RebalancePlan, each bool) RebalancePlanAnswer {
	a := RebalancePlanAnswer{RebalancePlan: p, State: PlanApplying, Moves: []RebalanceAnswer{}, Total: map[string]PlanTotal{}}
	states := map[string]int{}
	for i, planned := range p.Budgets {
		d := s.state.rebalances[p.moveID(i)]
		if d == nil {
			continue
		}
		m := s.rebalanceAnswer(d.value)
		a.take(m, planned.Unit)
		states[m.Rebalance.State]++
	}
	switch {
	case !p.Applied:
	case states[RebalanceMoving] > 0:
		a.State = RebalanceMoving
	case states[RebalanceDone] == len(a.Moves):
		a.State = RebalanceDone
	default:
		a.State = RebalanceEnded
	}
	if !each {
		a.Budgets, a.LeftOut, a.Moves = nil, nil, nil
	}
	return a
}

func (s *Service) listPlans() RebalancePlansList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := RebalancePlansList{Evidence: s.evidence(), Plans: []RebalancePlanAnswer{}}
	for _, d := range sortedPlans(s.state.plans) {
		list.Plans = append(list.Plans, s.answerPlan(d.value, false))
	}
	return list
}

// sortedPlans is oldest first.
func sortedPlans(m map[string]*doc[RebalancePlan]) []*doc[RebalancePlan] {
	return slices.SortedFunc(maps.Values(m), func(a, b *doc[RebalancePlan]) int {
		return cmp.Or(a.value.Made.Compare(b.value.Made), cmp.Compare(a.value.ID, b.value.ID))
	})
}
