package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
)

// A rebalance moves permits of each period from one region to another, within the opened terms:
//
//	moving ──the giver has returned──▶ done
//	   ├── the budget was changed or deleted, or a region drains or began anew ──▶ undone
//	   └── the giver or the taker cannot be asked: what the giver still holds is its own again ──▶ ended
//
// A plan makes one for each budget that a selector finds: see rebalance_plan.go.

// Bounds of rebalances.
const (
	maxRebalances = 5000 // that are kept; the oldest finished ones go first
	// shortPeriod: of shorter periods the running one would be over before its permits are where they are wanted, so only
	// those that have yet to begin are moved.
	shortPeriod = 10 * allocation.Minute
)

// RebalanceRequest moves permits of each period, to the end of the opened terms: Units, or Percent of what the giver is to
// hold.
type RebalanceRequest struct {
	Budget  string `json:"budget"`
	From    string `json:"from"`
	To      string `json:"to"`
	Units   int64  `json:"units,omitempty"`
	Percent int64  `json:"percent,omitempty"`
}

// RebalanceAnswer is a rebalance, or, with DryRun, what it would be.
type RebalanceAnswer struct {
	*Evidence // of one that is read by itself
	Rebalance
	DryRun  bool             `json:"dry_run,omitempty"`
	Targets map[string]int64 `json:"targets"`           // of the first period that it counts for, by region, once it is done
	Waiting int64            `json:"waiting"`           // permits of that period that the giver has yet to return
	Blocked string           `json:"blocked,omitempty"` // of a dry run: why it cannot be applied now
	Preview *Preview         `json:"preview,omitempty"` // of a dry run: the running period
	Notes   []string         `json:"notes,omitempty"`
}

// mover is a rebalance that is decided and not yet written.
type mover struct {
	giver, taker allocation.Holder
	units        int64
	writes       []ledgerWrite
	since        allocation.Instant // the first period that it counts for
}

// rebalance sets the targets; the giver lowers first, and what it has returned goes to the taker.
func (s *Service) rebalance(ctx context.Context, who actor, q RebalanceRequest, dry bool) (RebalanceAnswer, error) {
	var answer RebalanceAnswer
	err := s.act(ctx, func() (Change, error) {
		m, err := s.planMove(q)
		if err != nil {
			return Change{}, err
		}
		blocked := s.cannotMove(m.giver, m.taker)
		if blocked != "" && !dry {
			return Change{}, refused("bring it back first; `tranche regions list` shows the last contact", "%s", blocked)
		}
		d := s.newRebalance(fmt.Sprintf("%d-%s", s.now().UnixMilli(), s.random.hex(4)), who.name, q, m)
		answer = s.answerMove(d, m.writes[0].after)
		if dry {
			answer.DryRun, answer.Blocked, answer.Preview = true, blocked, s.preview(budgetPlan{ledgers: m.writes})
			return Change{}, nil
		}
		change := s.moveChange(d, m)
		change.Puts = append(change.Puts, s.auditLine(who, "rebalance", q.Budget, nil, d))
		return change, nil
	})
	return answer, err
}

func (s *Service) newRebalance(id, by string, q RebalanceRequest, m mover) Rebalance {
	d := Rebalance{
		Format: documentFormat, ID: id, Budget: q.Budget, From: q.From, To: q.To, Units: m.units,
		Giver: m.giver.Incarnation, Taker: m.taker.Incarnation, Version: s.state.budgets[q.Budget].value.Version,
		State: RebalanceMoving, Made: s.now().UTC(), By: by, Since: m.since, Until: m.writes[len(m.writes)-1].after.Periods.End(),
	}
	for _, w := range m.writes {
		d.Terms = append(d.Terms, w.after.Periods.Start())
	}
	return d
}

