package regional

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
)

// inShadow is an API world whose node refuses nobody.
func inShadow(t *testing.T, tokens ...Token) *apiWorld {
	w := newAPIWorld(t, tokens...)
	w.config.Shadow = true
	return w
}

// If this failed, a node that only watches would refuse somebody, for some reason, or keep quiet about it.
func TestShadowNodeRefusesForNoReason(t *testing.T) {
	for _, row := range allocation.Answers() {
		if row.Reason == allocation.Allow {
			continue
		}
		t.Run(string(row.Reason), func(t *testing.T) {
			w := inShadow(t)
			r := goldenCases[row.Reason](w)
			wantStatus(t, r, 200, `"reason":"allow"`, `"action":"preferred"`, `"decision":"admitted"`, `"would":"`+string(row.Reason)+`"`)
			if h := r.Header.Get(shadowHeader); h != "would="+string(row.Reason) || r.Header.Get("Retry-After") != "" {
				t.Errorf("headers %v", r.Header)
			}
			text := bodyOf(t, w.call("GET", "/metrics", ""))
			if line := fmt.Sprintf("tranche_shadow_total{reason=%q} ", row.Reason); !strings.Contains(text, line) || strings.Contains(text, line+"0\n") {
				t.Errorf("the metrics lack %s", line)
			}
		})
	}
}

// If this failed, a bad token, a bad body or too much load would stop traffic although the node only watches.
func TestShadowNodePassesWhatIsWrong(t *testing.T) {
	w := inShadow(t, twoTokens(t)...)
	good := "Authorization: Bearer " + tokenA
	for name, c := range map[string]struct {
		body    string
		headers []string
	}{
		"token_missing":          {`{}`, nil},
		"token_unknown":          {`{}`, []string{"Authorization: Bearer wrong"}},
		"invalid_request":        {`{"labels":`, []string{good}},
		"unsupported_media_type": {`{}`, []string{good, "Content-Type: text/plain", "Content-Type: text/plain"}},
		"body_too_large":         {`{"labels":"` + strings.Repeat("x", MaxBodyBytes) + `"}`, []string{good}},
		"admission_id_missing":   {`{"labels":{"tenant":"acme"}}`, []string{good}},
	} {
		if name == "unsupported_media_type" {
			c.headers = []string{good, "Content-Encoding: gzip"}
		}
		w.undocumented = name != "admission_id_missing" // the request's body is none of the document's
		wantStatus(t, w.call("POST", "/v1/admit", c.body, c.headers...), 200, `"would":"`+name+`"`, `"decision":"admitted"`)
		if name != "admission_id_missing" {
			wantStatus(t, w.call("POST", "/v1/settle", c.body, c.headers...), 200, `"would":"`+name+`"`, `"op":"settle"`)
		}
	}
	w.undocumented = false
	items := `{"items":[{"admission_id":"a","labels":{"tenant":"acme"}},{"labels":{"tenant":""}},{"oops":1}]}`
	for _, headers := range [][]string{{good}, nil} {
		w.undocumented = true
		r := w.call("POST", "/v1/admit/batch", items, headers...)
		wantStatus(t, r, 200)
		if n := strings.Count(bodyOf(t, r), `"decision":"admitted"`); n != 3 {
			t.Errorf("%d results of 3", n)
		}
	}
	w.slots = make(chan struct{}) // nobody may enter
	wantStatus(t, w.call("POST", "/v1/admit", `{}`, good), 200, `"would":"overloaded"`)
	wantStatus(t, w.call("GET", "/v1/reservations", "", good), 503) // which is no admission
	if n := w.owner.charged(); n != 0 {
		t.Errorf("%d charged", n)
	}
}

