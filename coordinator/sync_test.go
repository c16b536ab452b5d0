package coordinator_test

import (
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// two is a world with two regions that have joined, and a budget of 100 that both have stored.
func two(t *testing.T, replicas int) (w *world, east, west *fakeRegion) {
	t.Helper()
	w = newWorld(t, replicas)
	east, west = w.addRegion("us-east"), w.addRegion("eu-west")
	east.join(w.replicas[0])
	west.join(w.replicas[0])
	w.must(w.replicas[0], 201, "POST", "/v1/budgets", budgetJSON("acme/requests", "100"))
	east.untilQuiet(w.replicas[0])
	west.untilQuiet(w.replicas[0])
	return w, east, west
}

// The main job: without it no region gets a permit, or two get the same.
func TestGrantSixtyAndForty(t *testing.T) {
	w, east, west := two(t, 1)
	if a, b := east.spend("acme/requests", 1000), west.spend("acme/requests", 1000); a != 60 || b != 40 {
		t.Fatalf("spent %d and %d, not 60 and 40", a, b)
	}
	east.untilQuiet(w.replicas[0])
	west.untilQuiet(w.replicas[0])
	shares := get[coordinator.SharesAnswer](w, w.replicas[0], "/v1/shares/acme/requests")
	running := shares.Terms[0]
	if len(running.Regions) != 2 || running.Regions[0].Spent != 40 || running.Regions[1].Spent != 60 || running.Unallocated != 0 {
		t.Errorf("shares %+v", running)
	}
	w.conserved()
}

// A lowered limit comes back by the owners' own returns only, and what was spent stays spent.
func TestLowerRaiseDelete(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	east.spend("acme/requests", 50)
	answer := w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "50"), "If-Match", `"1"`)
	if answer["version"].(float64) != 2 {
		t.Errorf("version %v", answer["version"])
	}
	shares := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests")
	if shares.Terms[0].Overcommitted != 50 {
		t.Errorf("overcommitted %d before anything was returned", shares.Terms[0].Overcommitted)
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	east.untilQuiet(r)
	shares = get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests")
	// East spent 50 of its target 30; it returned the other 10. West returned 20 of 40. Out are 50 and 20.
	if got := shares.Terms[0].Overcommitted; got != 20 {
		t.Errorf("overcommitted %d after the returns, not 20", got)
	}
	if got := shares.Terms[1].Overcommitted; got != 0 {
		t.Errorf("the next term is overcommitted by %d", got)
	}
	w.must(r, 200, "DELETE", "/v1/budgets/acme/requests", nil, "If-Match", `"2"`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	if n := west.spend("acme/requests", 1); n != 0 {
		t.Error("a deleted budget was spent")
	}
	w.must(r, 404, "GET", "/v1/budgets/acme/requests", nil)
	again := w.must(r, 201, "POST", "/v1/budgets", budgetJSON("acme/requests", "100"))
	if again["version"].(float64) != 4 {
		t.Errorf("made again at version %v, not 4", again["version"])
	}
	for range 3 {
		east.untilQuiet(r)
		west.untilQuiet(r)
	}
	if n := west.spend("acme/requests", 1000); n != 40 {
		t.Errorf("west spends %d after the budget was made again", n)
	}
	if n := east.spend("acme/requests", 1000); n != 10 {
		t.Errorf("east spends %d more of the 60 of which it spent 50", n)
	}
	w.conserved()
}

// A stale mark is lost history: what such an owner says must not count.
func TestStaleMarkIsRefused(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	restored := east.marks[0]
	east.sync(r)
	east.marks[0] = restored
	east.marks[0].Count -= 3
	a, err := r.Sync(t.Context(), func() allocation.SyncCall { c := east.call(); return c }())
	if err != nil || a.Refusal != string(allocation.HistoryLost) || len(a.Contradicted) != 1 || len(a.Shares) != 0 {
		t.Fatalf("answer %+v, %v", a, err)
	}
	status := get[coordinator.Status](w, r, "/v1/status")
	if status.Regions[1].Contradiction == nil {
		t.Error("the region is not flagged")
	}
	// The call was only overtaken: the next one fits, and the flag goes.
	east.marks[0] = restored
	east.marks[0].Count += 10
	if a := east.sync(r); a.Refusal != "" {
		t.Fatalf("refused again: %s", a.Detail)
	}
	if status := get[coordinator.Status](w, r, "/v1/status"); status.Regions[1].Contradiction != nil {
		t.Error("the region is still flagged")
	}
}
