package coordinator_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

func forEast(units int64) coordinator.CompensateRequest {
	return coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: units, Reason: "us-east is away", By: "Ada"}
}

// Somebody who reads a budget, changes what has nothing to do with its limit, and sends it back must not make a raise one that
// stays for good.
func TestCompensationOutlastsOtherChanges(t *testing.T) {
	w, east, west, r := cutEast(t)
	w.must(r, 201, "POST", "/v1/compensations", forEast(20))
	b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year").Budget
	b.OnExhausted = 402
	a := w.must(r, 200, "PUT", "/v1/budgets/acme/year", b, "If-Match", `"2"`)
	if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "the compensation of 20 for region us-east stands: when it ends, the limit is 100 again") {
		t.Errorf("warnings %s", text)
	}
	w.settle(r)
	if c := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0]; c.State != coordinator.CompensationActive || c.Version != 3 {
		t.Errorf("after the change: %+v", c)
	}
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	if c := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0]; c.State != coordinator.CompensationCancelled {
		t.Errorf("at its end: %+v", c)
	}
	after := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year").Budget
	if after.LimitOrZero() != 100 || after.OnExhausted != 402 || after.Allocation.Weights["us-east"] != 3 || after.Allocation.Weights["eu-west"] != 2 {
		t.Errorf("%+v", after)
	}
	// One that sets the limit ends it, and hears so before.
	w.pass(3*time.Minute, west)
	w.must(r, 201, "POST", "/v1/compensations", forEast(20))
	a = w.must(r, 200, "PUT", "/v1/budgets/acme/year?dry_run=true", strings.Replace(yearly, `"limit":100`, `"limit":300`, 1), "If-Match", `"5"`)
	if text := fmt.Sprint(a["warnings"]); !strings.Contains(text, "it ends the compensation of 20 for region us-east (limit 120, and 100 before it)") {
		t.Errorf("warnings %s", text)
	}
}

// A bound that is said is kept: where more is out than the raised limit, that much may be spent.
func TestRaisesCountWhatIsOut(t *testing.T) {
	w, east, west, r := cutEast(t)
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, `"limit":100`, `"limit":10`, 1), "If-Match", `"1"`)
	w.round(r, west)
	const out = "65 are out already, more than " // of us-east's 60, and the 5 that eu-west spent
	for path, c := range map[string]struct {
		q    any
		want string
	}{
		"/v1/compensations": {forEast(20), "at most 65 may be spent of each period instead of 65"},
		"/v1/overrides":     {raise("acme/year", 10, "1h"), out + "20"},
	} {
		if notes := fmt.Sprint(w.must(r, 200, "POST", path+"?dry_run=true", c.q)["notes"]); !strings.Contains(notes, c.want) || !strings.Contains(notes, out) {
			t.Errorf("%s: %s", path, notes)
		}
	}
	w.must(r, 201, "POST", "/v1/compensations", forEast(20))
	w.round(r, west)
	// 10 and 5 were spent before.
	if n := 15 + east.spend("acme/year", 1000) + west.spend("acme/year", 1000); n != 65 {
		t.Errorf("%d are spent", n)
	}
	w.conserved()
}

