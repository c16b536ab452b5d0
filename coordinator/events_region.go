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
	return []FeedEvent{{
		Kind: EventIncarnation, Change: EventBegan, Region: name, Incarnation: now, Subject: former,
		Text: fmt.Sprintf("region %s began anew, as incarnation %s: what incarnation %s has not proven to be unspent is stranded", name, now, former),
	}}, now
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
	e := FeedEvent{
		Kind: EventStranded, Change: change, Region: region, Incarnation: incarnation, Reason: records[0].Cause, Units: next.Units,
		Figures: map[string]int64{"budgets": int64(len(records))}, More: max(0, len(records)-maxEventBudgets),
	}
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
