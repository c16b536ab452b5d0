package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

func raise(budget string, units int64, lasts string) map[string]any {
	return map[string]any{"budget": budget, "units": units, "for": lasts, "reason": "launch", "by": "Ada"}
}

// An override of a minute budget: the periods that begin before its end have more, the later ones of the very same terms do
// not, and its end takes back what the running one has too much. A region that keeps the raise for hours, because it was cut
// off, would make a raise for minutes one without a bound.
func TestOverride(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	feed := &reader{w: w}
	w.notice()
	feed.told(r, "")
	preview := w.must(r, 200, "POST", "/v1/overrides?dry_run=true", raise("acme/requests", 50, "3m"))
	if preview["periods"] != 4.0 || preview["total"] != 200.0 || preview["limit"] != 100.0 || preview["id"] != "" {
		t.Errorf("%v", preview)
	}
	if b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/requests"); b.Budget.LimitOrZero() != 100 || len(get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides) != 0 {
		t.Fatal("a preview was made")
	}
	made := w.must(r, 201, "POST", "/v1/overrides", raise("acme/requests", 50, "3m"))
	until := w.clock.now().Add(3 * time.Minute)
	for _, l := range r.Ledgers() {
		for i := range l.Periods.Len() {
			want := int64(150)
			if !l.Periods.At(i).Start.Time().Before(until) {
				want = 100
			}
			if got := l.EntryAt(i).Limit; got != want {
				t.Fatalf("the period of %s has limit %d, not %d", l.Periods.At(i).Start, got, want)
			}
		}
	}
	quiet := func() {
		t.Helper()
		for range 3 {
			east.untilQuiet(r)
			west.untilQuiet(r)
			w.settle(r)
		}
		w.notice()
	}
	quiet()
	e := feed.told(r, "override began")[0]
	if e.Budget != "acme/requests" || e.Tenant != "acme" || e.Figures["units"] != 50 || e.Figures["total"] != 200 || e.By != "Ada" {
		t.Errorf("%+v", e)
	}
	if n := east.spend("acme/requests", 1000); n != 90 {
		t.Errorf("spent %d in the raised period, not 90", n)
	}
	if k := east.budgets["acme/requests"].Budget; k.Override == nil || k.Override.ID != made["id"] || k.LimitOrZero() != 150 {
		t.Errorf("the region knows %+v", k)
	}
	w.clock.move(2 * time.Minute)
	quiet()
	if n := east.spend("acme/requests", 75); n != 75 {
		t.Errorf("spent %d", n)
	}
	// West is cut off at the end.
	w.clock.move(time.Minute + time.Second)
	east.untilQuiet(r)
	w.settle(r)
	if o := get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides; len(o) != 1 || o[0].State != coordinator.OverrideEnded || o[0].EndedBy != "coordinator" {
		t.Fatalf("%+v", o)
	}
	if b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/requests"); b.Budget.LimitOrZero() != 100 || b.Budget.Override != nil {
		t.Errorf("%+v", b.Budget)
	}
	running := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	if running.Limit != 100 || running.Overcommitted == 0 {
		t.Errorf("%+v", running)
	}
	quiet()
	if running = get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]; running.Overcommitted != 0 {
		t.Errorf("%+v", running)
	}
	w.clock.move(time.Minute)
	if n := west.spend("acme/requests", 1000); n != 40 {
		t.Errorf("west spends %d of a period after the end", n)
	}
	w.conserved()
}

