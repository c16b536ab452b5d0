package coordinator

import (
	"context"
	"fmt"
	"time"

	"tranche/allocation"
)

// Moved is how far a rebalance is, in the permits of one period: the first that it counts for and that is not over. Of a
// rebalance that has ended it is how far it was then.
type Moved struct {
	Asked    int64 `json:"asked"`    // of the giver
	Returned int64 `json:"returned"` // of them, what the giver does not hold any more
	Granted  int64 `json:"granted"`  // of them, what the taker holds
}

// movedIn looks at one period of a ledger.
func movedIn(d Rebalance, l allocation.Ledger, i int) Moved {
	var above, below int64
	for _, a := range l.EntryAt(i).Allocations {
		if a.Region == d.From {
			above += max(0, a.Held()-a.Target)
		}
		if a.Region == d.To && a.Incarnation == d.Taker {
			below += max(0, a.Target-a.Held())
		}
	}
	return Moved{Asked: d.Units, Returned: d.Units - min(d.Units, above), Granted: d.Units - min(d.Units, below)}
}

// firstOf is the ledger and the period that tell how far a rebalance is; nil when all its terms are over.
func (s *Service) firstOf(d Rebalance) (*allocation.Ledger, int) {
	now := s.instant()
	for _, term := range d.Terms {
		l := s.state.ledgers[allocation.ShareRef{Budget: d.Budget, Term: term}]
		if l == nil || l.value.Periods.End() <= now {
			continue
		}
		return &l.value, countedIndex(d, l.value, now)
	}
	return nil, 0
}

// countedIndex is the running period of a term, or the first that the rebalance counts for.
func countedIndex(d Rebalance, l allocation.Ledger, now allocation.Instant) int {
	return runningIndex(l, max(now, d.Since))
}

func (s *Service) rebalanceAnswer(d Rebalance) RebalanceAnswer {
	if l, _ := s.firstOf(d); l != nil && d.State != RebalanceRefused {
		return s.answerMove(d, *l)
	}
	return RebalanceAnswer{Rebalance: d, Targets: map[string]int64{}}
}

func (s *Service) answerMove(d Rebalance, l allocation.Ledger) RebalanceAnswer {
	a := RebalanceAnswer{Rebalance: d, Targets: map[string]int64{}}
	i := countedIndex(d, l, s.instant())
	for _, al := range l.EntryAt(i).Allocations {
		a.Targets[al.Region] += al.Target
	}
	if d.State == RebalanceMoving {
		a.Moved = movedIn(d, l, i)
		a.Waiting = a.Asked - a.Returned
	}
	if d.Why != "" {
		a.Notes = append(a.Notes, d.Why)
	}
	if d.State == RebalanceEnded {
		return a
	}
	if why := s.undone(d); why != "" {
		// What the giver has yet to return is not for this move any more.
		a.Waiting, a.Notes = 0, append(a.Notes, why+": it does not count any more; move again, or change the weights")
		return a
	}
	if a.Waiting > 0 {
		if why := s.cannotMove(d.giver(), d.taker()); why != "" {
			a.Notes = append(a.Notes, why+": the move ends with what was returned")
		} else {
			a.Notes = append(a.Notes, fmt.Sprintf("it completes when %s has returned %d permits of each period, less what it has spent meanwhile", d.From, a.Waiting))
		}
	}
	a.Notes = append(a.Notes, fmt.Sprintf("it counts from the period of %s", d.Since))
	a.Notes = append(a.Notes, fmt.Sprintf("it stands until %s, while the budget is not changed and neither region drains; later terms are split by the budget's policy again", d.Until))
	a.Notes = append(a.Notes, s.endsMoves(d)...)
	return a
}

func (d Rebalance) giver() allocation.Holder {
	return allocation.Holder{Region: d.From, Incarnation: d.Giver}
}

func (d Rebalance) taker() allocation.Holder {
	return allocation.Holder{Region: d.To, Incarnation: d.Taker}
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
	for _, h := range []allocation.Holder{d.giver(), d.taker()} {
		r := s.state.regions[h.Region]
		if r == nil || r.doc == nil {
			return fmt.Sprintf("region %s was removed", h.Region)
		}
		if r.doc.value.Draining {
			return fmt.Sprintf("region %s drains", h.Region)
		}
		if r.doc.value.Incarnation != h.Incarnation {
			return fmt.Sprintf("region %s began anew, with nothing", h.Region)
		}
	}
	return ""
}

