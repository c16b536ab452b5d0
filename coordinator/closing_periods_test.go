package coordinator_test

import (
	"slices"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// The record must say in which period every permit went: whoever is billed by the minute cannot use the sum of an hour.
func TestClosingsSayWhatEachPeriodHad(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	first := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
	}
	east.spend("acme/requests", 12)
	w.clock.move(2 * time.Minute)
	east.spend("acme/requests", 60)
	west.spend("acme/requests", 40)
	w.clock.move(2 * time.Hour)
	west.closed, east.closed = first.Until, first.Until
	for range 2 {
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.persist(r)
	}
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	c := get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/requests").Closings[0]
	if len(c.Limits) != 1 || len(c.Regions[1].Periods.Held) != 1 {
		t.Errorf("what does not change is not written once: %v, %+v", c.Limits, *c.Regions[1].Periods)
	}
	list := addsUp(t, c)
	i, _ := c.Periods.Find(allocation.At(w.clock.now()) - 2*60*60)
	for at, want := range map[int][]int64{i - 2: {0, 12, 88}, i - 1: {0, 0, 100}, i: {40, 60, 0}, i + 1: {0, 0, 100}} {
		if p := list[at]; !slices.Equal([]int64{p.Regions[0].Spent, p.Regions[1].Spent, p.Unused}, want) || p.Limit != 100 {
			t.Errorf("period %d is %+v, not %v", at, p, want)
		}
	}
}

// addsUp compares the sums of the periods with those of the term.
func addsUp(t *testing.T, c coordinator.Closing) []coordinator.ClosedPeriod {
	t.Helper()
	list := c.ByPeriod()
	if len(list) != c.Periods.Len() {
		t.Fatalf("%d periods of %d: %+v", len(list), c.Periods.Len(), c)
	}
	var limit, unused, unrecovered int64
	sums := make([]coordinator.ClosedRegion, len(c.Regions))
	for _, p := range list {
		limit, unused, unrecovered = limit+p.Limit, unused+p.Unused, unrecovered+p.Unrecovered
		for k, r := range p.Regions {
			sums[k].Held, sums[k].Spent, sums[k].Reserved = sums[k].Held+r.Held, sums[k].Spent+r.Spent, sums[k].Reserved+r.Reserved
			sums[k].Overdraft, sums[k].Unrecovered = sums[k].Overdraft+r.Overdraft, sums[k].Unrecovered+r.Unrecovered
		}
	}
	if limit != c.Limit || unused != c.Unused || unrecovered != c.Unrecovered {
		t.Errorf("limits %d, unused %d, unrecovered %d, and the term says %d, %d, %d", limit, unused, unrecovered, c.Limit, c.Unused, c.Unrecovered)
	}
	for k, r := range c.Regions {
		if s := sums[k]; s.Held != r.Held || s.Spent != r.Spent || s.Reserved != r.Reserved || s.Overdraft != r.Overdraft || s.Unrecovered != r.Unrecovered {
			t.Errorf("the periods make %+v, and the term says %+v", s, r)
		}
	}
	return list
}
