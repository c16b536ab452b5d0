package coordinator

import "fmt"

// lookAtOverride compares the override that stands with the one that was told.
func (s *Service) lookAtOverride(budget, before string, scope EventBudget) (events []FeedEvent, now string) {
	if b := s.state.budgets[budget]; b != nil && !b.value.Deleted && b.value.Budget.Override != nil {
		now = b.value.Budget.Override.ID
	}
	for _, x := range []struct {
		id     string
		change EventChange
	}{{before, EventEnded}, {now, EventBegan}} {
		if x.id == "" || before == now {
			continue
		}
		e := FeedEvent{Kind: EventOverride, Change: x.change, EventBudget: scope, Subject: x.id, Text: fmt.Sprintf("%s: an override %s", budget, x.change)}
		if d := s.state.overrides[x.id]; d != nil {
			o := d.value
			e.Figures, e.Until, e.By, e.Reason = map[string]int64{"units": o.Units, "limit": o.Limit, "periods": o.Periods, "total": o.Total}, o.Until, o.By, o.Reason
			e.Text = fmt.Sprintf("%s: the limit is raised by %d to %d %s until %s", budget, o.Units, o.Limit+o.Units, o.Unit, o.Until)
			if x.change == EventEnded {
				e.By, e.Reason, e.Text = o.EndedBy, o.Why, fmt.Sprintf("%s: the limit is not raised by %d %s any more", budget, o.Units, o.Unit)
			}
		}
		events = append(events, e)
	}
	return events, now
}