// finishRebalances notes which moves are over: undone, complete, since in none of its opened terms the giver holds more
// than its target, or ended, since they cannot finish.
func (s *Service) finishRebalances(ctx context.Context) error {
	if err := s.applyPlans(ctx); err != nil {
		return err
	}
	now := s.instant()
	s.state.mu.Lock()
	var due []string
	for _, d := range sortedRebalances(s.state.rebalances) {
		if d.value.State == RebalanceMoving && s.outcome(d.value, now) != RebalanceMoving {
			due = append(due, d.value.ID)
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(id string) (Change, error) { return s.finishRebalance(id, now), nil })
	return err
}

// outcome is the state that a moving rebalance is to have now.
func (s *Service) outcome(d Rebalance, now allocation.Instant) string {
	switch {
	case s.undone(d) != "":
		return RebalanceUndone
	case !s.stillMoving(d, now):
		return RebalanceDone
	case s.couldHear() && s.cannotMove(d.giver(), d.taker()) != "":
		return RebalanceEnded
	}
	return RebalanceMoving
}

// couldHear says whether this leader could have heard a call for as long as a region may be silent: after a start, or after
// etcd was away, the last contacts that it knows are old.
func (s *Service) couldHear() bool {
	fresh := s.tracked.fresh
	return !fresh.IsZero() && s.evidenceAge() <= maxEvidenceAge && s.now().Sub(fresh) >= s.config.ReportUnreachableAfter
}

func (s *Service) finishRebalance(id string, now allocation.Instant) Change {
	d := s.state.rebalances[id]
	if d == nil || d.value.State != RebalanceMoving {
		return Change{}
	}
	next := d.value
	next.State, next.Ended = s.outcome(next, now), s.now().UTC()
	if l, i := s.firstOf(next); l != nil {
		next.Moved = movedIn(next, *l, i)
	}
	change := Change{Reads: []Item{d.item}}
	switch next.State {
	case RebalanceMoving:
		return Change{}
	case RebalanceUndone:
		next.Why = s.undone(next)
	case RebalanceEnded:
		next.Why = s.cannotMove(next.giver(), next.taker()) + ": it ended, what was returned by then has moved, and the rest is the giver's again"
		if !s.takeBack(&change, next, now) {
			return Change{}
		}
	}
	change.Puts = append(change.Puts, put(d.item.Key, next), s.auditLine(background, "rebalance."+next.State, next.Budget, d.value, next))
	return change
}

// takeBack sets the targets of what was not returned back, so that a return that comes long after moves nothing any more.
// It does all terms or none: a ledger that is frozen, or follows a change, is looked at again in the next round.
func (s *Service) takeBack(change *Change, d Rebalance, now allocation.Instant) bool {
	change.Reads = append(change.Reads, s.state.budgets[d.Budget].item)
	for _, term := range d.Terms {
		ref := allocation.ShareRef{Budget: d.Budget, Term: term}
		l := s.state.ledgers[ref]
		if l == nil || l.value.Periods.End() <= now {
			continue
		}
		before, err := s.settled(l.value)
		if err != nil || s.state.behind[ref] {
			return false
		}
		next, err := before.TakeBack(d.giver(), d.taker(), d.Units, countedIndex(d, before, now), s.generation(before))
		if err != nil || len(encode(next)) > maxLedgerBytes {
			return false
		}
		s.state.addLedger(change, ledgerWrite{before: l, after: next})
	}
	return true
}

func (s *Service) stillMoving(d Rebalance, now allocation.Instant) bool {
	for _, term := range d.Terms {
		l := s.state.ledgers[allocation.ShareRef{Budget: d.Budget, Term: term}]
		if l == nil || l.value.Periods.End() <= now {
			continue
		}
		first := countedIndex(d, l.value, now)
		for i, e := range l.value.Entries {
			if i+1 < len(l.value.Entries) && l.value.Entries[i+1].From <= first {
				continue // its periods are over, or do not count
			}
			for _, a := range e.Allocations {
				if a.Holder == d.giver() && a.Held() > a.Target {
					return true
				}
			}
		}
	}
	return false
}

// sweepRebalances are the finished ones that are not kept any more, and the plans of which none is left.
func (s *Service) sweepRebalances(before time.Time) (due []Item) {
	sorted, left := sortedRebalances(s.state.rebalances), map[string]bool{}
	for i, d := range sorted {
		if d.value.State != RebalanceMoving && (d.value.Ended.Before(before) || i < len(sorted)-maxRebalances) {
			due = append(due, d.item)
		} else if d.value.Plan != "" {
			left[d.value.Plan] = true
		}
	}
	for _, p := range sortedPlans(s.state.plans) {
		if p.value.Applied && !left[p.value.ID] && p.value.Made.Before(before) {
			due = append(due, p.item)
		}
	}
	return due
}
