package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
)

// lookAtRegion compares a region's incarnation, and what is stranded in it, with what was told. However many budgets are
// stranded, that is one event for each incarnation: it names the largest.
func (s *Service) lookAtRegion(name string) told {
	key := toldRegionKey(name)
	cur := s.state.feed.toldOf[name]
	next := ToldRegion{Format: documentFormat, Region: name}
	if cur != nil {
		next = cur.value
	}
	var t told
	if e, now := s.lookAtIncarnation(name, next.Incarnation); now != next.Incarnation {
		next.Incarnation = now
		t.put = Item{Key: key}
		t.events = append(t.events, e...)
	}
	next.Stranded = slices.Clone(next.Stranded)
	records := s.strandedNow(name)
	for _, incarnation := range slices.Sorted(maps.Keys(records)) {
		if e, ok := next.tell(name, incarnation, records[incarnation], s.state.budgets, s.now()); ok {
			t.events = append(t.events, e)
		}
	}
	next.Stranded = slices.DeleteFunc(next.Stranded, func(d ToldStranded) bool {
		if len(records[d.Incarnation]) > 0 {
			return false
		}
		t.events = append(t.events, s.endedStranding(name, d))
		return true
	})
	if len(t.events) > 0 || t.put.Key != "" {
		t.read, t.put = cur.known(key), put(key, next)
	}
	return t
}

// lookAtIncarnation says which incarnation is known to live now. The first of a region is no news, and before anything was
// ever told neither is a later one.
func (s *Service) lookAtIncarnation(name, before string) (events []FeedEvent, now string) {
	r := s.state.regions[name]
	if r == nil || r.doc == nil || !r.doc.value.Confirmed || r.doc.value.Incarnation == before || len(r.doc.value.Former) == 0 {
		return nil, before
	}
	now = r.doc.value.Incarnation
	former := cmp.Or(before, r.doc.value.Former[len(r.doc.value.Former)-1])
	if s.state.feed.deployment == nil {
		return nil, now
	}
	return []FeedEvent{{Kind: EventIncarnation, Change: EventBegan, Region: name, Incarnation: now, Subject: former,
		Text: fmt.Sprintf("region %s began anew, as incarnation %s: what incarnation %s has not proven to be unspent is stranded", name, now, former)}}, now
}

// strandedNow are a region's open records, by incarnation.
func (s *Service) strandedNow(region string) map[string][]Stranding {
	out := map[string][]Stranding{}
	for _, e := range s.strandingsOf(region) {
		if e.Ended == nil && e.Back == nil {
			out[e.Incarnation] = append(out[e.Incarnation], e)
		}
	}
	return out
}

// strandingsOf are all records of a region.
func (s *Service) strandingsOf(region string) (out []Stranding) {
	for shard := range allocation.Shards {
		if d := s.state.strandings[strandingKey(region, shard)]; d != nil {
			out = append(out, d.value.Entries...)
		}
	}
	return out
}

// tell notes what is stranded of an incarnation now, and makes the event if it began or grew by a tenth.
func (d *ToldRegion) tell(region, incarnation string, records []Stranding, budgets map[string]*doc[BudgetDocument], now time.Time) (FeedEvent, bool) {
	next := ToldStranded{Incarnation: incarnation, Since: now.UTC(), Budgets: len(records), Units: map[string]int64{}}
	for _, e := range records {
		next.Units[e.Unit] = allocation.SumUp(next.Units[e.Unit], e.Most)
	}
	change := EventBegan
	if i := slices.IndexFunc(d.Stranded, func(o ToldStranded) bool { return o.Incarnation == incarnation }); i < 0 {
		d.Stranded = append(d.Stranded, next)
	} else {
		change, next.Since = EventGrew, d.Stranded[i].Since
		if !next.grewFrom(d.Stranded[i]) {
			return FeedEvent{}, false
		}
		d.Stranded[i] = next
	}
	slices.SortFunc(records, func(a, b Stranding) int { return cmp.Or(cmp.Compare(b.Most, a.Most), cmp.Compare(a.Budget, b.Budget)) })
	e := FeedEvent{Kind: EventStranded, Change: change, Region: region, Incarnation: incarnation, Reason: records[0].Cause, Units: next.Units,
		Figures: map[string]int64{"budgets": int64(len(records))}, More: max(0, len(records)-maxEventBudgets)}
	for _, r := range records[:min(len(records), maxEventBudgets)] {
		scope := EventBudget{Budget: r.Budget, Unit: r.Unit}
		if b := budgets[r.Budget]; b != nil {
			scope = scopeOf(b.value.Budget)
		}
		scope.Period, scope.Stranded = &r.Period, r.Most
		e.Budgets = append(e.Budgets, scope)
	}
	if len(records) == 1 {
		e.EventBudget, e.Budgets = e.Budgets[0], nil
	}
	e.Text = fmt.Sprintf("region %s (%s): %s stranded, of %s, in the running periods", region, e.Reason, unitWords(next.Units), countWord(len(records), "budget"))
	return e, true
}

// grewFrom says whether it is a tenth more, of some unit or of budgets.
func (d ToldStranded) grewFrom(before ToldStranded) bool {
	for unit, n := range d.Units {
		if was := before.Units[unit]; n > was+was/10 {
			return true
		}
	}
	return d.Budgets > before.Budgets+before.Budgets/10
}

// endedStranding tells how it ended.
func (s *Service) endedStranding(region string, d ToldStranded) FeedEvent {
	e := FeedEvent{Kind: EventStranded, Change: EventEnded, Region: region, Incarnation: d.Incarnation, Figures: map[string]int64{}, Units: map[string]int64{}}
	for _, r := range s.strandingsOf(region) {
		if r.Incarnation != d.Incarnation || r.Ended != nil && r.Ended.Before(d.Since) {
			continue
		}
		how := r.How
		if r.Ended == nil {
			how = ResolvedReturned // noted as back; the next look ends it
		}
		e.Figures[strings.ReplaceAll(how, " ", "_")]++
		e.Units[r.Unit] = allocation.SumUp(e.Units[r.Unit], r.LateSpent)
	}
	e.Text = fmt.Sprintf("region %s, incarnation %s: nothing is stranded any more", region, d.Incarnation)
	return e
}

// unitWords is sums by unit, for a person.
func unitWords(units map[string]int64) string {
	var parts []string
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		parts = append(parts, fmt.Sprintf("%d %s", units[unit], unit))
	}
	return strings.Join(parts, ", ")
}

func countWord(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

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
		e := FeedEvent{Kind: EventHistory, Change: EventBegan, Subject: standing.History.String(),
			Text: fmt.Sprintf("etcd lost history: history %s began, after %s", standing.History, next.History)}
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