// What is open when a raise ends stays with a region that hears of no end. Nobody may take the end for a bound of it.
func TestCompensationSaysWhatOutlastsIt(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.clock.move(100 * time.Second)
	w.round(r, west)
	q := forEast(0)
	q.Budget = "acme/requests"
	made := w.must(r, 201, "POST", "/v1/compensations", q)
	through := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").OpenedThrough
	if notes := fmt.Sprint(made["notes"]); !strings.Contains(notes, "in each period of the terms that are open then: now those until "+through.String()) {
		t.Errorf("notes %s", notes)
	}
	w.round(r, west)
	until := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0].Until
	w.clock.move(until.Time().Sub(w.clock.now()) + time.Second)
	w.settle(r)
	if c := get[coordinator.CompensationsList](w, r, "/v1/compensations").Compensations[0]; c.State != coordinator.CompensationCancelled {
		t.Fatalf("%+v", c)
	}
	if a, b := east.spend("acme/requests", 1000), west.spend("acme/requests", 1000); a != 60 || b != 100 {
		t.Errorf("cut off, %d and %d are spent of a period after its end", a, b)
	}
	// The same holds of a limit that is lowered: the preview names the later periods.
	preview := w.must(r, 200, "PUT", "/v1/budgets/acme/requests?dry_run=true", budgetJSON("acme/requests", "0"), "If-Match", `"3"`)["preview"]
	if text := fmt.Sprint(preview); !strings.Contains(text, "and what it holds of each later period until ") {
		t.Errorf("preview %s", text)
	}
	w.conserved()
}

// Who stopped a budget did so for good: no raise by what is stranded starts it again.
func TestStoppedBudgetIsNotCompensated(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", ofYear("d", `{"policy":"demand"}`))
	w.round(r, east, west)
	w.clock.move(100 * time.Second)
	w.round(r, west)
	w.must(r, 200, "PUT", "/v1/budgets/d", strings.Replace(ofYear("d", `{"policy":"demand"}`), `"limit":100`, `"limit":0`, 1), "If-Match", `"1"`)
	q := forEast(0)
	q.Budget = "d"
	if a := w.must(r, 409, "POST", "/v1/compensations", q); !strings.Contains(fmt.Sprint(a["detail"]), "somebody stopped it") {
		t.Errorf("%v", a)
	}
}

// Whoever approved an override was told in how many periods it counts: another window must not make them more.
func TestOverrideKeepsItsPeriods(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	daily := strings.Replace(yearOf("100", threeToTwo), `{"calendar":"year"}`, `{"calendar":"day"}`, 1)
	hourly := strings.Replace(daily, `{"calendar":"day"}`, `{"every":"1h"}`, 1)
	w.must(r, 201, "POST", "/v1/budgets", daily)
	w.round(r, east, west)
	if a := w.must(r, 201, "POST", "/v1/overrides", raise("slow", 50, "240h")); a["periods"] != 11.0 || a["total"] != 550.0 {
		t.Errorf("%v", a)
	}
	id := get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides[0].ID
	if a := w.must(r, 409, "PUT", "/v1/budgets/slow", hourly, "If-Match", `"2"`); !strings.Contains(fmt.Sprint(a["fix"]), "tranche override end "+id) {
		t.Errorf("%v", a)
	}
	w.must(r, 200, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over", "by": "Bo"})
	// One that is over before the new window begins says nothing of its periods.
	w.must(r, 201, "POST", "/v1/overrides", raise("slow", 50, "2h"))
	w.must(r, 200, "PUT", "/v1/budgets/slow", hourly, "If-Match", `"4"`)
}

// A window that would never begin is no change, and nobody may believe that it is one.
func TestWindowAfterOneWithoutEnd(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	const once = `{"once":{"from":"2026-05-01T00:00:00Z"}}`
	b := strings.Replace(yearOf("100", threeToTwo), `{"calendar":"year"}`, once, 1)
	w.must(r, 201, "POST", "/v1/budgets", b)
	if a := w.must(r, 422, "PUT", "/v1/budgets/slow", strings.Replace(b, once, `{"every":"1h"}`, 1), "If-Match", `"1"`); a["field"] != "window" {
		t.Errorf("%v", a)
	}
	w.must(r, 200, "PUT", "/v1/budgets/slow", strings.Replace(b, `"limit":100`, `"limit":50`, 1), "If-Match", `"1"`)
}

// What is declared under an override must hold without it; and a move that its end undoes says so.
func TestOverrideEndsOverAGoodBudget(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", ofYear("d", `{"policy":"demand"}`))
	w.must(r, 201, "POST", "/v1/budgets", yearOf("100", threeToTwo))
	w.round(r, east, west)
	id := ""
	for _, name := range []string{"d", "slow"} {
		id = w.must(r, 201, "POST", "/v1/overrides", raise(name, 50, "1h"))["id"].(string)
	}
	b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/d").Budget
	b.Allocation.Min = map[string]int64{"us-east": 70, "eu-west": 70}
	if a := w.must(r, 422, "PUT", "/v1/budgets/d", b, "If-Match", `"2"`); a["field"] != "allocation.min" {
		t.Errorf("%v", a)
	}
	b.Allocation.Min["us-east"] = 30
	w.must(r, 200, "PUT", "/v1/budgets/d", b, "If-Match", `"2"`)
	a := w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "slow", From: "us-east", To: "eu-west", Units: 30})
	if notes := fmt.Sprint(a["notes"]); !strings.Contains(notes, "override "+id+" ends at ") {
		t.Errorf("notes %s", notes)
	}
}

