package regional

import (
	"strings"
	"testing"

	"tranche/allocation"
)

// guardedTokens are those of two gateways, of which one may say that a request is essential.
func guardedTokens(t testing.TB) []Token {
	t.Helper()
	list, err := ParseTokens([]byte("edge " + tokenA + " essential\nbatch " + tokenB + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A priority decides what is refused first, so it must arrive by every door, and essential must be a credential's to say. If
// this failed any caller could take what is protected, or what is essential would count as anything.
func TestAPIPriority(t *testing.T) {
	edge, batch := "Authorization: Bearer "+tokenA, "Authorization: Bearer "+tokenB
	of := func(p string) string { return `{"labels":{"tenant":"guarded"},"priority":"` + p + `"}` }
	for _, c := range []struct {
		path, body string
		headers    []string
		status     int
		want       allocation.Priority
		word       string
	}{
		{"/v1/admit", of("essential"), []string{edge}, 200, allocation.Essential, `"priority":"essential"`},
		{"/v1/admit", of("batch"), []string{edge}, 200, allocation.Batch, `"priority":"batch"`},
		{"/v1/admit", of("interactive"), []string{batch}, 200, allocation.Interactive, `"priority":"interactive"`},
		{"/v1/admit", `{"labels":{"tenant":"guarded"}}`, []string{batch}, 200, "", `"decision":"admitted"`},
		{"/v1/admit", of("essential"), []string{batch}, 403, "none", `"reason":"scope_denied"`},
		{"/v1/admit", of("urgent"), []string{edge}, 400, "none", `"field":"priority"`},
		{"/v1/admit", of(""), []string{edge}, 400, "none", `"field":"priority"`},
		{"/v1/admit", `{"labels":{"tenant":"guarded"},"priority":7}`, []string{edge}, 400, "none", `"field":"priority"`},
		{"/v1/admit/batch", `{"items":[{"labels":{"tenant":"guarded"},"admission_id":"a","priority":"essential"}]}`, []string{edge}, 200, allocation.Essential, `"priority":"essential"`},
		{"/v1/admit/batch", `{"items":[{"labels":{"tenant":"acme"},"admission_id":"a"},{"labels":{"tenant":"guarded"},"admission_id":"b","priority":"essential"}]}`, []string{batch}, 403, "none", `scope_denied`},
		{"/v1/admit/batch", `{"items":[{"labels":{"tenant":"guarded"},"admission_id":"a","priority":"urgent"}]}`, []string{edge}, 400, "none", `"field":"items[0].priority"`},
		{"/v1/settle", `{"tenant":"guarded","priority":"essential"}`, []string{edge}, 400, "none", `"field":"priority"`},
		{"/v1/authorize", "", []string{edge, "Tranche-Label-Tenant: guarded", "Tranche-Priority: essential"}, 200, allocation.Essential, ""},
		{"/v1/authorize", "", []string{batch, "Tranche-Label-Tenant: guarded", "Tranche-Priority: batch"}, 200, allocation.Batch, ""},
		{"/v1/authorize", "", []string{batch, "Tranche-Label-Tenant: guarded", "Tranche-Priority: essential"}, 403, "none", "scope_denied"},
		{"/v1/authorize", "", []string{edge, "Tranche-Label-Tenant: guarded", "Tranche-Priority: urgent"}, 400, "none", "Tranche-Priority"},
	} {
		w := newAPIWorld(t, guardedTokens(t)...)
		method, headers := "POST", c.headers
		if c.path == "/v1/authorize" {
			method = "GET"
		}
		if c.path != "/v1/admit/batch" {
			headers = append(headers, "Admission-Id: a")
		}
		wantStatus(t, w.call(method, c.path, c.body, headers...), c.status, c.word)
		if asked := len(w.owner.asked) > 0; asked != (c.want != "none") || asked && w.owner.asked[0].Priority != c.want {
			t.Errorf("asked %+v", w.owner.asked)
		}
		if t.Failed() {
			t.Fatalf("%s %s %v", c.path, c.body, c.headers)
		}
	}
	w := newAPIWorld(t) // without tokens, on this machine
	wantStatus(t, w.admit("a", of("essential")), 200)
}

// A token file says who may say essential, in each line of a name. If this failed a rotation would take that away, or a typing
// error give it.
func TestTokensMayBeEssential(t *testing.T) {
	for text, want := range map[string]string{
		"edge " + tokenA + " essential":                                   "",
		"edge " + tokenA + " essential\nedge " + tokenB + " essential":    "",
		"edge " + tokenA + " important":                                   "line 1",
		"edge " + tokenA + " essential essential":                         "line 1",
		"edge " + tokenA + " essential\nedge " + tokenB:                   "line 2",
		"edge " + tokenA + "\n\nedge " + tokenB + " essential":            "line 3",
		"edge " + tokenA + " essential\nother " + tokenB + " # essential": "line 2",
	} {
		list, err := ParseTokens([]byte(text))
		if want == "" && (err != nil || !tokens(list).mayBeEssential("edge") || tokens(list).mayBeEssential("other")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
		if err != nil && strings.Contains(err.Error(), tokenA) {
			t.Errorf("%v tells a token", err)
		}
	}
}

// A gateway must know the cheaper route, also one that reads headers only. If this failed what is degraded would take the
// dear route, or the ladder's word would rest on nothing.
func TestAPIDegraded(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.observed = apiStart - 2_500_000
	w.owner.elsewhere["stepped"] = allocation.Elsewhere{Budget: "stepped", Period: allocation.Instant(apiStart/3_600_000_000) * 3600, Limit: 10, Generation: 11}
	w.admit("a", `{"labels":{"tenant":"stepped"},"costs":{"requests":8}}`)
	r := w.admit("b", `{"labels":{"tenant":"stepped"}}`)
	wantStatus(t, r, 200, `"decision":"admitted"`, `"action":"degraded"`, `"route":"economy"`, `"used_percent":80`, `"of":"budget"`, `"age_ms":2500`, `"charged":1`)
	r = w.call("GET", "/v1/authorize", "", "Admission-Id: c", "Tranche-Label-Tenant: stepped")
	wantStatus(t, r, 200)
	if r.Header.Get(actionHeader) != "degraded" || r.Header.Get(routeHeader) != "economy" {
		t.Errorf("headers %v", r.Header)
	}
	r = w.call("GET", "/v1/authorize", "", "Admission-Id: d", "Tranche-Label-Tenant: stepped", "Tranche-Priority: batch")
	wantStatus(t, r, 429, "ceiling_reached") // the counters come before the ladder
	wantStatus(t, w.call("GET", "/v1/decisions/b?tenant=stepped", ""), 200, `"action":"degraded"`, `"route":"economy"`)
	if n := w.owner.charged(); n != 10 {
		t.Errorf("%d are charged", n)
	}
}

// What is admitted on old evidence says how far that can go. If this failed a region that is cut off would spend, and nobody could
// tell how much.
func TestAPIStaleEvidence(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.observed = apiStart - 60_000_000
	wantStatus(t, w.admit("a", `{"labels":{"tenant":"alone"}}`), 200,
		`"stale_evidence":{"max_evidence_age":"1s","at_most":10,"covered_until":"2026-06-02T00:00:00Z"}`, `"age_ms":60000`, `"ledger_revision":42`)
	wantStatus(t, w.admit("b", `{"labels":{"tenant":"alone"},"costs":{"requests":10}}`), 429, "ceiling_reached", `"stale_evidence"`)
	wantStatus(t, w.admit("c", `{"labels":{"tenant":"fresh"}}`), 503, "evidence_stale", `"age_ms":60000`)
	w.owner.observed = apiStart
	r := w.admit("d", `{"labels":{"tenant":"alone"}}`)
	if text := bodyOf(t, r); strings.Contains(text, "stale") {
		t.Error(text)
	}
}
