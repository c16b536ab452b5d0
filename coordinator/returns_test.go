package coordinator_test

import (
	"testing"
	"time"

	"tranche/allocation"
)

// A ledger that is over by this replica's clock is not followed any more, so its targets may be from before a region was
// replaced. What somebody gives back in it would then be granted to the incarnation that is gone: nobody could spend it, and
// by a clock that is wrong the period runs still. So such a return waits: it stays in transit, which is safe.
func TestLateReturnIsNotGrantedToOneThatWasReplaced(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	const name = "acme/hourly"
	hourly := func(weights string) string {
		return `{"budget":"` + name + `","unit":"requests","limit":100,"window":{"every":"1h"},"match":{"tenant":"hourly"},"allocation":{"policy":"fixed","weights":` + weights + `}}`
	}
	w.must(r, 201, "POST", "/v1/budgets", hourly(`{"us-east":3,"eu-west":2}`))
	w.settle(r)
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
	}
	w.must(r, 200, "PUT", "/v1/budgets/"+name, hourly(`{"us-east":1,"eu-west":4}`), "If-Match", `"1"`)
	w.settle(r)
	before := w.clock.now()
	term := allocation.At(before.Truncate(time.Hour))
	held := func(incarnation string) (a allocation.Allocation) {
		for _, l := range r.Ledgers() {
			for _, at := range l.EntryAt(0).Allocations {
				if l.Budget == name && l.Periods.Start() == term && at.Incarnation == incarnation {
					a = at
				}
			}
		}
		return a
	}
	east.sync(r) // is asked for 40, and gives them back in its own database
	if a := held(east.incarnation); a.Returned != 0 || a.Target != 20 {
		t.Fatalf("us-east has %+v", a)
	}
	gone := west.incarnation
	west.lost = true
	for range 3 {
		west.sync(r)
	}
	if a := held(gone); west.incarnation == gone || a.Granted != 40 || a.Target != 80 {
		t.Fatalf("eu-west is %s, its ledger knows %+v of %s", west.incarnation, a, gone)
	}

	w.clock.move(2 * time.Hour)
	east.sync(r)
	if a, b := held(gone), held(east.incarnation); a.Granted != 40 || b.Returned != 0 {
		t.Errorf("by a clock that is ahead, %s of eu-west is granted %d, of what us-east returned: %d", gone, a.Granted, b.Returned)
	}
	w.conserved()

	// Once the clock is right again, it is counted, and goes to those who are there.
	w.clock.move(before.Sub(w.clock.now()))
	w.settle(r)
	for range 3 {
		east.sync(r)
		west.sync(r)
	}
	if a, b := held(gone), held(east.incarnation); a.Granted != 40 || b.Returned != 40 {
		t.Errorf("in time, %s of eu-west has %d, and us-east returned %d", gone, a.Granted, b.Returned)
	}
	w.conserved()
}
