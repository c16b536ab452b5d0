package coordinator_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"tranche/coordinator"
)

// The report must be exact: operators write to their customers from it, and nothing of it may be given to others.
func TestStranded(t *testing.T) {
	w, east, west := two(t, 2)
	r := w.replicas[0]
	east.spend("acme/requests", 10)
	east.untilQuiet(r)
	if report := get[coordinator.StrandedReport](w, r, "/v1/stranded"); len(report.Lines) != 0 {
		t.Fatalf("%+v", report.Lines)
	}
	w.persist(r)
	w.clock.move(2 * time.Minute) // in the next period but one
	west.untilQuiet(r)
	w.persist(r)
	for _, r := range w.replicas {
		report := get[coordinator.StrandedReport](w, r, "/v1/stranded")
		if len(report.Lines) != 1 {
			t.Fatalf("%+v", report.Lines)
		}
		line := report.Lines[0]
		if line.Region != "us-east" || line.Granted != 60 || line.Spent != 0 || line.Stranded != 60 || line.Exposed != 60 || report.Total["requests"].Stranded != 60 {
			t.Errorf("%+v", line)
		}
		terms := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms
		periods := int(terms[len(terms)-1].Until-line.Period.End) / 60
		if line.Ahead.Periods != periods || line.Ahead.Stranded != int64(60*periods) || line.Ahead.Until != terms[len(terms)-1].Until {
			t.Errorf("ahead %+v, not %d periods", line.Ahead, periods)
		}
		if line.StatedAt == nil || line.StatedGeneration != line.Generation || line.LastContact == nil {
			t.Errorf("%+v", line)
		}
	}
	west.low = []string{"acme/requests"}
	if a := west.sync(r); len(a.Elsewhere) != 1 || a.Elsewhere[0].Stranded != 60 || a.Elsewhere[0].Spendable != 0 || a.Elsewhere[0].Unallocated != 0 {
		t.Errorf("%+v", a.Elsewhere)
	}
	// It is cut off, not robbed: B gets nothing, and A is whole when it is back.
	if n := west.spend("acme/requests", 1000); n != 40 {
		t.Errorf("west spends %d", n)
	}
	if n := east.spend("acme/requests", 10); n != 10 {
		t.Errorf("east spends %d of its own", n)
	}
	east.untilQuiet(r)
	if report := get[coordinator.StrandedReport](w, r, "/v1/stranded"); len(report.Lines) != 0 {
		t.Errorf("after it is back: %+v", report.Lines)
	}
}

// The demo's own numbers: of 60, 10 are spent and 50 stranded, in the period in which the region was cut off.
func TestStrandedInTheRunningPeriod(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	east.join(r)
	w.must(r, 201, "POST", "/v1/budgets", `{"budget":"daily","unit":"usd_micros","limit":60,"window":{"calendar":"day","zone":"Europe/Berlin"},"allocation":{"policy":"fixed","weights":{"us-east":1}}}`)
	east.untilQuiet(r)
	east.spend("daily", 10)
	east.untilQuiet(r)
	w.clock.move(2 * time.Minute)
	report := get[coordinator.StrandedReport](w, r, "/v1/stranded")
	if len(report.Lines) != 1 || report.Lines[0].Stranded != 50 || report.Lines[0].Spent != 10 || report.Total["usd_micros"].Stranded != 50 {
		t.Errorf("%+v", report)
	}
	status := get[coordinator.Status](w, r, "/v1/status")
	if status.Stranded["usd_micros"] != 50 || !status.Conserved || len(status.Members) != 1 {
		t.Errorf("%+v", status)
	}
}

// A rebalance is complete when the giver has returned, and not before: until then nobody else may spend the permits.
func TestRebalance(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	move := coordinator.RebalanceRequest{Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 25}
	preview := w.must(r, 200, "POST", "/v1/rebalances?dry_run=true", move)
	if targets := preview["targets"].(map[string]any); targets["us-east"] != 35.0 || targets["eu-west"] != 65.0 || preview["waiting"] != 25.0 {
		t.Errorf("%v", preview)
	}
	if list := get[coordinator.RebalancesList](w, r, "/v1/rebalances"); len(list.Rebalances) != 0 {
		t.Error("a preview was stored")
	}
	id := w.must(r, 201, "POST", "/v1/rebalances", move)["id"].(string)
	west.untilQuiet(r)
	w.settle(r)
	// The running minute would be over before its permits are there: the next is the first that is moved.
	if n := west.spend("acme/requests", 1000); n != 40 {
		t.Errorf("in the running period: west spends %d", n)
	}
	w.clock.move(time.Minute)
	west.untilQuiet(r)
	state := func() string { return get[coordinator.RebalanceAnswer](w, r, "/v1/rebalances/"+id).State }
	if n := west.spend("acme/requests", 1000); n != 40 || state() != coordinator.RebalanceMoving {
		t.Errorf("before the giver returned: west spends %d, %s", n, state())
	}
	east.untilQuiet(r)
	w.settle(r)
	west.untilQuiet(r)
	if n := west.spend("acme/requests", 1000); n != 25 || state() != coordinator.RebalanceDone {
		t.Errorf("after the giver returned: west spends %d more, %s", n, state())
	}
	for name, c := range map[string]coordinator.RebalanceRequest{
		"unknown budget": {Budget: "x", From: "us-east", To: "eu-west", Units: 1},
		"unknown region": {Budget: "acme/requests", From: "us-east", To: "mars", Units: 1},
		"itself":         {Budget: "acme/requests", From: "us-east", To: "us-east", Units: 1},
		"too many":       {Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 1000},
		"none":           {Budget: "acme/requests", From: "us-east", To: "eu-west"},
	} {
		if status, a := w.ask(r, "POST", "/v1/rebalances", c); status < 400 || a["fix"] == "" {
			t.Errorf("%s: %d %v", name, status, a)
		}
	}
	w.conserved()
}

// Metrics keep to the rules, and show what is there.
func TestMetrics(t *testing.T) {
	w, _, _ := two(t, 1)
	families, err := w.replicas[0].registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	text := w.request(w.replicas[0], "GET", "/metrics", nil).Body.String()
	for _, want := range []string{"tranche_coordinator_conservation_violations 0", "tranche_coordinator_regions_in_contact 2", "tranche_coordinator_ledgers 5"} {
		if !containsLine(text, want) {
			t.Errorf("no line %q", want)
		}
	}
}
