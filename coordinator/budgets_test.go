package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// Every wrong declaration is a clear problem that names the field, and changes nothing.
func TestBudgetIsCheckedAtTheDoor(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	before := get[coordinator.Status](w, r, "/v1/status").Config
	good := budgetJSON("x", "1")
	for name, c := range map[string]struct {
		body   string
		status int
		says   []string
	}{
		"not json":         {`{`, 422, []string{"document"}},
		"unknown field":    {strings.Replace(good, `"unit"`, `"colour":"red","unit"`, 1), 422, []string{"colour"}},
		"no limit":         {strings.Replace(good, `"limit":1,`, ``, 1), 422, []string{"limit", "missing"}},
		"negative":         {budgetJSON("x", "-1"), 422, []string{"limit", "negative"}},
		"over 2^53":        {budgetJSON("x", "9007199254740993"), 422, []string{"limit", "2^53"}},
		"zone":             {strings.Replace(good, `{"every":"1m"}`, `{"calendar":"day","zone":"Mars/Base"}`, 1), 422, []string{"window.zone"}},
		"no such region":   {strings.Replace(good, `us-east`, `us-esat`, 1), 422, []string{"allocation.weights.us-esat", "registered are eu-west, us-east"}},
		"no such home":     {strings.Replace(good, `{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}`, `{"policy":"home","region":"mars"}`, 1), 422, []string{"allocation.region", "mars"}},
		"exists":           {budgetJSON("acme/requests", "1"), 409, []string{"acme/requests exists"}},
		"over 1 MiB":       {`{"budget":"` + strings.Repeat("x", 1<<20) + `"}`, 413, []string{"1048576"}},
		"template's split": {budgetJSON("c/{caller}", "1"), 422, []string{"allocation.weights", "eu-west"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.request(r, "POST", "/v1/budgets", c.body)
			if got.Code != c.status {
				t.Errorf("status %d, not %d", got.Code, c.status)
			}
			if kind := got.Header().Get("Content-Type"); kind != "application/problem+json" {
				t.Errorf("content type %s", kind)
			}
			for _, word := range append(c.says, `"fix"`) {
				if !strings.Contains(got.Body.String(), word) {
					t.Errorf("%q does not stand in %s", word, got.Body)
				}
			}
		})
	}
	if after := get[coordinator.Status](w, r, "/v1/status").Config; after != before {
		t.Errorf("configuration %d became %d", before, after)
	}
}

// A change must name the version that it rests on, or two admins undo each other's changes unseen.
func TestIfMatch(t *testing.T) {
	w, _, _ := two(t, 1)
	r, path := w.replicas[0], "/v1/budgets/acme/requests"
	w.must(r, 428, "PUT", path, budgetJSON("acme/requests", "5"))
	w.must(r, 412, "PUT", path, budgetJSON("acme/requests", "5"), "If-Match", `"7"`)
	w.must(r, 422, "PUT", path, budgetJSON("acme/requests", "5"), "If-Match", `x`)
	w.must(r, 422, "PUT", path, budgetJSON("acme/other", "5"), "If-Match", `"1"`)
	w.must(r, 409, "PUT", path, budgetJSON("acme/requests", "5"), "If-None-Match", `*`)
	w.must(r, 201, "PUT", "/v1/budgets/acme/new", budgetJSON("acme/new", "5"), "If-None-Match", `*`)
	if etag := w.request(r, "GET", path, nil).Header().Get("ETag"); etag != `"1"` {
		t.Errorf("ETag %s", etag)
	}
	w.must(r, 200, "PUT", path, budgetJSON("acme/requests", "5"), "If-Match", `"1"`)
	w.must(r, 412, "DELETE", path, nil, "If-Match", `"1"`)
	w.must(r, 428, "DELETE", path, nil)
	unit := strings.Replace(budgetJSON("acme/requests", "5"), `"unit":"requests"`, `"unit":"tokens"`, 1)
	if got := w.must(r, 422, "PUT", path, unit, "If-Match", `"2"`); got["field"] != "unit" {
		t.Errorf("%v", got)
	}
}

