package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

const demandJSON = `{"budget":"acme/requests","unit":"requests","limit":100,"window":{"every":"1h"},"match":{"tenant":"acme"},
	"allocation":{"policy":"demand","min":{"eu-west":10}}}`

// asking is two regions of a budget of policy demand.
func asking(t *testing.T, replicas int) (w *world, east, west *fakeRegion) {
	t.Helper()
	w = newWorld(t, replicas)
	east, west = w.addRegion("us-east"), w.addRegion("eu-west")
	east.join(w.replicas[0])
	west.join(w.replicas[0])
	w.must(w.replicas[0], 201, "POST", "/v1/budgets", demandJSON)
	east.untilQuiet(w.replicas[0])
	west.untilQuiet(w.replicas[0])
	return w, east, west
}

// ask says what a region lacks, beside its calls.
func (f *fakeRegion) ask(r *replica, budget string, used, rate, unmet int64) error {
	now := allocation.At(f.w.clock.now())
	_, err := r.Sync(f.w.t.Context(), allocation.SyncCall{
		Format: allocation.SyncFormat, Deployment: f.deployment, Region: f.name, Node: f.name + "-node", Incarnation: f.incarnation, Ask: true,
		Demand: []allocation.Demand{{Budget: budget, Period: now - now%3600, Used: used, Rate: rate, Unmet: unmet}},
	})
	return err
}

// A region that is busy is given what is unallocated, and then what the idle one holds beyond its min; all without a
// permit in two places.
func TestDemandMovesPermitsToWhereTheyAreUsed(t *testing.T) {
	w, east, west := asking(t, 2)
	r := w.replicas[1] // any replica answers demand, once it has heard of the regions
	east.untilQuiet(r)
	west.untilQuiet(r)
	used := east.spend("acme/requests", 1000)
	if used != 25 {
		t.Fatalf("the base is %d", used)
	}
	if n := west.spend("acme/requests", 1000); n != 25 {
		t.Fatalf("the other's base is %d", n)
	}
	for step := 0; used < 50 && step < 200; step++ {
		if err := east.ask(r, "acme/requests", used, 3000, 5); err != nil {
			t.Fatal(err)
		}
		if err := r.Allot(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.move(time.Second)
		east.sync(r)
		west.sync(r)
		used += east.spend("acme/requests", 1000)
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	if used < 50 || used > 75 {
		t.Errorf("east used %d, and west %d of 100", used, 25)
	}
	w.conserved()
}

// What an idle region holds beyond its min comes back, and goes to the one that lacks it.
func TestDemandRecallsFromTheIdle(t *testing.T) {
	w, east, west := asking(t, 1)
	r := w.replicas[0]
	used := east.spend("acme/requests", 1000)
	for step := 0; used < 90 && step < 400; step++ {
		if err := east.ask(r, "acme/requests", used, 3000, 5); err != nil {
			t.Fatal(err)
		}
		if err := r.Allot(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.clock.move(time.Second)
		east.sync(r)
		west.sync(r)
		used += east.spend("acme/requests", 1000)
	}
	if used != 90 {
		t.Errorf("east used %d of 100, of which 10 are west's min", used)
	}
	if n := west.spend("acme/requests", 1000); n != 10 {
		t.Errorf("west has %d, and its min is 10", n)
	}
	w.conserved()
}

// An ask is no contact: it shows no marks, so it must neither keep a region from being reported as silent nor be believed
// from another incarnation.
func TestAnAskIsNoContact(t *testing.T) {
	w, east, _ := asking(t, 1)
	r := w.replicas[0]
	w.clock.move(2 * time.Minute)
	if err := east.ask(r, "acme/requests", 25, 60, 5); err != nil {
		t.Fatal(err)
	}
	for _, region := range get[coordinator.Status](w, r, "/v1/status").Regions {
		if region.InContact {
			t.Errorf("%s is in contact", region.Region)
		}
	}
	east.incarnation = "another"
	if err := east.ask(r, "acme/requests", 25, 60, 5); err == nil {
		t.Error("an ask of an unknown incarnation was heard")
	}
}

// A move by hand would be undone by the next chunk.
func TestDemandIsNotRebalancedByHand(t *testing.T) {
	w, _, _ := asking(t, 1)
	status, a := w.ask(w.replicas[0], "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 5})
	if text := fmt.Sprint(a); status != 409 || !strings.Contains(text, "allocation.min") || !strings.Contains(text, "allocation.max") {
		t.Errorf("%d: %s", status, text)
	}
	status, a = w.ask(w.replicas[0], "POST", "/v1/budgets", strings.Replace(strings.Replace(demandJSON, "eu-west", "mars", 1), "acme/requests", "other", 1))
	if text := fmt.Sprint(a); status != 422 && status != 400 || !strings.Contains(text, "allocation.min.mars") {
		t.Errorf("a min of an unknown region: %d: %s", status, text)
	}
}
