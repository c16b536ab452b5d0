package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// What is kept is no other region's to get. Told that it were, callers of a budget whose rest is cut off would come back
// every second, the report would count none of them, and an operator would reckon with permits that nobody may spend.
func TestWhatIsKeptIsNotPromised(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(yearly, `"eu-west":2}`, `"eu-west":2},"keep_percent":10`, 1))
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.pass(2*time.Minute, west)
	west.low = []string{"acme/year"}
	if a := west.sync(r); len(a.Elsewhere) != 1 || a.Elsewhere[0].Stranded != 54 || a.Elsewhere[0].Unallocated != 10 || a.Elsewhere[0].Kept != 10 {
		t.Errorf("%+v", a.Elsewhere)
	}
	if b := get[coordinator.WhatIf](w, r, "/v1/whatif?lose=us-east&budget=acme/year").Budgets[0]; b.Unallocated != 0 || b.Others[0].Spendable != 36 {
		t.Errorf("%+v", b)
	}

	// A move whose giver is silent takes none of it, and says so.
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	id := w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/year", From: "us-east", To: "eu-west", Units: 20})["id"].(string)
	w.pass(2*time.Minute, west)
	var move coordinator.RebalanceAnswer
	for _, a := range get[coordinator.RebalancesList](w, r, "/v1/rebalances").Rebalances {
		if a.ID == id {
			move = a
		}
	}
	if move.State != coordinator.RebalanceEnded || move.Returned != 0 || move.Granted != 0 {
		t.Errorf("%+v", move)
	}

	// The region begins anew, with what was kept: nothing of it is promised to others while it has yet to be granted, or after.
	east.lost = true
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	if n := east.spend("acme/year", 1000); n != 10 {
		t.Errorf("the new incarnation spends %d, and 10 were kept", n)
	}
	if a := west.sync(r); len(a.Elsewhere) != 1 || a.Elsewhere[0].Unallocated != 0 || a.Elsewhere[0].Kept != 0 || a.Elsewhere[0].Limit != 100 {
		t.Errorf("%+v", a.Elsewhere)
	}
	w.conserved()
}