// A dry run says what would happen and changes nothing.
func TestDryRun(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	before, _, err := w.store.Range(t.Context(), coordinator.Root+"budgets/")
	if err != nil {
		t.Fatal(err)
	}
	a := w.must(r, 200, "PUT", "/v1/budgets/acme/requests?dry_run=true", budgetJSON("acme/requests", "1000"), "If-Match", `"1"`)
	permits := a["permits"].(map[string]any)
	if a["dry_run"] != true || permits["us-east"] != 600.0 || permits["eu-west"] != 400.0 || a["version"] != 2.0 {
		t.Errorf("%v", a)
	}
	if got := fmt.Sprint(a["difference"]); !strings.Contains(got, "field:limit") || !strings.Contains(got, "old:100") || !strings.Contains(got, "new:1000") {
		t.Errorf("difference %s", got)
	}
	w.must(r, 200, "POST", "/v1/budgets?dry_run=true", budgetJSON("acme/new", "1"))
	w.must(r, 200, "DELETE", "/v1/budgets/acme/requests?dry_run=true", nil, "If-Match", `"1"`)
	after, _, err := w.store.Range(t.Context(), coordinator.Root+"budgets/")
	if err != nil || len(after) != len(before) || after[0].Revision != before[0].Revision {
		t.Errorf("a dry run wrote: %v", err)
	}
}

// A request that would hit nine budgets is refused where the ninth is declared.
func TestTooManyBudgets(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	for i := 2; i <= 8; i++ {
		w.must(r, 201, "POST", "/v1/budgets", budgetJSON(fmt.Sprintf("acme/b%d", i), "10"))
	}
	a := w.must(r, 422, "POST", "/v1/budgets", budgetJSON("acme/b9", "10"))
	if a["field"] != "match" || !strings.Contains(a["detail"].(string), "acme/b5") {
		t.Errorf("%v", a)
	}
	other := strings.Replace(budgetJSON("other", "10"), `"tenant":"acme"`, `"tenant":"other"`, 1)
	w.must(r, 201, "POST", "/v1/budgets", other)
	hits := w.must(r, 200, "POST", "/v1/budgets/match", map[string]any{"labels": map[string]string{"tenant": "other"}})
	if got := hits["budgets"].([]any); len(got) != 1 {
		t.Errorf("%v", hits)
	}
}

// Many changed budgets reach a region in pages, in the order of their changes; a deleted one too.
func TestConfigurationIsPaged(t *testing.T) {
	w := newWorld(t, 1)
	east, r := w.addRegion("us-east"), w.replicas[0]
	east.sync(r)
	east.sync(r)
	const many = allocation.MaxBudgetsPerAnswer + 20
	for i := range many {
		// A window with one term only, so that this is about budgets more than about shares.
		w.must(r, 201, "POST", "/v1/budgets", fmt.Sprintf(
			`{"budget":"b%03d","unit":"requests","limit":1,"window":{"once":{"from":"2027-01-01T00:00:00Z"}},"match":{"n":"%d"},"allocation":{"policy":"home","region":"us-east"}}`, i, i))
	}
	w.must(r, 200, "DELETE", "/v1/budgets/b000", nil, "If-Match", `"1"`)
	a := east.sync(r)
	for _, b := range a.Budgets[1:] {
		if b.Number <= a.Budgets[0].Number {
			t.Errorf("number %d is not after %d", b.Number, a.Budgets[0].Number)
		}
	}
	if len(a.Budgets) != allocation.MaxBudgetsPerAnswer || !a.More {
		t.Errorf("%d budgets, more %v", len(a.Budgets), a.More)
	}
	east.untilQuiet(r)
	if len(east.budgets) != many || !east.budgets["b000"].Deleted || east.config != many+1 {
		t.Errorf("%d budgets, %+v, config %d", len(east.budgets), east.budgets["b000"], east.config)
	}
	page := get[coordinator.BudgetsPage](w, r, "/v1/budgets?limit=300")
	rest := get[coordinator.BudgetsPage](w, r, "/v1/budgets?limit=300&after="+page.Next)
	if len(page.Budgets)+len(rest.Budgets) != many-1 || rest.Next != "" {
		t.Errorf("pages of %d and %d", len(page.Budgets), len(rest.Budgets))
	}
}