// What an override would hide, or make endless, is refused by name; a change of the budget goes below it, and 0 stops all.
func TestOverrideIsBounded(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	w.must(r, 201, "POST", "/v1/budgets", `{"budget":"per/{caller}","unit":"requests","limit":10,"window":{"every":"1m"},"match":{"tenant":"x"},"allocation":{"policy":"fixed","weights":{"us-east":1}}}`)
	without := func(field string) map[string]any {
		q := raise("acme/year", 10, "2h")
		delete(q, field)
		return q
	}
	for field, q := range map[string]map[string]any{
		"for": without("for"), "units": without("units"), "reason": without("reason"), "by": without("by"),
	} {
		if status, a := w.ask(r, "POST", "/v1/overrides", q); status != 422 || a["field"] != field || a["fix"] == "" {
			t.Errorf("without %s: %d %v", field, status, a)
		}
	}
	for name, x := range map[string]struct {
		q      map[string]any
		status int
	}{
		"too much":  {raise("acme/year", 101, "2h"), 422},
		"too long":  {raise("acme/year", 10, "800h"), 422},
		"template":  {raise("per/{caller}", 1, "2h"), 409},
		"not there": {raise("nothing", 1, "2h"), 404},
	} {
		if status, a := w.ask(r, "POST", "/v1/overrides", x.q); status != x.status || a["fix"] == "" {
			t.Errorf("%s: %d %v", name, status, a)
		}
	}
	id := w.must(r, 201, "POST", "/v1/overrides", raise("acme/year", 20, "2h"))["id"].(string)
	if status, _ := w.ask(r, "POST", "/v1/overrides", raise("acme/year", 20, "2h")); status != 409 {
		t.Errorf("a second one: %d", status)
	}
	// From a file, which knows nothing of it.
	now := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year")
	if now.Budget.LimitOrZero() != 120 || now.Budget.Override == nil {
		t.Fatalf("%+v", now.Budget)
	}
	same := w.must(r, 200, "PUT", "/v1/budgets/acme/year?dry_run=true", yearly, "If-Match", `"2"`)
	if same["difference"] != nil {
		t.Errorf("the declaration did not change: %v", same["difference"])
	}
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, "100", "200", 1), "If-Match", `"2"`)
	if now = get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); now.Budget.LimitOrZero() != 220 || now.Budget.Override.ID != id {
		t.Errorf("%+v", now.Budget)
	}
	// As it was read.
	now.Budget.OnExhausted = 402
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", now.Budget, "If-Match", `"3"`)
	if now = get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); now.Budget.LimitOrZero() != 220 || now.Budget.Override == nil {
		t.Errorf("%+v", now.Budget)
	}
	forged := now.Budget
	o := *forged.Override
	o.Until += 1000
	forged.Override = &o
	if status, a := w.ask(r, "PUT", "/v1/budgets/acme/year", forged, "If-Match", `"4"`); status != 422 || a["field"] != "override" {
		t.Errorf("a forged one: %d %v", status, a)
	}
	if status, a := w.ask(r, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over"}); status != 422 || a["field"] != "by" {
		t.Errorf("%d %v", status, a)
	}
	w.must(r, 200, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over", "by": "Bo"})
	ended := get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides[0]
	if now = get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); now.Budget.LimitOrZero() != 200 || now.Budget.Override != nil || ended.EndVersion != 5 || !strings.HasPrefix(ended.EndedBy, "Bo") {
		t.Errorf("%+v %+v", now.Budget, ended)
	}
	// 0 refuses all, override or not.
	w.must(r, 201, "POST", "/v1/overrides", raise("acme/year", 20, "2h"))
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, "100", "0", 1), "If-Match", `"6"`)
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.settle(r)
	if now = get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/year"); now.Budget.LimitOrZero() != 0 || now.Budget.Override != nil {
		t.Errorf("%+v", now.Budget)
	}
	states := map[string]bool{}
	for _, o := range get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides {
		states[o.State] = true
	}
	if !states[coordinator.OverrideSuperseded] || !states[coordinator.OverrideEnded] || states[coordinator.OverrideActive] {
		t.Errorf("%v", states)
	}
	w.conserved()
	acts := map[string]string{}
	for _, l := range get[coordinator.AuditPage](w, r, "/v1/audit?limit=1000").Lines {
		if strings.HasPrefix(l.Act, "budget.override") && len(l.Old) > 0 && len(l.New) > 0 {
			acts[l.Act] += l.Reason + ";"
		}
	}
	if acts["budget.override"] != "launch;launch;" || acts["budget.override_ended"] != "over;" || acts["budget.override_superseded"] != ";" {
		t.Errorf("the audit has %q", acts)
	}
}

// The count is what a person decides on.
func TestOverrideBounds(t *testing.T) {
	at := func(text string) allocation.Instant {
		t.Helper()
		v, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return allocation.At(v)
	}
	now := at("2026-05-04T10:00:07Z")
	for _, c := range []struct {
		w     allocation.Window
		until string
		want  int64
	}{
		{allocation.Window{Every: 60}, "2026-05-04T10:01:00Z", 1},
		{allocation.Window{Every: 60}, "2026-05-04T10:01:01Z", 2},
		{allocation.Window{Every: 60}, "2026-05-04T11:00:07Z", 61},
		{allocation.Window{Calendar: "day"}, "2026-05-04T12:00:00Z", 1},
		{allocation.Window{Calendar: "day"}, "2026-05-06T00:00:01Z", 3},
		{allocation.Window{Calendar: "year"}, "2026-06-01T00:00:00Z", 1},
	} {
		if n := coordinator.PeriodsUntil(c.w, now, at(c.until)); n != c.want {
			t.Errorf("%s until %s: %d periods, not %d", c.w, c.until, n, c.want)
		}
	}
}

// Whoever changes a limit must hear what it does not do: an override stays on top of it, and what is protected stays with
// essential traffic.
func TestChangesSayWhatTheyLeave(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	warned := func(budget, part string) bool {
		t.Helper()
		known := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/requests")
		a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budget, "If-Match", fmt.Sprintf("%q", fmt.Sprint(known.Version)))
		return strings.Contains(fmt.Sprint(a["warnings"]), part)
	}
	limited := func(limit, protected string) string {
		return `{"budget":"acme/requests","unit":"requests","limit":` + limit + `,"protected":` + protected +
			`,"window":{"every":"1m"},"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"us-east":60,"eu-west":40}}}`
	}
	const above = "may still spend the protected 20"
	if warned(limited("100", "20"), above) || !warned(limited("80", "20"), above) || warned(limited("90", "20"), above) || warned(limited("60", "0"), above) || warned(limited("0", "0"), above) {
		t.Error("a lowered limit says wrongly what of the protected is left")
	}
	warned(limited("100", "0"), "")
	id := w.must(r, 201, "POST", "/v1/overrides", raise("acme/requests", 50, "3m"))["id"].(string)
	if !warned(limited("60", "0"), "override "+id+" of 50 stands on top") || !warned(limited("60", "0"), "of the declared 60, 110 may be spent") {
		t.Error("a change under an override does not say so")
	}
	typed[coordinator.Override](w, r, 200, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over", "by": "Ada"})
	if warned(limited("70", "0"), "stands on top") {
		t.Error("an override that has ended is warned of")
	}
}
