package coordinator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// moved is a world in which 25 permits are on their way from us-east to eu-west.
func moved(t *testing.T) (w *world, east *fakeRegion, read func() coordinator.RebalanceAnswer) {
	t.Helper()
	w, east, _ = two(t, 1)
	r := w.replicas[0]
	a := w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 25})
	if notes := fmt.Sprint(a["notes"]); !strings.Contains(notes, "while the budget is not changed") {
		t.Errorf("notes %s", notes)
	}
	return w, east, func() coordinator.RebalanceAnswer {
		t.Helper()
		one := get[coordinator.RebalanceAnswer](w, r, "/v1/rebalances/"+a["id"].(string))
		if list := get[coordinator.RebalancesList](w, r, "/v1/rebalances").Rebalances; len(list) != 1 || list[0].State != one.State || list[0].Waiting != one.Waiting {
			t.Errorf("listed %+v, read %+v", list, one)
		}
		return one
	}
}

// What is told of a move must be about the move: permits that come back because the budget was deleted are none of it.
func TestRebalanceOfADeletedBudget(t *testing.T) {
	for _, complete := range []bool{false, true} {
		w, east, read := moved(t)
		r, want := w.replicas[0], coordinator.RebalanceUndone
		if complete {
			want = coordinator.RebalanceDone
			east.untilQuiet(r)
			w.settle(r)
		}
		w.must(r, 200, "DELETE", "/v1/budgets/acme/requests", nil, "If-Match", `"1"`)
		w.settle(r)
		if a := read(); a.State != want || a.Waiting != 0 || !strings.Contains(fmt.Sprint(a.Notes), "the budget was deleted") {
			t.Errorf("complete %v: %+v", complete, a)
		}
	}
}

// A change of the budget undoes what was moved by hand. Whoever changes it must hear so before, and the move must say so.
func TestChangeUndoesARebalance(t *testing.T) {
	w, east, read := moved(t)
	r := w.replicas[0]
	east.untilQuiet(r)
	w.settle(r)
	if a := read(); a.State != coordinator.RebalanceDone || a.Waiting != 0 {
		t.Errorf("%+v", a)
	}
	for _, query := range []string{"?dry_run=true", ""} {
		a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests"+query, budgetJSON("acme/requests", "110"), "If-Match", `"1"`)
		if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "undoes what rebalances moved (of each period: eu-west +25, us-east -25)") {
			t.Errorf("warnings %s", text)
		}
	}
	if a := read(); !strings.Contains(fmt.Sprint(a.Notes), "the budget was changed") {
		t.Errorf("%+v", a)
	}
	a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "120"), "If-Match", `"2"`)
	if a["warnings"] != nil {
		t.Errorf("warnings %v", a["warnings"])
	}
}

// ofYear is a budget whose running period is moved too.
func ofYear(name, policy string) string {
	return `{"budget":"` + name + `","unit":"requests","limit":100,"window":{"calendar":"year"},"match":{"tenant":"acme","route":"` + name + `"},"allocation":` + policy + `}`
}

const split = `{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}`

// A giver that cannot be asked returns nothing. While its move stayed open, a return that comes days later would take
// permits from a region that lives, and nobody would remember why.
func TestRebalanceEndsWhenTheGiverIsSilent(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", ofYear("slow", split))
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.settle(r)
	move := coordinator.RebalanceRequest{Budget: "slow", From: "us-east", To: "eu-west", Units: 25}
	id := w.must(r, 201, "POST", "/v1/rebalances", move)["id"].(string)
	read := func() coordinator.RebalanceAnswer {
		return get[coordinator.RebalanceAnswer](w, r, "/v1/rebalances/"+id)
	}
	// What east returns now is in its database, and the call that says so is lost.
	answer, err := r.Sync(t.Context(), east.call())
	if err != nil {
		t.Fatal(err)
	}
	east.apply(answer)
	w.settle(r)
	if a := read(); a.State != coordinator.RebalanceMoving || a.Asked != 25 || a.Returned != 0 || a.Granted != 0 || a.Waiting != 25 {
		t.Errorf("%+v", a)
	}
	w.clock.move(95 * time.Second)
	west.sync(r)
	if a := read(); !strings.Contains(fmt.Sprint(a.Notes), "us-east cannot be asked") {
		t.Errorf("notes %v", a.Notes)
	}
	for _, dry := range []int{200, 409} {
		query := map[int]string{200: "?dry_run=true"}[dry]
		if a := w.must(r, dry, "POST", "/v1/rebalances"+query, move); !strings.Contains(fmt.Sprint(a["blocked"], a["detail"]), "us-east cannot be asked") {
			t.Errorf("%v", a)
		}
	}
	w.untilReady(r) // etcd was read since the clock moved
	w.settle(r)
	a := read()
	if a.State != coordinator.RebalanceEnded || !strings.Contains(a.Why, "us-east cannot be asked") || a.Returned != 0 || a.Targets["us-east"] != 60 || a.Targets["eu-west"] != 40 {
		t.Errorf("%+v", a)
	}
	for range 3 {
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.settle(r)
	}
	if e, we := east.spend("slow", 1000), west.spend("slow", 1000); e != 60 || we != 40 {
		t.Errorf("after the giver came back: east spends %d, west %d", e, we)
	}
	w.conserved()
}