// A move of a short window counts from the next period on. A raise in the very period in which it was made must not undo it: the
// region that is away would be granted again what it gave.
func TestCompensationKeepsAMoveOfTheNextPeriod(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(ofYear("five", split), `{"calendar":"year"}`, `{"every":"5m"}`, 1))
	w.round(r, east, west)
	w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "five", From: "us-east", To: "eu-west", Units: 25})
	w.round(r, east, west)
	w.clock.move(100 * time.Second)
	w.round(r, west)
	q := forEast(10)
	q.Budget = "five"
	w.must(r, 201, "POST", "/v1/compensations", q)
	w.round(r, west)
	w.clock.move(5 * time.Minute)
	if a, b := east.spend("five", 1000), west.spend("five", 1000); a != 35 || b != 75 {
		t.Errorf("%d and %d are spent of the next period, not 35 and 75", a, b)
	}
	for _, l := range r.Ledgers() {
		for _, a := range l.EntryAt(1).Allocations {
			if l.Budget == "five" && a.Region == "us-east" && a.Held() != 35 {
				t.Errorf("us-east holds %d of a later period", a.Held())
			}
		}
	}
	w.conserved()
}

// A raise of a budget that keeps a part keeps more: what is left of it goes to the others to the permit, as the preview says.
func TestCompensationOfABudgetThatKeeps(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(yearly, `"weights"`, `"keep_percent":25,"weights"`, 1))
	east.untilQuiet(r)
	west.untilQuiet(r)
	spent := east.spend("acme/year", 10)
	east.untilQuiet(r)
	w.untilReady(r)
	w.settle(r)
	w.pass(2*time.Minute, west)
	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: 33, Reason: "us-east is away", By: "Ada"}
	said := decoded[coordinator.CompensateAnswer](w, w.request(r, "POST", "/v1/compensations?dry_run=true", q))
	w.must(r, 201, "POST", "/v1/compensations", q)
	west.untilQuiet(r)
	w.pass(10*time.Second, west)
	got := map[string]int64{"us-east": spent + east.spend("acme/year", 1000), "eu-west": west.spend("acme/year", 1000)}
	// Of 100, 25 are kept, and of 133, 34: 24 of the raise are to be had.
	if want := (map[string]int64{"us-east": 45, "eu-west": 54}); !maps.Equal(got, want) || !maps.Equal(said.Permits, want) {
		t.Errorf("the preview says %v, and they spend %v, not %v", said.Permits, got, want)
	}
	w.conserved()
}

// Of a raise that is kept as a whole nobody gets anything.
func TestCompensationThatIsKept(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(yearly, `"weights"`, `"keep_percent":25,"weights"`, 1))
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.pass(2*time.Minute, west)
	a := w.must(r, 409, "POST", "/v1/compensations?dry_run=true", coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: 1})
	if !strings.Contains(fmt.Sprint(a["detail"]), "keep_percent keeps all of the raise") || !strings.Contains(fmt.Sprint(a["fix"]), "tranche budgets apply") {
		t.Errorf("%v", a)
	}
}
