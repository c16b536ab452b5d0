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

// Bounds of rebalances.
const (
	maxRebalances = 1000 // that are kept; the oldest finished ones go first
)

// RebalanceRequest moves units permits of each period, from the running one to the end of the opened terms.
type RebalanceRequest struct {
	Budget string `json:"budget"`
	From   string `json:"from"`
	To     string `json:"to"`
	Units  int64  `json:"units"`
}

// RebalanceAnswer is a rebalance, or, with DryRun, what it would be.
type RebalanceAnswer struct {
	*Evidence // of one that is read by itself
	Rebalance
	DryRun  bool             `json:"dry_run,omitempty"`
	Targets map[string]int64 `json:"targets"` // of the running period, by region, once it is done
	Waiting int64            `json:"waiting"` // permits of the running period that the giver has yet to return
	Notes   []string         `json:"notes,omitempty"`
}

// rebalance sets the targets; the giver lowers first, and what it has returned goes to the taker.
func (s *Service) rebalance(ctx context.Context, who actor, q RebalanceRequest, dry bool) (RebalanceAnswer, error) {
	var answer RebalanceAnswer
	err := s.act(ctx, func() (Change, error) {
		giver, taker, err := s.movers(q)
		if err != nil {
			return Change{}, err
		}
		writes, err := s.planMove(q, giver, taker)
		if err != nil {
			return Change{}, err
		}
		now := s.instant()
		d := Rebalance{
			Format: documentFormat, ID: fmt.Sprintf("%d-%s", s.now().UnixMilli(), s.random.hex(4)), Budget: q.Budget, From: q.From, To: q.To, Units: q.Units,
			Version: s.state.budgets[q.Budget].value.Version, State: RebalanceMoving, Made: s.now().UTC(), By: who.name,
			Since: writes[0].after.Periods.At(runningIndex(writes[0].after, now)).Start, Until: writes[len(writes)-1].after.Periods.End(),
		}
		for _, w := range writes {
			d.Terms = append(d.Terms, w.after.Periods.Start())
		}
		answer = s.answerRebalance(d, writes[0].after)
		if dry {
			answer.DryRun = true
			return Change{}, nil
		}
		change := Change{
			Reads: []Item{{Key: rebalanceKey(d.ID)}},
			Puts:  []Item{put(rebalanceKey(d.ID), d), s.auditLine(who, "rebalance", q.Budget, nil, d)},
		}
		for _, w := range writes {
			s.state.addLedger(&change, w)
		}
		return change, nil
	})
	return answer, err
}

