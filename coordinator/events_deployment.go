package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
)

// lookAtDeployment compares etcd's history, and the blocks, with what was told.
func (s *Service) lookAtDeployment() told {
	cur := s.state.feed.deployment
	if s.state.standing == nil {
		return told{}
	}
	standing := s.state.standing.value
	next := ToldDeployment{Format: documentFormat, History: standing.History}
	if cur != nil {
		next = cur.value
	}
	var t told
	write := cur == nil
	if standing.History.Number > next.History.Number {
		e := FeedEvent{
			Kind: EventHistory, Change: EventBegan, Subject: standing.History.String(),
			Text: fmt.Sprintf("etcd lost history: history %s began, after %s", standing.History, next.History),
		}
		if standing.Freeze != nil {
			e.Reason = standing.Freeze.Why
		}
		next.History, t.events = standing.History, append(t.events, e)
	}
	if frozen := standing.Freeze != nil; frozen != next.Frozen {
		e := FeedEvent{Kind: EventFrozen, Change: EventEnded, Subject: standing.History.String(), Text: "all regions have stated what they hold: permits are granted again"}
		if next.Frozen = frozen; frozen {
			e.Change, e.Reason = EventBegan, standing.Freeze.Why
			e.Text = "nothing is granted until every region has stated what it holds; missing: " + strings.Join(s.state.awaited(), ", ")
		}
		t.events = append(t.events, e)
	}
	blocks, events := s.lookAtBlocks(next.Blocks)
	next.Blocks, t.events = blocks, append(t.events, events...)
	if write || len(t.events) > 0 {
		t.read, t.put = cur.known(toldDeploymentKey), put(toldDeploymentKey, next)
	}
	return t
}

// lookAtBlocks compares the blocks in force with those that were told, at most half a transaction's events at once: the rest
// is found by the next look.
func (s *Service) lookAtBlocks(before map[string]allocation.Instant) (after map[string]allocation.Instant, events []FeedEvent) {
	after = maps.Clone(before)
	if after == nil {
		after = map[string]allocation.Instant{}
	}
	tell := func(name string, change EventChange) {
		if len(events) >= maxToldDocuments/2 {
			s.state.feed.touch(topic{kind: 'd'})
			return
		}
		e := FeedEvent{Kind: EventBlock, Change: change, Subject: name, Text: fmt.Sprintf("block %s is over", name)}
		if d := s.state.documents[allocation.DocumentRef{Kind: allocation.KindBlock, Name: name}]; d != nil {
			if b, err := d.value.Block(); err == nil {
				e = blockEvent(name, b, change)
			}
		}
		if events = append(events, e); change == EventBegan {
			after[name] = e.Until
		} else {
			delete(after, name)
		}
	}
	now := s.instant()
	inForce := map[string]bool{}
	for _, ref := range s.state.sortedDocuments(allocation.KindBlock) {
		if b, err := s.state.documents[ref].value.Block(); err == nil && b.Lifted == nil && now < b.Until {
			if inForce[ref.Name] = true; before[ref.Name] == 0 {
				tell(ref.Name, EventBegan)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if !inForce[name] {
			tell(name, EventEnded)
		}
	}
	return after, events
}

func blockEvent(name string, b allocation.Block, change EventChange) FeedEvent {
	scope := EventBudget{Capability: b.Match["capability"], Tenant: b.Match["tenant"], Match: b.Match}
	e := FeedEvent{Kind: EventBlock, Change: change, Subject: name, EventBudget: scope, Until: b.Until, Reason: b.Reason, By: b.By}
	switch {
	case change == EventBegan:
		e.Text = fmt.Sprintf("%s is refused until %s", b.Says(), b.Until)
	case b.Lifted != nil:
		e.By, e.Reason = b.Lifted.By, b.Lifted.Reason
		e.Text = fmt.Sprintf("%s is not refused any more: the block was lifted", b.Says())
	default:
		e.Text = fmt.Sprintf("%s is not refused any more: the block is over", b.Says())
	}
	return e
}
