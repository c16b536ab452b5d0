package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of one transaction of events: with the feed's document it stays within what the Committer takes.
const (
	maxToldDocuments = 40
	maxSubjectsAct   = 200 // that are looked at under one hold of the lock
)

// told is what one look at a subject found.
type told struct {
	events []FeedEvent
	read   Item
	put    Item // what was told, as it is then; no key: nothing changes
}

// noticeEvents is one look at all that changed since the last one.
func (s *Service) noticeEvents(ctx context.Context) error {
	now := s.now()
	if now.Sub(s.noticed).Abs() < eventsEvery || s.evidenceAge() > maxEvidenceAge || s.clockNoted() == clockWrong {
		return nil
	}
	s.noticed = now
	s.state.mu.Lock()
	due := s.dueSubjects()
	s.state.mu.Unlock()
	for count := 0; len(due) > 0 && count < maxToldAtOnce; {
		var done, found int
		err := s.act(ctx, func() (Change, error) {
			var change Change
			change, done, found = s.tell(due)
			return change, nil
		})
		if err != nil {
			s.lookLater(due)
			return err
		}
		due, count = due[done:], count+found
		s.metrics.events.Add(float64(found))
	}
	s.lookLater(due)
	return nil
}

// dueSubjects takes what is to be looked at: regions and the deployment first.
func (s *Service) dueSubjects() []topic {
	f := &s.state.feed
	due := f.moved
	if f.all {
		due = map[topic]bool{{kind: 'd'}: true}
		for _, r := range s.state.ordered {
			due[topic{'r', r.name}] = true
		}
		for name := range s.state.terms {
			due[topic{'b', name}] = true
		}
		f.moved, f.all = due, false
		s.state.touchTold()
	}
	f.moved, f.all = map[topic]bool{}, false
	for name := range f.over {
		due[topic{'b', name}] = true
	}
	if d := f.deployment; d != nil {
		for _, until := range d.value.Blocks {
			if until <= s.instant() {
				due[topic{kind: 'd'}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(due), func(a, b topic) int { return cmp.Or(cmp.Compare(b.kind, a.kind), cmp.Compare(a.name, b.name)) })
}

// lookLater leaves subjects to the next look.
func (s *Service) lookLater(due []topic) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	for _, x := range due {
		s.state.feed.touch(x)
	}
}

// tell is the change that tells what differs of the first subjects; done says how many it looked at.
func (s *Service) tell(due []topic) (change Change, done, found int) {
	f := &s.state.feed
	head, known := FeedDocument{Format: documentFormat}, f.head.known(feedKey)
	if f.head != nil {
		head = f.head.value
	}
	for _, x := range due[:min(len(due), maxSubjectsAct)] {
		t := s.look(x)
		if len(change.Puts)+len(t.events)+1 > maxToldDocuments && done > 0 {
			break
		}
		done++
		if t.put.Key == "" {
			continue
		}
		change.Reads, change.Puts = append(change.Reads, t.read), append(change.Puts, t.put)
		for _, e := range t.events {
			head.Last, head.Total = head.number(s.state.descent().History), head.Total+1
			head.ID = eventID(head.Last, s.random.hex(4))
			e.Format, e.ID, e.At = documentFormat, head.ID, s.now().UTC()
			change.Reads = append(change.Reads, Item{Key: eventPrefix + e.ID})
			change.Puts = append(change.Puts, put(eventPrefix+e.ID, e))
			found++
		}
	}
	if found > 0 {
		change.Reads, change.Puts = append(change.Reads, known), append(change.Puts, put(feedKey, head))
	}
	return change, done, found
}

func (s *Service) look(x topic) told {
	switch x.kind {
	case 'b':
		return s.lookAtBudget(x.name)
	case 'r':
		return s.lookAtRegion(x.name)
	}
	return s.lookAtDeployment()
}

// partOf is so many percent of a limit, rounded up: what must be used for it to be reached.
func partOf(limit, percent int64) int64 {
	return limit/100*percent + (limit%100*percent+99)/100
}

// lookAtBudget compares a budget's running period with what was told of it. Of a template only the sums are known, so no
// part of it is told: it would be the part of no limit.
func (s *Service) lookAtBudget(name string) told {
	key := toldBudgetKey(name)
	cur := s.state.feed.budgets[name]
	next := ToldBudget{Format: documentFormat, Budget: name}
	if cur != nil {
		next = cur.value
	}
	use, period := BudgetUse{}, allocation.Period{}
	scope := EventBudget{Budget: name}
	running, parts := s.state.runningTerm(name, s.instant()), allocation.DefaultThresholds()
	if b := s.state.budgets[name]; b != nil {
		scope, parts = scopeOf(b.value.Budget), b.value.Budget.Told()
	}
	if running != nil {
		i, _ := running.Periods.Find(s.instant())
		use, period = s.useOf(*running, i), running.Periods.At(i)
		scope.Unit, scope.Period = running.Unit, &period
		if running.Template {
			parts = nil
		}
	}
	var t told
	next.Crossed = slices.Clone(next.Crossed)
	for _, percent := range parts {
		if use.Limit > 0 && next.cross(percent, use, period, s.now()) {
			t.events = append(t.events, FeedEvent{
				Kind: EventThreshold, Change: EventCrossed, EventBudget: scope, Figures: use.figures(percent),
				Text: fmt.Sprintf("%s: %d %% of %d %s is used in the period of %s", name, percent, use.Limit, use.Unit, period.Start),
			})
		}
	}
	switch over := use.Overcommitted > 0; {
	case over && next.Over == nil:
		next.Over = &period
		t.events = append(t.events, FeedEvent{
			Kind: EventOvercommitted, Change: EventBegan, EventBudget: scope, Figures: use.figures(0),
			Text: fmt.Sprintf("%s: %d %s more are out than the limit of %d", name, use.Overcommitted, use.Unit, use.Limit),
		})
	case !over && next.Over != nil:
		next.Over = nil
		t.events = append(t.events, FeedEvent{
			Kind: EventOvercommitted, Change: EventEnded, EventBudget: scope, Figures: use.figures(0),
			Text: fmt.Sprintf("%s: no more is out than the limit of %d %s", name, use.Limit, use.Unit),
		})
	}
	t.events = append(t.events, s.lookAtLost(&next, scope)...)
	t.events = append(t.events, s.lookAtOverride(&next, scope)...)
	if len(t.events) > 0 || cur != nil && !slices.Equal(next.Crossed, cur.value.Crossed) {
		t.read, t.put = cur.known(key), put(key, next)
	}
	return t
}

// figures are those of an event.
func (u BudgetUse) figures(percent int64) map[string]int64 {
	m := map[string]int64{"limit": u.Limit, "spent": u.Spent, "reserved": u.Reserved}
	if percent > 0 {
		m["percent"] = percent
	} else {
		m["overcommitted"] = u.Overcommitted
	}
	return m
}

// toldAgainBelow is how many percent of the limit less must be used in between for a level to be told again in one period:
// reservations come and go, and a level that they hover about is one crossing.
const toldAgainBelow = 10

// cross notes whether a part of the period is used up, and says whether it is to be told. In one period it is told again
// only if less was used up in between: because the limit was raised, or far less, since much was released; of short periods
// once in an hour.
func (d *ToldBudget) cross(percent int64, use BudgetUse, period allocation.Period, now time.Time) bool {
	i := slices.IndexFunc(d.Crossed, func(c ToldLevel) bool { return c.Percent == percent })
	used, level := use.Spent+use.Reserved, partOf(use.Limit, percent)
	reached, far := used >= level, used < level-partOf(use.Limit, toldAgainBelow)
	switch {
	case i < 0 && !reached:
		return false
	case i < 0:
		d.Crossed = append(d.Crossed, ToldLevel{Percent: percent, Period: period.Start, End: period.End, At: now.UTC(), Limit: use.Limit})
		return true
	}
	told := &d.Crossed[i]
	switch same := told.Period == period.Start; {
	case same && reached, !same && !reached, !same && told.short() && now.Sub(told.At).Abs() < shortWindow:
		return false
	case same && (told.short() || use.Limit <= told.Limit && !far):
		return false
	case same:
		d.Crossed = slices.Delete(d.Crossed, i, i+1)
		return false
	}
	*told = ToldLevel{Percent: percent, Period: period.Start, End: period.End, At: now.UTC(), Limit: use.Limit}
	return true
}
