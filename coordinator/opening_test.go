package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// openingJSON is a budget an hour, declared at 10:00:07.
func openingJSON(limit, spent string) string {
	hourly := strings.Replace(budgetJSON("acme/moved", limit), `"every":"1m"`, `"every":"1h"`, 1)
	return strings.Replace(hourly, `"limit"`, `"opening_spent":`+spent+`,"limit"`, 1)
}

// What the old limiter let through in the running period must not be let through once more by the new budget. The field
// counts when the budget is declared and never again: neither for later periods, nor after a change or a deletion.
func TestOpeningSpent(t *testing.T) {
	w, east, west := two(t, 2)
	r := w.replicas[0]
	if a := w.must(r, 422, "POST", "/v1/budgets", openingJSON("1000", "1001")); a["field"] != "opening_spent" {
		t.Errorf("more than the limit: %v", a)
	}
	template := strings.Replace(openingJSON("100", "50"), "acme/moved", "acme/{caller}", 1)
	if a := w.must(r, 422, "POST", "/v1/budgets", template); a["field"] != "opening_spent" {
		t.Errorf("a template: %v", a)
	}
	w.must(r, 201, "POST", "/v1/budgets", openingJSON("2000", "1200"))
	w.settle(r)
	w.conserved()
	terms := get[coordinator.SharesAnswer](w, w.replicas[1], "/v1/shares/acme/moved").Terms
	first, second := terms[0], terms[1]
	if first.OpeningSpent != 1200 || first.Unallocated != 0 || first.Overcommitted != 0 || sumGranted(first) != 800 {
		t.Errorf("the first period: %+v", first)
	}
	if second.OpeningSpent != 0 || sumGranted(second) != 2000 {
		t.Errorf("the second period: %+v", second)
	}
	for _, x := range []*fakeRegion{east, west} {
		x.untilQuiet(r)
	}
	east.spend("acme/moved", 480)
	if st := get[coordinator.Status](w, r, "/v1/status"); len(st.Above80) != 0 {
		t.Errorf("1200 of 2000 are spent as far as it was stated, and that is above 80 %%: %+v", st.Above80)
	}
	east.sync(r)
	if st := get[coordinator.Status](w, r, "/v1/status"); len(st.Above80) != 1 || st.Above80[0].Spent != 1680 {
		t.Errorf("of 1680 spent it says: %+v", st.Above80)
	}

	// A lower limit beside it, by the same file: 1680 and what west holds are out.
	version := func() string {
		return fmt.Sprintf(`"%v"`, w.must(r, 200, "GET", "/v1/budgets/acme/moved", nil)["version"])
	}
	w.must(r, 200, "PUT", "/v1/budgets/acme/moved", openingJSON("1000", "1200"), "If-Match", version())
	w.conserved()
	if now := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/moved").Terms[0]; now.OpeningSpent != 1200 || now.Overcommitted != 1000 || now.Unallocated != 0 {
		t.Errorf("lowered: %+v", now)
	}
	if a := w.must(r, 422, "PUT", "/v1/budgets/acme/moved", openingJSON("2000", "1300"), "If-Match", version()); a["field"] != "opening_spent" {
		t.Errorf("another opening: %v", a)
	}
	w.must(r, 200, "DELETE", "/v1/budgets/acme/moved", nil, "If-Match", version())
	if a := w.must(r, 422, "POST", "/v1/budgets", openingJSON("2000", "7")); a["field"] != "opening_spent" {
		t.Errorf("declared again with another opening: %v", a)
	}
	w.must(r, 201, "POST", "/v1/budgets", openingJSON("2000", "1200"))
	w.settle(r)
	w.conserved()
	for i, term := range get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/moved").Terms {
		if want := map[bool]int64{true: 1200}[i == 0]; term.OpeningSpent != want {
			t.Errorf("declared again, term %d begins with %d spent", i, term.OpeningSpent)
		}
	}

	// The closing record keeps it: else the record of the first period would not add up with the old limiter's.
	until := first.Until
	w.clock.move(2 * time.Hour)
	for _, x := range []*fakeRegion{east, west} {
		x.closed = until
		x.untilQuiet(r)
	}
	w.persist(r)
	w.persist(r)
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	closings := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/moved").Closings
	if len(closings) == 0 || closings[0].Closing.OpeningSpent != 1200 {
		t.Errorf("%+v", closings)
	}
	for _, l := range r.Ledgers() {
		if l.Budget == "acme/moved" && l.EntryAt(0).OpeningSpent != 0 {
			t.Errorf("the term of %s begins with %d spent", l.Periods.Start(), l.EntryAt(0).OpeningSpent)
		}
	}
}

func sumGranted(t coordinator.TermShares) (sum int64) {
	for _, r := range t.Regions {
		if r.Class == allocation.General {
			sum += r.Granted
		}
	}
	return sum
}

// etcd goes back to before the declaration, and nobody but the regions knows of the budget: what was spent before it must
// not be granted, neither to them nor after it is declared again.
func TestOpeningSpentThatEtcdLost(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.must(r, 201, "POST", "/v1/budgets", openingJSON("2000", "1200"))
	w.round(r, east, west)
	w.restore(snapshot)
	w.round(r, east, west)
	if w.standing().Freeze != nil {
		t.Fatalf("%+v", w.standing())
	}
	again := openingJSON("2000", "1200")
	if a := w.must(r, 422, "POST", "/v1/budgets", again); a["field"] != "opening_spent" {
		t.Errorf("declared again: %v", a)
	}
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(again, `"opening_spent":1200,`, "", 1))
	w.round(r, east, west)
	w.conserved()
	first := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/moved").Terms[0]
	if first.OpeningSpent != 1200 || sumHeld(first) != 800 || first.Unallocated != 0 {
		t.Errorf("the first period: %+v", first)
	}
}

func sumHeld(t coordinator.TermShares) (sum int64) {
	for _, r := range t.Regions {
		sum += r.Granted - r.Returned
	}
	return sum
}
