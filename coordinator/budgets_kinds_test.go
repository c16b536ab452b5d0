package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// A changed window counts from the end of all opened terms: no period that was promised is cut short, none overlaps.
func TestWindowChange(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	through := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").OpenedThrough
	hourly := strings.Replace(budgetJSON("acme/requests", "100"), `"every":"1m"`, `"every":"1h"`, 1)
	a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests", hourly, "If-Match", `"1"`)
	if a["window_from"] != through.String() {
		t.Errorf("the window counts from %v, terms are opened through %s", a["window_from"], through)
	}
	w.settle(r)
	terms := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms
	for i, term := range terms[1:] {
		if term.Term != terms[i].Until {
			t.Errorf("a term begins at %s, the one before it ended at %s", term.Term, terms[i].Until)
		}
		if term.Term == through && (term.Periods != 1 || term.Until%3600 != 0 || term.Until-term.Term > 3600) {
			t.Errorf("the first term of the new window is %s to %s", term.Term, term.Until)
		}
		if term.Term > through && term.Until-term.Term != 3600 {
			t.Errorf("a later term is %s to %s", term.Term, term.Until)
		}
	}
	over := strings.Replace(budgetJSON("acme/requests", "100"), `{"every":"1m"}`, `{"once":{"from":"2026-05-04T00:00:00Z","until":"2026-05-04T11:00:00Z"}}`, 1)
	if a := w.must(r, 422, "PUT", "/v1/budgets/acme/requests", over, "If-Match", `"2"`); a["field"] != "window.once.until" {
		t.Errorf("%v", a)
	}
}

// A template's split is per instance and fixed within its terms; a changed limit counts at once.
func TestTemplate(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	body := `{"budget":"caller/{caller}","unit":"requests","limit":10,"window":{"calendar":"day"},"match":{"tenant":"acme"},"max_instances":1000,` +
		`"allocation":{"policy":"home","hash_of":"caller"}}`
	w.must(r, 201, "POST", "/v1/budgets", body)
	east.untilQuiet(r)
	west.untilQuiet(r)
	for _, f := range []*fakeRegion{east, west} {
		for ref, s := range f.shares {
			if ref.Budget == "caller/{caller}" && (s.Entries[0].Granted != 10 || !s.Template || len(s.Regions) != 2) {
				t.Errorf("%s has %+v", f.name, s)
			}
		}
	}
	w.must(r, 404, "GET", "/v1/budgets/caller/x", nil)
	w.must(r, 200, "GET", "/v1/budgets/caller/%7Bcaller%7D", nil)
	fixed := strings.Replace(strings.Replace(body, `"limit":10`, `"limit":20`, 1), `{"policy":"home","hash_of":"caller"}`, `{"policy":"fixed","weights":{"us-east":1,"eu-west":1}}`, 1)
	a := w.must(r, 200, "PUT", "/v1/budgets/caller/%7Bcaller%7D", fixed, "If-Match", `"1"`)
	if a["policy_from"] == nil {
		t.Errorf("%v", a)
	}
	term := get[coordinator.SharesAnswer](w, r, "/v1/shares/caller/%7Bcaller%7D").Terms[0]
	if term.Limit != 20 || term.Regions[0].Target != 20 || term.Regions[1].Granted != 20 {
		t.Errorf("%+v", term)
	}
	move := coordinator.RebalanceRequest{Budget: "caller/{caller}", From: "us-east", To: "eu-west", Units: 1}
	if a := w.must(r, 409, "POST", "/v1/rebalances", move); !strings.Contains(a["detail"].(string), "template") {
		t.Errorf("%v", a)
	}
	w.clock.move(2 * time.Minute)
	west.untilQuiet(r)
	for _, line := range get[coordinator.StrandedReport](w, r, "/v1/stranded").Lines {
		if line.Template && (line.Region != "us-east" || line.Unseen != 20_000 || line.Stranded != 0) {
			t.Errorf("%+v", line)
		}
	}
	w.conserved()
}

// A budget at home in one region is nobody else's, and moves only when the old home has returned it.
func TestHomeMoves(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	at := func(region string) string {
		return `{"budget":"home","unit":"requests","limit":10,"window":{"every":"1m"},"allocation":{"policy":"home","region":"` + region + `"}}`
	}
	w.must(r, 201, "POST", "/v1/budgets", at("us-east"))
	east.untilQuiet(r)
	west.untilQuiet(r)
	if east.spend("home", 3) != 3 || west.spend("home", 1) != 0 {
		t.Fatal("spent away from home")
	}
	w.must(r, 200, "PUT", "/v1/budgets/home", at("eu-west"), "If-Match", `"1"`)
	west.untilQuiet(r)
	if west.spend("home", 1) != 0 {
		t.Error("the new home spends before the old one returned")
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	if got := west.spend("home", 100); got != 7 {
		t.Errorf("the new home spends %d of the 7 that are left", got)
	}
	w.conserved()
}

// A lower limit is never refused, however much a term's document already lists: the budget changes at once, the ledger
// follows when it can, and what is granted meanwhile keeps to the new limit.
func TestLowerLimitIsNeverRefused(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	east.join(r)
	w.must(r, 201, "POST", "/v1/budgets", `{"budget":"fast","unit":"requests","limit":1000000,"window":{"every":"1s"},"runs_alone_for":"4h","allocation":{"policy":"home","region":"us-east"}}`)
	east.untilQuiet(r)
	version := 1
	var answer map[string]any
	for range allocation.MaxEntries + 20 {
		w.clock.move(2 * time.Second)
		answer = w.must(r, 200, "PUT", "/v1/budgets/fast", fmt.Sprintf(
			`{"budget":"fast","unit":"requests","limit":%d,"window":{"every":"1s"},"runs_alone_for":"4h","allocation":{"policy":"home","region":"us-east"}}`, 1_000_000-version),
			"If-Match", fmt.Sprintf(`"%d"`, version))
		version++
	}
	if answer["following"] == nil {
		t.Errorf("no ledger is behind after %d different limits: %v", version, answer["following"])
	}
	east.sync(r)
	if b := east.budgets["fast"]; b.Budget.LimitOrZero() != int64(1_000_000-version+1) {
		t.Errorf("the region knows limit %d", b.Budget.LimitOrZero())
	}
	w.conserved()
}

// A body that is not what is expected is a clear problem.
func TestStrictBodies(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	for body, says := range map[string]string{
		`{"region":"a","colour":1}`: "colour",
		`{"region":5}`:              "region",
		`{"region":"a"} {}`:         "follows",
		`{"region":"A b"}`:          "region",
		``:                          "EOF",
	} {
		got := w.request(r, "POST", "/v1/regions", body)
		if got.Code < 400 || got.Code >= 500 || !strings.Contains(got.Body.String(), says) {
			t.Errorf("%s answers %d %s", body, got.Code, got.Body)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=5000", "?limit=x"} {
		if status, _ := w.ask(r, "GET", "/v1/budgets"+query, nil); status != 422 {
			t.Errorf("%s answers %d", query, status)
		}
	}
}