// A plan moves what can be moved, says why the rest is left out, and counts both.
func TestRebalanceOfAllThatMatch(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	for name, policy := range map[string]string{
		"a": split, "b": split, "demand": `{"policy":"demand"}`, "home": `{"policy":"home","region":"us-east"}`, "few": `{"policy":"fixed","weights":{"us-east":0,"eu-west":2}}`,
	} {
		w.must(r, 201, "POST", "/v1/budgets", ofYear(name, policy))
	}
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(ofYear("other", split), "acme", "initech", 1))
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.settle(r)
	q := coordinator.RebalancePlanRequest{From: "us-east", To: "eu-west", Match: map[string]string{"tenant": "acme"}, Percent: 50}
	plan := w.must(r, 200, "POST", "/v1/plans?dry_run=true", q)
	for _, want := range []string{"demand has policy demand", "allocation.min", "home has policy home", "50 % of the 0 permits of few"} {
		if !strings.Contains(fmt.Sprint(plan["left_out"]), want) {
			t.Errorf("left out %v: no %q", plan["left_out"], want)
		}
	}
	if l := get[coordinator.RebalancePlansList](w, r, "/v1/plans"); len(l.Plans) != 0 {
		t.Error("a preview was stored")
	}
	id := w.must(r, 201, "POST", "/v1/plans", q)["id"].(string)
	read := func() coordinator.RebalancePlanAnswer {
		return get[coordinator.RebalancePlanAnswer](w, r, "/v1/plans/"+id)
	}
	// acme/requests, a and b: half of 60 each.
	if a := read(); a.State != coordinator.RebalanceMoving || len(a.Moves) != 3 || a.Total["requests"] != (coordinator.PlanTotal{Budgets: 3, Moved: coordinator.Moved{Asked: 90}}) {
		t.Errorf("%+v", a)
	}
	east.untilQuiet(r)
	w.settle(r)
	if a := read(); a.State != coordinator.RebalanceDone || a.Total["requests"] != (coordinator.PlanTotal{Budgets: 3, Moved: coordinator.Moved{Asked: 90, Returned: 90, Granted: 90}}) {
		t.Errorf("%+v", a)
	}
	west.untilQuiet(r)
	if n := west.spend("b", 1000); n != 70 {
		t.Errorf("west spends %d", n)
	}
	if n := west.spend("other", 1000); n != 40 {
		t.Errorf("of a budget that does not match west spends %d", n)
	}
	for name, bad := range map[string]coordinator.RebalancePlanRequest{
		"no label":  {From: "us-east", To: "eu-west", Units: 1},
		"no budget": {From: "us-east", To: "eu-west", Units: 1, Match: map[string]string{"tenant": "nobody"}},
		"both":      {From: "us-east", To: "eu-west", Units: 1, Percent: 1, Match: q.Match},
		"too much":  {From: "us-east", To: "eu-west", Percent: 101, Match: q.Match},
		"itself":    {From: "us-east", To: "us-east", Percent: 1, Match: q.Match},
		"none fits": {From: "us-east", To: "eu-west", Units: 1000, Match: q.Match},
	} {
		if status, a := w.ask(r, "POST", "/v1/plans", bad); status < 400 || status >= 500 || a["fix"] == "" {
			t.Errorf("%s: %d %v", name, status, a)
		}
	}
	w.conserved()
}

// A coordinator that dies between a plan and its moves leaves the rest to whoever leads next, and nothing is moved twice.
// What changed since the plan was made is refused, and said.
func TestPlanIsFinishedAfterACrash(t *testing.T) {
	w, east, west := two(t, 2)
	r, other := w.replicas[0], w.replicas[1]
	for _, name := range []string{"a", "b", "c"} {
		w.must(r, 201, "POST", "/v1/budgets", ofYear(name, split))
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.settle(r)
	w.persist(r) // so that both know when the regions called
	now := w.clock.now()
	plan := coordinator.RebalancePlan{
		Format: 1, ID: "1-x", Made: now, By: "ada", RebalancePlanRequest: coordinator.RebalancePlanRequest{From: "us-east", To: "eu-west", Units: 10},
		Budgets: []coordinator.PlannedMove{{Budget: "a", Unit: "requests", Version: 1, Units: 10}, {Budget: "b", Unit: "requests", Version: 1, Units: 10}, {Budget: "c", Unit: "requests", Version: 1, Units: 10}},
	}
	value, err := json.Marshal(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.must(r, 200, "DELETE", "/v1/budgets/c", nil, "If-Match", `"1"`)
	key := coordinator.Root + "plans/1-x"
	if _, err := w.store.Commit(t.Context(), coordinator.Txn{Puts: []coordinator.Item{{Key: key, Value: value}}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 2)
	for _, r := range w.replicas {
		go func() { done <- r.Settle(t.Context()) }()
	}
	for range w.replicas {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	w.settle(other)
	a := get[coordinator.RebalancePlanAnswer](w, other, "/v1/plans/1-x")
	if !a.Applied || len(a.Moves) != 3 || a.Moves[0].Targets["eu-west"] != 50 || a.Moves[1].Targets["us-east"] != 50 {
		t.Errorf("%+v", a)
	}
	if m := a.Moves[2]; m.State != coordinator.RebalanceRefused || !strings.Contains(m.Why, `no budget "c"`) {
		t.Errorf("%+v", m)
	}
	east.untilQuiet(r)
	w.settle(r)
	if a := get[coordinator.RebalancePlanAnswer](w, r, "/v1/plans/1-x"); a.State != coordinator.RebalanceEnded || a.Total["requests"].Returned != 20 {
		t.Errorf("%+v", a)
	}
	w.conserved()
}