// If this failed, a gateway's sub-request would be refused by a node that only watches, or the old limiter's word be lost.
func TestShadowAuthorize(t *testing.T) {
	w := inShadow(t, twoTokens(t)...)
	for want, headers := range map[string][]string{
		"token_missing":        nil,
		"invalid_request":      {"Tranche-Token: " + tokenA, "Tranche-Colour: red"},
		"no_budget":            {"Tranche-Token: " + tokenA, "Admission-Id: a", "Tranche-Legacy: deny"},
		"admission_id_missing": {"Tranche-Token: " + tokenA, "Tranche-Label-Tenant: acme"},
	} {
		r := w.call("GET", "/v1/authorize", "", headers...)
		wantStatus(t, r, 200)
		if r.Header.Get(shadowHeader) != "would="+want || r.Header.Get(decisionHeader) != saidAdmitted {
			t.Errorf("%s: %v", want, r.Header)
		}
	}
	report := w.watch.Report(time.UnixMicro(apiStart))
	for _, c := range report.Budgets[0].Causes {
		if c.Reason == "no_budget" && c.LegacyDeny != 1 {
			t.Errorf("%+v", c)
		}
	}
	wantStatus(t, newAPIWorld(t).call("GET", "/v1/authorize", "", "Tranche-Legacy: perhaps"), 400)
	w.slots = make(chan struct{}) // nobody may enter
	for _, method := range []string{"GET", "HEAD"} {
		r := w.call(method, "/v1/authorize?denied=403", "", "Tranche-Token: "+tokenA, "Tranche-Label-Tenant: acme", "Admission-Id: full")
		wantStatus(t, r, 200)
		if r.Header.Get(shadowHeader) != "would=overloaded" || r.Header.Get(decisionHeader) != saidAdmitted || r.Header.Get(statusHeader) != "200" {
			t.Errorf("%s: %v", method, r.Header)
		}
	}
}

// If this failed, a node in shadow would wait as long as its callers let it.
func TestShadowNodeIsQuick(t *testing.T) {
	w := inShadow(t)
	w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"},"deadline_ms":5000}`, "Admission-Id: a")
	if d := w.owner.deadlines[0].Sub(time.UnixMicro(apiStart)); d != shadowDeadline {
		t.Errorf("deadline %s", d)
	}
}