// A document of a later version is neither read nor written, and said.
func TestUnknownFormat(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	key := coordinator.Root + "budgets/later"
	if _, err := w.store.Commit(t.Context(), coordinator.Txn{Puts: []coordinator.Item{{Key: key, Value: []byte(`{"format":2,"x":1}`)}}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.must(r, 409, "POST", "/v1/budgets", budgetJSON("later", "1"))
	status := get[coordinator.Status](w, r, "/v1/status")
	if !strings.Contains(fmt.Sprint(status.Problems), "later") {
		t.Errorf("%+v", status.Problems)
	}
	items, _, err := w.store.Range(t.Context(), key)
	if err != nil || string(items[0].Value) != `{"format":2,"x":1}` {
		t.Errorf("%s %v", items[0].Value, err)
	}
}

// Who did what is written with the act itself.
func TestAudit(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	w.clock.move(time.Second)
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "7"), "If-Match", `"1"`)
	var acts []string
	after := ""
	for {
		page := get[coordinator.AuditPage](w, r, "/v1/audit?limit=3&after="+after)
		for _, l := range page.Lines {
			acts = append(acts, l.Act)
			if l.ID <= after {
				t.Errorf("%s after %s", l.ID, after)
			}
			after = l.ID
			if l.Act == "budget.change" && (l.Who != "first" || l.From == "" || !strings.Contains(string(l.Old), `"limit":100`) || !strings.Contains(string(l.New), `"limit":7`)) {
				t.Errorf("%+v", l)
			}
		}
		if page.Next == "" {
			break
		}
	}
	for _, want := range []string{"deployment.make", "region.register", "region.incarnation", "region.join", "budget.create", "budget.change"} {
		if !strings.Contains(strings.Join(acts, " "), want) {
			t.Errorf("%s is not among %v", want, acts)
		}
	}
}

// A budget that refuses by its times is no error, but hardly what was meant: whoever declares it must be told at once.
func TestTimesThatRefuseAreWarnedOf(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	for _, c := range []struct{ window, alone, says string }{
		{`{"once":{"from":"2026-01-01T00:00:00Z","until":"2026-02-01T00:00:00Z"}}`, "6h", "its window is over since 2026-02-01T00:00:00Z"},
		{`{"once":{"from":"2027-01-01T00:00:00Z"}}`, "1s", "its window begins at 2027-01-01T00:00:00Z"},
		{`{"once":{"from":"2026-01-01T00:00:00Z"}}`, "1s", ""},
		// Replicas of this test hold calls for 30 s: ten of them are 5 minutes.
		{`{"every":"5s"}`, "4m59s", "runs_alone_for is 4m59s: healthy regions will refuse with no_allocation now and then; use at least 5m"},
		{`{"every":"5s"}`, "5m", ""},
		{`{"calendar":"day"}`, "1s", ""}, // the next day is open a day before
	} {
		body := `{"budget":"b","unit":"requests","limit":5,"window":` + c.window + `,"runs_alone_for":"` + c.alone + `","allocation":{"policy":"home","region":"us-east"}}`
		a := w.must(r, 200, "POST", "/v1/budgets?dry_run=true", body)
		text, warned := "", a["warnings"] != nil
		if warned {
			text = a["warnings"].([]any)[0].(string)
		}
		if warned != (c.says != "") || !strings.HasPrefix(text, c.says) {
			t.Errorf("%s, %s: %q", c.window, c.alone, text)
		}
	}
}