// moveChange rests on the budget's document too: nothing may be granted by a limit that was lowered meanwhile.
func (s *Service) moveChange(d Rebalance, m mover) Change {
	change := Change{
		Reads: []Item{{Key: rebalanceKey(d.ID)}, s.state.budgets[d.Budget].item},
		Puts:  []Item{put(rebalanceKey(d.ID), d)},
	}
	for _, w := range m.writes {
		s.state.addLedger(&change, w)
	}
	return change
}

// checkMove refuses a request that no state of the world can serve.
func checkMove(from, to string, units, percent int64) error {
	switch {
	case from == to:
		return invalid("to", "is the region that gives", "name two regions")
	case units != 0 && percent != 0:
		return invalid("percent", "is given beside units", "give units, or percent")
	case percent < 0 || percent > 100:
		return invalid("percent", fmt.Sprintf("is %d", percent), "use 1 to 100")
	case percent == 0 && (units <= 0 || units > allocation.MaxUnits):
		return invalid("units", fmt.Sprintf("is %d", units), fmt.Sprintf("use 1 to %d, or give percent", allocation.MaxUnits))
	}
	return nil
}

// movers finds who gives and who takes.
func (s *Service) movers(from, to string) (giver, taker allocation.Holder, err error) {
	holders := [2]allocation.Holder{}
	for i, field := range []struct{ field, region string }{{"from", from}, {"to", to}} {
		r := s.state.regions[field.region]
		if r == nil || r.doc == nil {
			return giver, taker, invalid(field.field, fmt.Sprintf("there is no region %.70q", field.region), "list the regions to see their names")
		}
		h, ok := r.holder()
		if !ok {
			return giver, taker, refused("start a node of it first", "region %s has not called yet, so it holds nothing and can take nothing", r.name)
		}
		holders[i] = h
	}
	for _, name := range []string{from, to} {
		if s.state.regions[name].doc.value.Draining {
			return giver, taker, refused("resume it first, or choose another", "region %s is draining: it gives back all that it can, and takes no permits", name)
		}
	}
	return holders[0], holders[1], nil
}

// cannotMove says why nothing would move now: a giver that cannot be asked returns nothing, and what a taker is given that
// cannot be asked would be stranded there. Empty: it can.
func (s *Service) cannotMove(giver, taker allocation.Holder) string {
	switch now := s.now(); {
	case !s.canBeAsked(giver, now):
		return fmt.Sprintf("region %s cannot be asked: it would return nothing", giver.Region)
	case !s.canBeAsked(taker, now):
		return fmt.Sprintf("region %s cannot be asked: what it is given would be stranded there", taker.Region)
	}
	return ""
}

// planMove sets the targets in the running and all later opened terms, at most maxLedgersAct of them.
func (s *Service) planMove(q RebalanceRequest) (m mover, err error) {
	b := s.state.budgets[q.Budget]
	if b == nil || b.value.Deleted {
		return m, notFound("budget", q.Budget)
	}
	if err := checkMove(q.From, q.To, q.Units, q.Percent); err != nil {
		return m, err
	}
	if err := refuseMoveByHand(b.value.Budget); err != nil {
		return m, err
	}
	if m.giver, m.taker, err = s.movers(q.From, q.To); err != nil {
		return m, err
	}
	ledgers, err := s.movable(q.Budget)
	if err != nil {
		return m, err
	}
	if m.units = q.Units; q.Percent > 0 {
		if m.units, err = s.percentOf(q, m.giver, ledgers); err != nil {
			return m, err
		}
	}
	var room actRoom
	for _, l := range ledgers {
		from, some := movedFrom(l.value, s.instant())
		if !some {
			continue
		}
		next, err := s.settled(l.value)
		if err == nil {
			next, err = next.Move(m.giver, m.taker, m.units, from, s.generation(next))
		}
		switch {
		case errors.Is(err, allocation.ErrFrozen):
			return m, refused("`tranche status` says which regions it waits for", "%s", err.Error())
		case errors.Is(err, allocation.ErrTooManyEntries):
			return m, err
		case err != nil:
			return m, refused("look at its shares: `tranche budgets shares "+q.Budget+"`", "%s", err.Error())
		}
		if !room.take(next) {
			break // the answer says until when it counts
		}
		if len(m.writes) == 0 {
			m.since = next.Periods.At(from).Start
		}
		m.writes = append(m.writes, ledgerWrite{before: l, after: next})
	}
	if len(m.writes) == 0 {
		return m, refused("wait until a term is opened", "no term of %s is open", q.Budget)
	}
	return m, nil
}

