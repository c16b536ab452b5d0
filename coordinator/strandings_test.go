package coordinator_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// yearly is a budget of 100 a year, 60 to 40, so that no test meets the end of a period.
const yearly = `{"budget":"acme/year","unit":"requests","limit":100,"window":{"calendar":"year"},"match":{"tenant":"acme"},` +
	`"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}`

// cutEast is a world in which us-east spent 10 of its 60, stated it, and has been silent for two minutes; eu-west calls.
func cutEast(t *testing.T) (w *world, east, west *fakeRegion, r *replica) {
	t.Helper()
	w, east, west = two(t, 1)
	r = w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	east.spend("acme/year", 4)
	east.untilQuiet(r)
	w.clock.move(time.Minute)
	east.spend("acme/year", 6)
	west.spend("acme/year", 5)
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.untilReady(r)
	w.settle(r) // the first look: from now on the tracker can hear
	w.pass(2*time.Minute, west)
	return w, east, west, r
}

// pass lets time pass while these regions call, and the leader looks twice.
func (w *world) pass(d time.Duration, calls ...*fakeRegion) {
	w.t.Helper()
	r := w.replicas[0]
	for range 2 {
		w.clock.move(d / 2)
		for _, f := range calls {
			f.untilQuiet(r)
		}
		w.persist(r)
		w.untilReady(r) // etcd was read since the clock moved
		w.settle(r)
	}
}

func (w *world) lineOf(r *replica, region, budget string) *coordinator.StrandedLine {
	w.t.Helper()
	for _, l := range get[coordinator.StrandedReport](w, r, "/v1/stranded?history=true").Lines {
		if l.Region == region && l.Budget == budget {
			return &l
		}
	}
	return nil
}

// The history must tell when it began, how much for how long, and how it ended, also after the coordinator was restarted:
// customers are answered from it.
func TestStrandedHistory(t *testing.T) {
	w, east, west, r := cutEast(t)
	line := w.lineOf(r, "us-east", "acme/year")
	if line == nil || line.Record == nil || line.Cause != coordinator.CauseUnreachable || line.Stranded != 50 || line.Record.AtFirst != 50 {
		t.Fatalf("%+v", line)
	}
	away := int64(w.clock.now().Sub(line.LastContact.Truncate(time.Second)) / time.Second)
	if line.Record.PermitSeconds != 50*away || !line.Since.Equal(*line.LastContact) {
		t.Errorf("%d permit-seconds in %d s, since %v", line.Record.PermitSeconds, away, line.Since)
	}
	// Requests that were refused for it elsewhere, told twice and by two runs of a node: each counts once.
	for _, q := range []struct {
		run string
		n   int64
	}{{"one", 3}, {"one", 7}, {"one", 7}, {"one", 2}, {"two", 1}} {
		if err := r.HearRefusals("eu-west", refusals(q.run, q.n)); err != nil {
			t.Fatal(err)
		}
	}
	// A minute budget grows over its periods; those that ended are never recovered.
	minute := w.lineOf(r, "us-east", "acme/requests")
	if minute == nil || minute.Record.Periods < 1 || minute.Record.Expired != 60*minute.Record.Periods {
		t.Errorf("%+v", minute.Record)
	}
	w.pass(10*time.Second, west)
	if line = w.lineOf(r, "us-east", "acme/year"); line.Record.Refused != (coordinator.Refused{Requests: 8, Units: 16}) {
		t.Errorf("%+v", line.Record.Refused)
	}
	// Another replica, that starts now, tells the same story.
	other := w.start()
	again := w.lineOf(other, "us-east", "acme/year")
	if again.Record == nil || again.Record.PermitSeconds != line.Record.PermitSeconds || again.Record.Refused != line.Record.Refused {
		t.Errorf("%+v, not %+v", again.Record, line.Record)
	}
	// It comes back, and had spent 20 more meanwhile.
	east.spend("acme/year", 20)
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	report := get[coordinator.StrandedReport](w, r, "/v1/stranded?history=true&budget=acme/year")
	if len(report.Lines) != 0 || len(report.History) != 1 {
		t.Fatalf("%+v", report)
	}
	e := report.History[0]
	if e.How != coordinator.ResolvedReturned || e.LateSpent != 20 || e.Ended == nil || e.Ended.Before(e.Opened) || e.Latest.Stranded != 50 || e.PermitSeconds < 50*(away+5) {
		t.Errorf("%+v", e)
	}
}

