package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// yearOf is a budget of a year with a limit and weights.
func yearOf(limit, weights string) string {
	return strings.Replace(ofYear("slow", `{"policy":"fixed","weights":{`+weights+`}}`), `"limit":100`, `"limit":`+limit, 1)
}

const threeToTwo = `"us-east":3,"eu-west":2`

func withYear(t *testing.T) (w *world, east, west *fakeRegion, change func(version, limit, weights string)) {
	t.Helper()
	w, east, west = two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearOf("100", threeToTwo))
	east.untilQuiet(r)
	west.untilQuiet(r)
	return w, east, west, func(version, limit, weights string) {
		t.Helper()
		w.must(r, 200, "PUT", "/v1/budgets/slow", yearOf(limit, weights), "If-Match", `"`+version+`"`)
	}
}

// A raised limit must be usable in every region within one call of it: whoever pays for more waits for nothing else.
func TestRaisedLimitIsUsableWithinOneSync(t *testing.T) {
	w, east, west, change := withYear(t)
	r := w.replicas[0]
	if a, b := east.spend("slow", 1000), west.spend("slow", 1000); a != 60 || b != 40 {
		t.Fatal(a, b)
	}
	change("1", "250", threeToTwo)
	east.sync(r)
	west.sync(r)
	if a, b := east.spend("slow", 1000), west.spend("slow", 1000); a != 90 || b != 60 {
		t.Errorf("after one call: %d and %d more, not 90 and 60", a, b)
	}
	w.conserved()
}

// Zero means none, in each region from its next call on, and what is then overcommitted is what was spent.
func TestLimitZeroRefusesAtOnce(t *testing.T) {
	w, east, west, change := withYear(t)
	r := w.replicas[0]
	east.spend("slow", 7)
	change("1", "0", threeToTwo)
	east.sync(r)
	west.sync(r)
	if a, b := east.spend("slow", 1), west.spend("slow", 1); a+b != 0 {
		t.Errorf("%d and %d are spent of a limit of 0", a, b)
	}
	w.round(r, east, west)
	if over := get[coordinator.SharesAnswer](w, r, "/v1/shares/slow").Terms[0].Overcommitted; over != 7 {
		t.Errorf("overcommitted by %d after the returns, not by the 7 that were spent", over)
	}
	change("2", "100", threeToTwo)
	w.round(r, east, west)
	if a, b := east.spend("slow", 1000), west.spend("slow", 1000); a != 53 || b != 40 {
		t.Errorf("restored: %d and %d more are spent", a, b)
	}
	w.conserved()
}

// Changed weights move permits as returns arrive: the region that gains has none of them before the other gave them up.
func TestChangedWeightsWaitForReturns(t *testing.T) {
	w, east, west, change := withYear(t)
	r := w.replicas[0]
	east.spend("slow", 30)
	change("1", "100", `"us-east":1,"eu-west":4`)
	west.untilQuiet(r)
	if n := west.spend("slow", 1000); n != 40 {
		t.Errorf("before the other returned: west spends %d", n)
	}
	w.round(r, east, west)
	// East had spent 30 of what would be 20: it returns 30 of 60.
	if a, b := east.spend("slow", 1000), west.spend("slow", 1000); a != 0 || b != 30 {
		t.Errorf("then east spends %d more, west %d; not 0 and 30", a, b)
	}
	w.conserved()
}

// A region that is added and given a weight gets its part of the running period as the others return it.
func TestAddedRegionGetsItsPart(t *testing.T) {
	w, east, west, change := withYear(t)
	r := w.replicas[0]
	south := w.addRegion("ap-south")
	south.join(r)
	change("1", "100", threeToTwo+`,"ap-south":5`)
	south.untilQuiet(r)
	if n := south.spend("slow", 1000); n != 0 {
		t.Errorf("before anybody returned: %d", n)
	}
	w.round(r, east, west, south)
	if a, b, c := east.spend("slow", 1000), west.spend("slow", 1000), south.spend("slow", 1000); a != 30 || b != 20 || c != 50 {
		t.Errorf("%d, %d and %d; not 30, 20 and 50", a, b, c)
	}
	w.conserved()
}

// A changed zone counts from the end of the opened terms, and no period overlaps another.
func TestZoneChange(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	daily := func(zone string) string {
		return strings.Replace(yearOf("100", threeToTwo), `{"calendar":"year"}`, `{"calendar":"day","zone":"`+zone+`"}`, 1)
	}
	w.must(r, 201, "POST", "/v1/budgets", daily("UTC"))
	through := get[coordinator.SharesAnswer](w, r, "/v1/shares/slow").OpenedThrough
	a := w.must(r, 200, "PUT", "/v1/budgets/slow", daily("Asia/Tokyo"), "If-Match", `"1"`)
	if a["window_from"] != through.String() {
		t.Errorf("the zone counts from %v, terms are opened through %s", a["window_from"], through)
	}
	// Until there the days are those of UTC; from there on they end at 15:00 of it.
	w.clock.move(through.Time().Sub(w.clock.now()) - time.Hour)
	east.sync(r) // so that the clock is trusted
	w.settle(r)
	terms := get[coordinator.SharesAnswer](w, r, "/v1/shares/slow").Terms
	if n := len(terms); n < 2 || terms[n-1].Until <= through {
		t.Fatalf("no term of the new zone is open: %+v", terms)
	}
	for i, term := range terms {
		if i > 0 && term.Term != terms[i-1].Until {
			t.Errorf("a term begins at %s, the one before it ended at %s", term.Term, terms[i-1].Until)
		}
		if hour := term.Until.Time().UTC().Hour(); term.Term >= through && hour != 15 || term.Term < through && hour != 0 {
			t.Errorf("the term of %s ends at %s", term.Term, term.Until)
		}
	}
}