// movable are the ledgers of the opened terms, none of which may be behind.
func (s *Service) movable(budget string) ([]*doc[allocation.Ledger], error) {
	ledgers := s.state.opened(budget, s.instant())
	for _, l := range ledgers {
		if s.state.behind[refOf(l.value)] {
			return nil, refused("try again in a moment", "the ledger of %s still follows an earlier change", budget)
		}
	}
	return ledgers, nil
}

// movedFrom is the index of the first period of a term that a move changes: the running one, or of short periods the next.
func movedFrom(l allocation.Ledger, now allocation.Instant) (from int, some bool) {
	i, running := l.Periods.Find(now)
	if !running {
		return 0, true // it has not begun
	}
	if p := l.Periods.At(i); p.End-p.Start < allocation.Instant(shortPeriod) {
		i++
	}
	return i, i < l.Periods.Len()
}

// percentOf is so much of what the giver is to hold, of the period in which it is least.
func (s *Service) percentOf(q RebalanceRequest, giver allocation.Holder, ledgers []*doc[allocation.Ledger]) (int64, error) {
	least := int64(-1)
	for _, l := range ledgers {
		from, some := movedFrom(l.value, s.instant())
		for i, e := range l.value.Entries {
			if !some || i+1 < len(l.value.Entries) && l.value.Entries[i+1].From <= from {
				continue // its periods are not moved
			}
			target := int64(0)
			for _, a := range e.Allocations {
				if a.Holder == giver {
					target += a.Target
				}
			}
			if least < 0 || target < least {
				least = target
			}
		}
	}
	// In two steps: the product of a large limit is beyond an int64.
	n := max(0, least)
	if n = n/100*q.Percent + n%100*q.Percent/100; n == 0 {
		return 0, refused("give units, or more percent", "%d %% of the %d permits of %s in region %s is less than one", q.Percent, max(0, least), q.Budget, q.From)
	}
	return n, nil
}

// movedByHand is what rebalances moved in the opened terms, in words: what a change of the budget undoes. Empty: nothing.
func (s *Service) movedByHand(budget string) string {
	now := s.instant()
	for _, l := range s.state.opened(budget, now) {
		from, some := movedFrom(l.value, now)
		if !some {
			continue
		}
		var parts []string
		for _, al := range l.value.EntryAt(from).Allocations {
			if al.Moved != 0 {
				parts = append(parts, fmt.Sprintf("%s %+d", al.Region, al.Moved))
			}
		}
		if len(parts) > 0 {
			return strings.Join(parts, ", ")
		}
	}
	return ""
}

func undoesMoves(moved string) string {
	return fmt.Sprintf("it splits the opened terms anew and so undoes what rebalances moved (of each period: %s): move again, or change the weights", moved)
}

func (s *Service) listRebalances() RebalancesList {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	list := RebalancesList{Evidence: s.evidence(), Rebalances: []RebalanceAnswer{}}
	for _, d := range sortedRebalances(s.state.rebalances) {
		list.Rebalances = append(list.Rebalances, s.rebalanceAnswer(d.value))
	}
	return list
}

// sortedRebalances is oldest first.
func sortedRebalances(m map[string]*doc[Rebalance]) []*doc[Rebalance] {
	return slices.SortedFunc(maps.Values(m), func(a, b *doc[Rebalance]) int {
		return cmp.Or(a.value.Made.Compare(b.value.Made), cmp.Compare(a.value.ID, b.value.ID))
	})
}