func refusals(run string, n int64) coordinator.RefusalReport {
	return coordinator.RefusalReport{Format: allocation.SyncFormat, Node: "eu-west-node", Run: run, Counts: []allocation.RefusalCount{
		{Budget: "acme/year", Reason: allocation.CapacityStranded, Requests: n, Units: 2 * n},
		{Budget: "acme/year", Reason: allocation.CeilingReached, Requests: 100, Units: 100},
		{Budget: "unknown", Reason: allocation.CapacityStranded, Requests: 100, Units: 100},
	}}
}

// The trade names what was seen: eu-west spent 5 before the cut and 30 after it, and had to refuse 16 units.
func TestStrandedTrade(t *testing.T) {
	w, _, west, r := cutEast(t)
	west.spend("acme/year", 30)
	if err := r.HearRefusals("eu-west", refusals("one", 8)); err != nil {
		t.Fatal(err)
	}
	w.pass(10*time.Second, west)
	trade := w.lineOf(r, "us-east", "acme/year").Trade
	if trade == nil || trade.Limit != 100 || trade.Refused.Requests != 8 || len(trade.Demand) != 2 || len(trade.Homes) != 2 {
		t.Fatalf("%+v", trade)
	}
	if d := trade.Demand[0]; d.Region != "eu-west" || d.Before != 5 || d.During != 46 {
		t.Errorf("%+v", d)
	}
	if d := trade.Demand[1]; d.Region != "us-east" || d.Before != 10 || !d.Estimated || d.During < 1 || d.During > 50 {
		t.Errorf("%+v", d)
	}
	if h := trade.Homes[1]; h.Home != "us-east" || h.Unreachable != 46 || h.Delayed != 5 {
		t.Errorf("%+v", h)
	}
}

// Nobody may find a report empty because a name was misspelt.
func TestStrandedFilters(t *testing.T) {
	w, _, _, r := cutEast(t)
	for query, want := range map[string]int{
		"": 2, "?budget=acme/year": 1, "?budget=acme/*": 2, "?region=us-east": 2, "?region=eu-west": 0,
		"?match=tenant%3Dacme": 2, "?match=tenant%3Dacme,route%3Dx": 0, "?match=tenant%3Dother": 0,
	} {
		report := get[coordinator.StrandedReport](w, r, "/v1/stranded"+query)
		if len(report.Lines) != want || (want == 0) != (len(report.Total) == 0) {
			t.Errorf("%s: %d lines, %v", query, len(report.Lines), report.Total)
		}
	}
	for query, field := range map[string]string{
		"?budget=acme/yaer": "budget", "?region=mars": "region", "?match=tenant": "match", "?match=a%3Db,a%3Dc": "match", "?regoin=x": "regoin",
	} {
		if a := w.must(r, 422, "GET", "/v1/stranded"+query, nil); a["field"] != field || a["fix"] == "" {
			t.Errorf("%s: %v", query, a)
		}
	}
}