// withShadow is a world that has a budget in shadow beside an enforced one: shadow/* for tenant s, hard for metered ones.
func withShadow(t *testing.T) *apiWorld {
	w := newAPIWorld(t)
	var budgets []allocation.ConfiguredBudget
	var terms []allocation.Term
	for _, text := range []string{
		`{"budget":"shadow","unit":"requests","limit":5,"window":{"every":"1m"},"match":{"tenant":"s"},"enforcement":"shadow","allocation":{"policy":"home","region":"us-east"}}`,
		`{"budget":"hard","unit":"requests","limit":8,"window":{"every":"1m"},"match":{"tenant":"s","metered":"yes"},"allocation":{"policy":"home","region":"us-east"}}`,
	} {
		b, err := allocation.ParseBudget([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		budgets, terms = append(budgets, allocation.ConfiguredBudget{Budget: b, Version: 1}), append(terms, termOf(b))
	}
	w.owner.catalogue = w.owner.catalogue.With(4, budgets, terms, nil)
	return w
}

// If this failed, a budget in shadow would refuse, or its callers would not be told what it would have done.
func TestShadowBudget(t *testing.T) {
	w := withShadow(t)
	wantStatus(t, w.admit("a", `{"labels":{"tenant":"s"},"costs":{"requests":5}}`), 200, `"enforcement":"shadow"`, `"charged":5`)
	for range 2 { // the retry is told the same
		r := w.admit("b", `{"labels":{"tenant":"s"}}`)
		wantStatus(t, r, 200, `"shadow":{"would":"ceiling_reached"`, `"blocking":{"budget":"shadow","unit":"requests"`, `"charged":0`)
		if r.Header.Get(shadowHeader) != "would=ceiling_reached" {
			t.Error(r.Header)
		}
	}
	wantStatus(t, w.admit("c", `{"labels":{"tenant":"s","metered":"yes"},"costs":{"requests":9}}`), 422, `"budget":"hard"`)
	if n := w.owner.charged(); n != 5 {
		t.Errorf("%d charged, want 5", n)
	}
	// No decision at all: what only shadow budgets match goes on, the rest does not.
	w.owner.force = allocation.DatabaseUnavailable
	wantStatus(t, w.admit("d", `{"labels":{"tenant":"s"}}`), 200, `"would":"database_unavailable"`)
	wantStatus(t, w.admit("d", `{"labels":{"tenant":"s","metered":"yes"}}`), 503)
	wantStatus(t, w.admit("d", `{"labels":{"tenant":"acme"}}`), 503)
	wantStatus(t, w.call("POST", "/v1/settle", `{"admission_id":"d"}`), 503)
}

// If this failed, nobody could see from the report what enforcement would do, to whom, and where it differs from the
// limiter that it is to replace.
func TestShadowReport(t *testing.T) {
	w := withShadow(t)
	admit := func(n int, who, legacy string, cost int) {
		for i := range n {
			w.admit(fmt.Sprint(who, legacy, cost, i), fmt.Sprintf(`{"labels":{"tenant":"s","user":%q},"costs":{"requests":%d},"legacy":%q}`, who, cost, legacy))
		}
	}
	admit(3, "kim", "allow", 1)
	admit(2, "kim", "deny", 1) // we would admit: the other is stricter
	admit(4, "lee", "allow", 2)
	admit(1, "kim", "deny", 3)
	w.admit("kimallow1 0", `{"labels":{"tenant":"s","user":"kim"},"costs":{"requests":1},"legacy":"allow"}`) // a replay
	w.admit("other", `{"labels":{"tenant":"acme"},"legacy":"deny"}`)
	w.admit("nobody", `{"labels":{"tenant":"nobody"},"legacy":"allow"}`)
	wantStatus(t, w.admit("x", `{"labels":{"tenant":"s"},"legacy":"perhaps"}`), 400, "allow or deny")
	var report ShadowReport
	if err := json.Unmarshal([]byte(bodyOf(t, w.call("GET", "/v1/shadow", ""))), &report); err != nil {
		t.Fatal(err)
	}
	if report.Decisions != 12 || report.Lost != 0 || len(report.Budgets) != 3 || report.Region != "us-east" || report.Shadow {
		t.Fatalf("%+v", report)
	}
	none, acme, s := report.Budgets[0], report.Budgets[1], report.Budgets[2]
	if none.Budget != "" || none.Causes[0].Reason != "no_budget" || none.Stricter != 1 || acme.Looser != 1 || acme.WouldRefuse != 0 {
		t.Errorf("%+v\n%+v", none, acme)
	}
	if s.Decided != 10 || s.Asked != 16 || s.WouldRefuse != 5 || s.Stricter != 4 || s.Looser != 2 || s.Enforcement != "shadow" {
		t.Errorf("%+v", s)
	}
	c := s.Causes[0]
	if len(s.Causes) != 1 || c.Reason != "ceiling_reached" || c.Units != 11 || c.LegacyAllow != 4 || c.LegacyDeny != 1 || c.To[0].Labels["user"] != "lee" || c.To[0].Count != 4 || c.To[1].Units != 3 {
		t.Errorf("%+v", s.Causes)
	}
	for _, b := range report.Budgets {
		if b.WouldRefuse > b.Decided {
			t.Errorf("%q: %d of %d decided would be refused", b.Budget, b.WouldRefuse, b.Decided)
		}
	}
	if p := s.Peak; p.Asked != 16 || p.Suggested != 20 || p.Periods != 1 || p.Whole != 0 || p.Period != "2026-06-01T12:00:00Z" {
		t.Errorf("%+v", p)
	}
}

// If this failed, one caller's mistake would be the limit that the report suggests, or more would be refused than was decided.
func TestShadowReportOfImpossibleCosts(t *testing.T) {
	w := withShadow(t)
	w.admit("a", `{"labels":{"tenant":"s"},"costs":{"requests":2}}`)
	for i := range 3 {
		wantStatus(t, w.admit(fmt.Sprint("big-", i), fmt.Sprintf(`{"labels":{"tenant":"s"},"costs":{"requests":%d}}`, allocation.MaxUnits)), 200, `"would":"cost_exceeds_limit"`)
	}
	w.owner.force = allocation.DatabaseUnavailable // of no budget
	w.admit("down", `{"labels":{"tenant":"s"}}`)
	report := w.watch.Report(time.UnixMicro(apiStart))
	none, s := report.Budgets[0], report.Budgets[1]
	if none.Decided != 1 || none.WouldRefuse != 1 {
		t.Errorf("of no budget: %+v", none)
	}
	if s.Decided != 4 || s.WouldRefuse != 3 || s.Impossible != 3 || s.GreatestCost != allocation.MaxUnits || s.Asked != allocation.MaxUnits || s.Peak.Asked != 2 || s.Peak.Suggested != 3 {
		t.Errorf("%+v %+v", s, s.Peak)
	}
}

// If this failed, the report would grow with the traffic, or hold it up.
func TestShadowReportIsBounded(t *testing.T) {
	watch := NewWatch(time.UnixMicro(apiStart))
	d := allocation.Decision{Reason: allocation.Allow, Would: allocation.CeilingReached, WouldBlame: "a"}
	one := allocation.BudgetDecision{Unit: "requests", Requested: 1, Enforcement: allocation.Shadow, Reason: allocation.CeilingReached}
	var all sync.WaitGroup
	const each = 3000
	for g := range 8 {
		all.Go(func() {
			for i := range each {
				d, one := d, one
				one.UsageKey = allocation.UsageKey{Budget: "a", Instance: fmt.Sprint(i), Period: allocation.Instant(60 * i)}
				one.Until = one.Period + 60
				d.Budgets = []allocation.BudgetDecision{one}
				d.WouldBlame = fmt.Sprintf("a [%d]", i)
				watch.note(&allocation.Request{Op: allocation.Spend, Labels: allocation.Labels{"user": fmt.Sprint(g, "-", i)}}, &d, "", false)
				watch.gatherSome()
			}
		})
	}
	all.Wait()
	report := watch.Report(time.UnixMicro(apiStart))
	if got := report.Decisions + report.Lost; got < 8*each || got > 8*each+watchRing {
		t.Errorf("%d counted and %d lost of %d", report.Decisions, report.Lost, 8*each)
	}
	a := report.Budgets[0]
	if c := a.Causes[0]; len(c.To) != maxCallers || c.Others+maxCallers != c.Count || len(watch.budgets["a"].sums) > maxSums || len(watch.budgets["a"].periods) > maxSums {
		t.Errorf("%d label sets, %d sums, %d periods", len(c.To), len(watch.budgets["a"].sums), len(watch.budgets["a"].periods))
	}
	for i := range 2 * maxWatched {
		d.Budgets = []allocation.BudgetDecision{{UsageKey: allocation.UsageKey{Budget: fmt.Sprint(i)}}}
		watch.enter(&watched{decision: d})
	}
	if len(watch.budgets) != maxWatched {
		t.Errorf("%d budgets", len(watch.budgets))
	}
}

// If this failed, a node in shadow that has not reached its database would not answer.
func TestLateBackend(t *testing.T) {
	late := NewLate("us-east", "node-1")
	a := newAPI(HTTPConfig{Metrics: NewMetrics(prometheus.NewRegistry()), Shadow: true}, late)
	w := &apiWorld{api: a, t: t}
	wantStatus(t, w.admit("a", `{"labels":{"tenant":"acme"}}`), 200, `"would":"database_unavailable"`)
	// Were it not ready, it would be taken out of service, and the gateway would refuse.
	wantStatus(t, w.call("GET", "/readyz", ""), http.StatusOK, `"ready":true,"warnings":["nothing is decided, and everything is let through: the database has not been reached yet"],"shadow":true`)
	wantStatus(t, w.call("GET", "/v1/status", ""), http.StatusOK, `"shadow":true`, `"ready":true`, `"stopped":"starting"`)
	wantStatus(t, w.call("GET", "/v1/reservations", ""), 503, `"reason":"starting"`)
	wantStatus(t, w.call("GET", "/v1/decisions/a", ""), 503)
	wantStatus(t, w.call("GET", "/v1/account", ""), 503)
}
