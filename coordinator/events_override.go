package coordinator

import (
	"fmt"

	"tranche/allocation"
)

// An override is told when it begins and when it ends. Where etcd went back, what was told of it may be lost, or its start, or
// its end. So the feed says, once for each history, what holds after it:
//
//	it stands in the budget       began, once more: whoever heard of its end hears that it stands again
//	its record is active, and     ended, with the cause, as soon as its record says so
//	the budget has it no more
//	a region knows a version      lost: the version is named, since an override may have been made in it
//	that etcd lost
//
// While the history is frozen nobody knows yet which of these it is, and nothing is told.

// lookAtOverride compares the override that stands with the one that was told.
func (s *Service) lookAtOverride(next *ToldBudget, scope EventBudget) (events []FeedEvent) {
	if s.state.frozen() {
		return nil
	}
	now, before, history := "", next.Override, s.state.descent().History.Number
	if b := s.state.budgets[next.Budget]; b != nil && !b.value.Deleted && b.value.Budget.Override != nil {
		now = b.value.Budget.Override.ID
	}
	if before != "" && before != now {
		d := s.state.overrides[before]
		if d != nil && d.value.State == OverrideActive {
			return nil // how it ended stands in its record, in a moment
		}
		events = append(events, overrideEvent(before, EventEnded, d, scope))
	}
	again := before == now && next.OverrideIn != 0 && next.OverrideIn < history
	if now != "" && (before != now || again) {
		e := overrideEvent(now, EventBegan, s.state.overrides[now], scope)
		if again {
			e.Text += fmt.Sprintf("; so it stands in history %d, also if you heard of its end before etcd lost history", history)
		}
		events = append(events, e)
	}
	if next.Override = now; now == "" {
		next.OverrideIn = 0
	} else if next.OverrideIn == 0 || len(events) > 0 {
		next.OverrideIn = history
	}
	return events
}

func overrideEvent(id string, change EventChange, d *doc[Override], scope EventBudget) FeedEvent {
	e := FeedEvent{Kind: EventOverride, Change: change, EventBudget: scope, Subject: id, Text: fmt.Sprintf("%s: an override %s", scope.Budget, change)}
	if d == nil {
		return e
	}
	o := d.value
	e.Figures, e.Until, e.By, e.Reason = map[string]int64{"units": o.Units, "limit": o.Limit, "periods": o.Periods, "total": o.Total}, o.Until, o.By, o.Reason
	e.Text = fmt.Sprintf("%s: the limit is raised by %d to %d %s until %s", scope.Budget, o.Units, o.Limit+o.Units, o.Unit, o.Until)
	if change == EventEnded {
		e.By, e.Reason, e.Text = o.EndedBy, o.Why, fmt.Sprintf("%s: the limit is not raised by %d %s any more", scope.Budget, o.Units, o.Unit)
	}
	return e
}

// lookAtLost tells that a region knows a version of the budget which etcd lost.
func (s *Service) lookAtLost(next *ToldBudget, scope EventBudget) (events []FeedEvent) {
	d := s.state.budgets[next.Budget]
	if d == nil || s.state.frozen() {
		return nil
	}
	b, lost := d.value, d.value.LostVersion
	if b.Lost {
		lost = b.Version
	}
	if lost <= next.Lost {
		return nil
	}
	next.Lost = lost
	e := FeedEvent{Kind: EventHistory, Change: EventLost, EventBudget: scope, Figures: map[string]int64{"version": lost, "had": b.Before, "limit": b.Budget.LimitOrZero()}}
	e.Text = fmt.Sprintf("%s: etcd lost version %d, which a region knows, and had %d: the lower limit counts, %d %s, without an override that was made in what was lost",
		next.Budget, lost, b.Before, b.Budget.LimitOrZero(), b.Budget.Unit)
	if b.Lost {
		e.Figures = map[string]int64{"version": lost}
		e.Text = fmt.Sprintf("%s: etcd lost its declaration, which regions know as version %d: it goes on there as they know it until it is declared again", next.Budget, lost)
	}
	return []FeedEvent{e}
}

// touchOverride notes that the override of a budget may be another, or stand in another history.
func (s *state) touchOverride(d *doc[Override]) { s.feed.touch(topic{'b', d.value.Budget}) }

// touchTold looks again, under another standing, at the budgets of which an override was told, or that etcd lost a version of.
func (s *state) touchTold() {
	for name, d := range s.feed.budgets {
		if d.value.Override != "" {
			s.feed.touch(topic{'b', name})
		}
	}
	for _, name := range s.names {
		if b := s.budgets[name].value; b.Lost || b.LostVersion > 0 {
			s.feed.touch(topic{'b', name})
		}
	}
}

// gone says why a budget does not have an override any more that its record says is active.
func (s *state) gone(o Override) string {
	d := s.budgets[o.Budget]
	switch {
	case d == nil:
		return "the budget is gone"
	case d.value.Lost || d.value.LostVersion > 0 && d.value.Under != (allocation.History{}) && d.value.Under == s.descent().History:
		return "etcd lost history: of the budget a region knows a version that was made after it, and the lower limit counts"
	case d.value.Deleted:
		return "the budget was deleted"
	case d.value.Budget.LimitOrZero() == 0:
		return "the budget's limit was set to 0"
	}
	return "the budget does not have it any more"
}