// A write-off is a mark: no counter moves, nobody is granted anything, and the region's permits are still its own.
func TestWriteOff(t *testing.T) {
	w, east, west, r := cutEast(t)
	q := coordinator.WriteOffRequest{Budget: "acme/year", Region: "us-east"}
	before := ledgersText(t, r)
	preview := w.must(r, 200, "POST", "/v1/writeoffs?dry_run=true", q)
	if now := preview["now"].(map[string]any); preview["dry_run"] != true || now["stranded"] != 50.0 || preview["id"] != "" {
		t.Errorf("%v", preview)
	}
	if a := w.must(r, 422, "POST", "/v1/writeoffs", q); a["field"] != "reason" {
		t.Errorf("%v", a)
	}
	q.Reason, q.By = "the building burned down", "Ada"
	w.must(r, 201, "POST", "/v1/writeoffs", q)
	w.must(r, 409, "POST", "/v1/writeoffs", q)
	if ledgersText(t, r) != before {
		t.Error("a ledger was changed")
	}
	w.pass(10*time.Second, west)
	report := get[coordinator.StrandedReport](w, r, "/v1/stranded?budget=acme/year&history=true")
	if total := report.Total["requests"]; total.Stranded != 0 || total.WrittenOff != 50 || len(report.Lines) != 1 || report.Lines[0].WrittenOff.By != "Ada" {
		t.Errorf("%+v", report)
	}
	if len(report.History) != 1 || report.History[0].How != coordinator.ResolvedWrittenOff {
		t.Errorf("%+v", report.History)
	}
	west.low = []string{"acme/year"}
	if a := west.sync(r); len(a.Elsewhere) != 1 || a.Elsewhere[0].Stranded != 0 {
		t.Errorf("callers are told that it may come back: %+v", a.Elsewhere)
	}
	if n := east.spend("acme/year", 30); n != 30 {
		t.Errorf("us-east spends %d of its own", n)
	}
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	list := get[coordinator.WriteOffsList](w, r, "/v1/writeoffs")
	if len(list.WriteOffs) != 1 || list.WriteOffs[0].Returned == nil || list.WriteOffs[0].LateSpent != 30 {
		t.Errorf("%+v", list.WriteOffs)
	}
	acts := w.request(r, "GET", "/v1/audit?limit=1000", nil).Body.String()
	for _, act := range []string{"stranded.write_off", "stranded.returned"} {
		if !strings.Contains(acts, act) {
			t.Errorf("no audit line of %s", act)
		}
	}
	for name, c := range map[string]coordinator.WriteOffRequest{
		"not stranded":   {Budget: "acme/year", Region: "eu-west", Reason: "x", By: "y"},
		"unknown budget": {Budget: "x", Region: "us-east", Reason: "x", By: "y"},
		"unknown region": {Budget: "acme/year", Region: "mars", Reason: "x", By: "y"},
	} {
		if status, a := w.ask(r, "POST", "/v1/writeoffs", c); status < 400 || a["fix"] == "" {
			t.Errorf("%s: %d %v", name, status, a)
		}
	}
	w.conserved()
}

func ledgersText(t *testing.T, r *replica) string {
	t.Helper()
	text := ""
	for _, l := range r.Ledgers() {
		if l.Budget == "acme/year" {
			data, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			text += string(data)
		}
	}
	return text
}

// The raise reaches the other region, none of it the lost one, and goes when that one is back; what was spent stays spent
// and is never more than what was raised to.
func TestCompensate(t *testing.T) {
	w, east, west, r := cutEast(t)
	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Reason: "us-east is away", By: "Ada"}
	q.Units = 51
	if a := w.must(r, 422, "POST", "/v1/compensations", q); a["field"] != "units" {
		t.Errorf("%v", a)
	}
	q.Units = 0
	preview := w.must(r, 200, "POST", "/v1/compensations?dry_run=true", q)
	if permits := preview["permits"].(map[string]any); permits["us-east"] != 60.0 || permits["eu-west"] != 90.0 || preview["units"] != 50.0 {
		t.Errorf("%v", preview)
	}
	w.must(r, 201, "POST", "/v1/compensations", q)
	w.must(r, 409, "POST", "/v1/compensations", q)
	west.untilQuiet(r)
	if n := west.spend("acme/year", 1000); n != 85 {
		t.Errorf("eu-west spends %d after its 5, not 85", n)
	}
	w.pass(10*time.Second, west)
	if line := w.lineOf(r, "us-east", "acme/year"); line == nil || line.Compensated == nil || line.Compensated.Units != 50 || line.Granted != 60 {
		t.Errorf("%+v", line)
	}
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	list := get[coordinator.CompensationsList](w, r, "/v1/compensations")
	if c := list.Compensations[0]; c.State != coordinator.CompensationCancelled || !strings.Contains(c.Why, "calls again") {
		t.Errorf("%+v", c)
	}
	b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year")
	if *b.Budget.Limit != 100 || b.Budget.Allocation.Weights["us-east"] != 3 || b.Budget.Allocation.Weights["eu-west"] != 2 {
		t.Errorf("%+v", b.Budget)
	}
	if n := east.spend("acme/year", 1000); n > 50 {
		t.Errorf("us-east spends %d of its 50", n)
	}
	w.conserved()
}

