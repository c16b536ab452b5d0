package coordinator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// sealAway ends the incarnation of a region that is cut off, and counts the seal of its database.
func (f *fakeRegion) sealAway(r *replica) {
	f.w.t.Helper()
	path := "/v1/regions/" + f.name + "/seal"
	why := coordinator.SealRequest{Reason: "its nodes are gone", By: "kim"}
	f.w.must(r, 200, "POST", path, why)
	seal := f.sealed()
	why.Seal = &seal
	for range 2 { // again, without harm
		f.w.must(r, 200, "POST", path, why)
	}
}

// A seal says what its region spent that it never stated. From then on that is known to be spent, on every replica: left
// as stranded, it would be told to callers as out of reach, and stand in the record as never recovered.
func TestASealSaysWhatWasSpent(t *testing.T) {
	w, east, west, r := cutEast(t)
	east.spend("acme/year", 7)
	east.sealAway(r)
	w.pass(10*time.Second, west)
	other := w.start()
	for name, r := range map[string]*replica{"that counted it": r, "started later": other} {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		line := w.lineOf(r, "us-east", "acme/year")
		if line == nil || line.Granted != 60 || line.Returned != 43 || line.Spent != 17 || line.Stranded != 0 {
			t.Errorf("the replica %s says %+v", name, line)
		}
	}
	w.must(r, 200, "POST", "/v1/regions/us-east/drain", nil)
	w.round(r, west)
	if n := west.spend("acme/year", 1000); n != 100-17-5 {
		t.Errorf("eu-west spends %d of the 100, of which 17 and 5 were spent", n)
	}
	w.conserved()
}

// A raise is tied to what is stranded. Once a seal frees that, it would be spent beside the raise, and of a budget without
// an end for ever: the region itself begins anew, and so never calls again as who it was.
func TestASealEndsACompensation(t *testing.T) {
	w, east, west, r := cutEast(t)
	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: 20, Reason: "us-east is away", By: "Ada"}
	w.must(r, 201, "POST", "/v1/compensations", q)
	w.pass(10*time.Second, west)
	if c := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0]; c.State != coordinator.CompensationActive {
		t.Fatalf("before the seal it is %+v", c)
	}
	east.sealAway(r)
	w.pass(10*time.Second, west)
	c := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0]
	if c.State != coordinator.CompensationCancelled || !strings.Contains(c.Why, "is stranded any more") {
		t.Errorf("%+v", c)
	}
	if b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); *b.Budget.Limit != 100 {
		t.Errorf("the limit is still %d", *b.Budget.Limit)
	}
	w.conserved()
}

// Permits that were moved away from a region before it was lost are not granted to it again by a raise: there they would be
// stranded, and the others would get that much less.
func TestCompensateAfterARebalance(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/year", From: "us-east", To: "eu-west", Units: 30})
	for range 3 {
		w.round(r, east, west)
	}
	w.pass(2*time.Minute, west)
	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: 20, Reason: "us-east is away", By: "Ada"}
	var answer coordinator.CompensateAnswer
	if a := w.request(r, "POST", "/v1/compensations", q); a.Code != 201 || json.Unmarshal(a.Body.Bytes(), &answer) != nil {
		t.Fatal(a.Body)
	}
	if answer.Permits["us-east"] != 30 || answer.Permits["eu-west"] != 90 {
		t.Errorf("each region would get %v", answer.Permits)
	}
	if notes := strings.Join(answer.Notes, "; "); !strings.Contains(notes, "eu-west +30, us-east -30) stands until it ends") || strings.Contains(notes, "so undoes") {
		t.Errorf("the notes are %s", notes)
	}
	w.round(r, west)
	if line := w.lineOf(r, "us-east", "acme/year"); line == nil || line.Stranded != 30 {
		t.Errorf("%+v", line)
	}
	if n := west.spend("acme/year", 1000); n != 90 {
		t.Errorf("eu-west spends %d, not 90", n)
	}
	w.conserved()
}