// movers finds who gives and who takes.
func (s *Service) movers(q RebalanceRequest) (giver, taker allocation.Holder, err error) {
	b := s.state.budgets[q.Budget]
	switch {
	case b == nil || b.value.Deleted:
		return giver, taker, notFound("budget", q.Budget)
	case q.From == q.To:
		return giver, taker, invalid("to", "is the region that gives", "name two regions")
	case q.Units <= 0 || q.Units > allocation.MaxUnits:
		return giver, taker, invalid("units", fmt.Sprintf("is %d", q.Units), fmt.Sprintf("use 1 to %d", allocation.MaxUnits))
	}
	if err := refuseMoveByHand(b.value.Budget); err != nil {
		return giver, taker, err
	}
	holders := [2]allocation.Holder{}
	for i, field := range []struct{ field, region string }{{"from", q.From}, {"to", q.To}} {
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
	if s.state.regions[q.To].doc.value.Draining {
		return giver, taker, refused("resume it first, or choose another", "region %s is draining and takes no permits", q.To)
	}
	return holders[0], holders[1], nil
}

// planMove sets the targets in the running and all later opened terms, at most maxLedgersAct of them.
func (s *Service) planMove(q RebalanceRequest, giver, taker allocation.Holder) ([]ledgerWrite, error) {
	now := s.instant()
	var writes []ledgerWrite
	var room actRoom
	for _, l := range s.state.opened(q.Budget, now) {
		if s.state.behind[refOf(l.value)] {
			return nil, refused("try again in a moment", "the ledger of %s still follows an earlier change", q.Budget)
		}
		next, err := s.settled(l.value)
		if err == nil {
			next, err = next.Move(giver, taker, q.Units, runningIndex(next, now), s.generation(next))
		}
		if errors.Is(err, allocation.ErrFrozen) {
			return nil, refused("`tranche status` says which regions it waits for", "%s", err.Error())
		}
		if err != nil {
			if errors.Is(err, allocation.ErrTooManyEntries) {
				return nil, err
			}
			return nil, refused("look at its shares: `tranche budgets shares "+q.Budget+"`", "%s", err.Error())
		}
		if !room.take(next) {
			break // the answer says until when it counts
		}
		writes = append(writes, ledgerWrite{before: l, after: next})
	}
	if len(writes) == 0 {
		return nil, refused("wait until a term is opened", "no term of %s is open", q.Budget)
	}
	return writes, nil
}

func (s *Service) answerRebalance(d Rebalance, running allocation.Ledger) RebalanceAnswer {
	a := RebalanceAnswer{Rebalance: d, Targets: map[string]int64{}}
	for _, al := range running.EntryAt(runningIndex(running, s.instant())).Allocations {
		a.Targets[al.Region] += al.Target
		if al.Region == d.From && d.State == RebalanceMoving {
			a.Waiting += max(0, al.Held()-al.Target)
		}
	}
	if why := s.undone(d); why != "" {
		// What the giver has yet to return is not for this move any more.
		a.Waiting, a.Notes = 0, append(a.Notes, why+": it does not count any more; move again, or change the weights")
		return a
	}
	if a.Waiting > 0 {
		if r := s.state.regions[d.From]; r != nil && !r.inContact(s.now(), s.config.ReportUnreachableAfter) {
			a.Notes = append(a.Notes, fmt.Sprintf("region %s cannot be asked: the move completes only when it is back and has returned", d.From))
		} else {
			a.Notes = append(a.Notes, fmt.Sprintf("it completes when %s has returned %d permits of each period, less what it has spent meanwhile", d.From, a.Waiting))
		}
	}
	a.Notes = append(a.Notes, fmt.Sprintf("it stands until %s, while the budget is not changed and neither region drains; later terms are split by the budget's policy again", d.Until))
	return a
}

// undone says why a move does not count any more: the ledgers followed something that splits them anew, or will in a
// moment. It is empty while the move counts.
func (s *Service) undone(d Rebalance) string {
	b := s.state.budgets[d.Budget]
	switch {
	case b == nil || b.value.Deleted:
		return "the budget was deleted"
	case d.Version > 0 && b.value.Version != d.Version:
		return fmt.Sprintf("the budget was changed: it is at version %d, and was at %d", b.value.Version, d.Version)
	}
	for _, name := range []string{d.From, d.To} {
		if r := s.state.regions[name]; r != nil && r.doc != nil && r.doc.value.Draining {
			return fmt.Sprintf("region %s drains", name)
		}
	}
	return ""
}

// movedByHand is what rebalances moved in the opened terms, in words: what a change of the budget undoes. Empty: nothing.
func (s *Service) movedByHand(budget string) string {
	now := s.instant()
	for _, l := range s.state.opened(budget, now) {
		var parts []string
		for _, al := range l.value.EntryAt(runningIndex(l.value, now)).Allocations {
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

func (s *Service) rebalanceAnswer(d Rebalance) RebalanceAnswer {
	for _, term := range d.Terms {
		if l := s.state.ledgers[allocation.ShareRef{Budget: d.Budget, Term: term}]; l != nil && l.value.Periods.End() > s.instant() {
			return s.answerRebalance(d, l.value)
		}
	}
	return RebalanceAnswer{Rebalance: d, Targets: map[string]int64{}}
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

// finishRebalances notes which moves are over: undone, or complete, since in none of its opened terms the giver holds more
// than its target.
func (s *Service) finishRebalances(ctx context.Context) error {
	now := s.instant()
	s.state.mu.Lock()
	var due []string
	for _, d := range sortedRebalances(s.state.rebalances) {
		if d.value.State == RebalanceMoving && (s.undone(d.value) != "" || !s.stillMoving(d.value, now)) {
			due = append(due, d.value.ID)
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(id string) (Change, error) {
		d := s.state.rebalances[id]
		if d == nil {
			return Change{}, nil
		}
		next := d.value
		next.State, next.Ended = RebalanceDone, s.now().UTC()
		if s.undone(next) != "" {
			next.State = RebalanceUndone
		}
		return Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next), s.auditLine(background, "rebalance."+next.State, next.Budget, nil, next)}}, nil
	})
	return err
}

func (s *Service) stillMoving(d Rebalance, now allocation.Instant) bool {
	for _, term := range d.Terms {
		l := s.state.ledgers[allocation.ShareRef{Budget: d.Budget, Term: term}]
		if l == nil || l.value.Periods.End() <= now {
			continue
		}
		first := runningIndex(l.value, now)
		for i, e := range l.value.Entries {
			if i+1 < len(l.value.Entries) && l.value.Entries[i+1].From <= first {
				continue // its periods are over
			}
			for _, a := range e.Allocations {
				if a.Region == d.From && a.Held() > a.Target {
					return true
				}
			}
		}
	}
	return false
}