// Somebody who changed the budget meanwhile knows better: the raise is not taken off what they said.
func TestCompensationIsSuperseded(t *testing.T) {
	w, east, west, r := cutEast(t)
	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Units: 20, Reason: "us-east is away", By: "Ada"}
	w.must(r, 201, "POST", "/v1/compensations", q)
	version := `"2"`
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, `"limit":100`, `"limit":300`, 1), "If-Match", version)
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	list := get[coordinator.CompensationsList](w, r, "/v1/compensations")
	b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year")
	if c := list.Compensations[0]; c.State != coordinator.CompensationSuperseded || *b.Budget.Limit != 300 {
		t.Errorf("%+v, limit %d", c, *b.Budget.Limit)
	}
	// And an operator may cancel one by hand, once.
	w.pass(3*time.Minute, west)
	id := w.must(r, 201, "POST", "/v1/compensations", q)["id"].(string)
	w.must(r, 200, "DELETE", "/v1/compensations/"+id, nil)
	w.must(r, 409, "DELETE", "/v1/compensations/"+id, nil)
	if b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); *b.Budget.Limit != 300 {
		t.Errorf("limit %d", *b.Budget.Limit)
	}
}

// An operator moves traffic by these figures before the region is lost.
func TestWhatIf(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	for range 6 {
		w.clock.move(time.Minute)
		east.spend("acme/year", 2)
		west.spend("acme/year", 1)
		east.untilQuiet(r)
		west.untilQuiet(r)
	}
	what := get[coordinator.WhatIf](w, r, "/v1/whatif?lose=us-east&budget=acme/year")
	if len(what.Budgets) != 1 || !what.InContact {
		t.Fatalf("%+v", what)
	}
	b := what.Budgets[0]
	if b.Lost.Stranded != 48 || what.Total["requests"].Stranded != 48 || b.LostRate.Units != 12 || b.OthersRate.Units != 6 || b.LostRate.Over < 300 {
		t.Errorf("%+v", b)
	}
	// eu-west has 34 left, spends 1 a minute and would have to spend 3.
	own, with := int64(34*b.OthersRate.Over/6), int64(34*b.OthersRate.Over/18)
	if b.Lasts == nil || int64(*b.Lasts) != own || b.LastsWithLoad == nil || int64(*b.LastsWithLoad) != with || b.Others[0].Spendable != 34 {
		t.Errorf("%+v %v %v", b, b.Lasts, b.LastsWithLoad)
	}
	if line := w.lineOf(r, "us-east", "acme/year"); line != nil {
		t.Error("asking made it so")
	}
	w.must(r, 422, "GET", "/v1/whatif?lose=mars", nil)
	w.must(r, 422, "GET", "/v1/whatif", nil)
}

// An incarnation that was replaced speaks no more: what it holds is stranded to the end, as it last stated it, while the
// new one is in contact.
func TestStrandedByLostHistory(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	east.spend("acme/year", 10)
	east.untilQuiet(r)
	w.settle(r)
	w.pass(2*time.Minute, east, west)
	former := east.incarnation
	east.lost = true
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	for _, on := range []*replica{r, w.start()} {
		line := w.lineOf(on, "us-east", "acme/year")
		if line == nil || line.Cause != coordinator.CauseLostHistory || line.Incarnation != former || line.Stranded != 50 || line.Spent != 10 {
			t.Errorf("%+v", line)
		}
	}
	if n := west.spend("acme/year", 1000); n != 40 {
		t.Errorf("eu-west spends %d of its 40", n)
	}
	w.conserved()
}

// While etcd's own history is in doubt, nobody's figures are sure but those of regions that have stated since.
func TestStrandedByAFreeze(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	backup := w.backup()
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	w.restore(backup)
	east.sync(r) // it knows what etcd never had
	west.untilQuiet(r)
	w.settle(r)
	report := get[coordinator.StrandedReport](w, r, "/v1/stranded")
	if len(report.Lines) != 1 || report.Lines[0].Cause != coordinator.CauseFrozen || report.Lines[0].Region != "us-east" || report.Lines[0].Incarnation != east.incarnation {
		t.Errorf("%+v", report.Lines)
	}
}
