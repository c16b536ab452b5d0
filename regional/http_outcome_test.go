package regional

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tranche/allocation"
)

// counts says whether the metrics have this line.
func (w *apiWorld) counts(line string) bool {
	return strings.Contains(bodyOf(w.t, w.call("GET", "/metrics", "")), line+"\n")
}

// If this failed, an upstream's refusal would look like one of ours, a permit would come back that the upstream has
// counted, or a caller could fill the metrics with labels of its own.
func TestOutcomeOfAnUpstream(t *testing.T) {
	w := withReceipts(newAPIWorld(t))
	w.owner.catalogue = w.owner.catalogue.WithDocuments([]allocation.Document{{
		Kind: allocation.KindRoutes, Name: allocation.NameRoutes, Version: 1, Number: 4,
		Body: json.RawMessage(`{"routes":[{"path":"/v1/chat","capability":"model"}]}`),
	}})
	w.admit("a", `{"labels":{"tenant":"acme"}}`)
	spent := map[allocation.UsageKey]int64{}
	for key, u := range w.owner.usage {
		spent[key] = u.Spent
	}
	told := func(body string) outcomeBody {
		t.Helper()
		resp := w.call("POST", "/v1/decisions/a/outcome", body)
		var out outcomeBody
		if err := json.Unmarshal([]byte(bodyOf(t, resp)), &out); err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %v", resp.StatusCode, err)
		}
		return out
	}
	first := told(`{"outcome":"upstream_refused","tenant":"acme","capability":"model"}`)
	again := told(`{"outcome":"upstream_refused","tenant":"acme","capability":"model"}`)
	if first.Repeated || !again.Repeated || first.Capability != "model" || !w.counts(`tranche_upstream_outcomes_total{capability="model",outcome="upstream_refused"} 1`) {
		t.Errorf("%+v, then %+v", first, again)
	}
	if got := told(`{"outcome":"timeout","tenant":"acme","capability":"jane@example.com"}`); got.Capability != "other" || !w.counts(`tranche_upstream_outcomes_total{capability="other",outcome="timeout"} 1`) {
		t.Errorf("a capability that nobody declared: %+v", got)
	}
	if got := told(`{"outcome":"ok","tenant":"acme"}`); got.Capability != "none" {
		t.Errorf("%+v", got)
	}
	r, ok := w.opened(first.Receipt)
	if !ok || r.Upstream != allocation.UpstreamRefused || r.Reason != allocation.Allow || r.Budget != "acme/requests" || r.Admission != "a" {
		t.Errorf("%+v, %v", r, ok)
	}
	if e := allocation.Explain(r); e.Cause != allocation.CauseUpstream {
		t.Errorf("explained as %s", e.Cause)
	}
	for key, u := range w.owner.usage {
		if spent[key] != u.Spent {
			t.Error("an outcome changed what was spent")
		}
	}
	if !w.counts(`tranche_admissions_total{reason="ceiling_reached",result="refused"} 0`) || strings.Contains(bodyOf(t, w.call("GET", "/metrics", "")), "jane") {
		t.Error("an upstream's refusal is counted as ours")
	}
}

// What is no outcome is named, and counts nowhere.
func TestOutcomeThatIsWrong(t *testing.T) {
	w := withReceipts(newAPIWorld(t))
	w.admit("a", `{"labels":{"tenant":"acme"}}`)
	post := func(path, body string) *http.Response { return w.call("POST", path, body) }
	wantStatus(t, post("/v1/decisions/a/outcome", `{"outcome":"broken","tenant":"acme"}`), 400, `"field":"outcome"`, "ok, upstream_refused, timeout, malformed")
	wantStatus(t, post("/v1/decisions/a/outcome", `{"tenant":"acme"}`), 400, `"field":"outcome"`, "is missing")
	wantStatus(t, post("/v1/decisions/a/outcome", `{"outcome":"ok","caller":"x"}`), 400, `"field":"caller"`)
	wantStatus(t, post("/v1/decisions/a/outcome", `{"outcome":"ok","outcome":"timeout"}`), 400, "given twice")
	wantStatus(t, post("/v1/decisions/a/outcome", `{"outcome":"ok"}`), 404, "admission_id_unknown") // of another tenant
	wantStatus(t, post("/v1/decisions/b/outcome", `{"outcome":"ok","tenant":"acme"}`), 404, "admission_id_unknown", "receipt")
	wantStatus(t, post("/v1/decisions/a/outcome", `{"outcome":"ok","tenant":"`+strings.Repeat("x", 5000)+`"}`), 413, "body_too_large")
	wantStatus(t, w.call("POST", "/v1/decisions/a/outcome", `{"outcome":"ok"}`, "Content-Type: ", "Content-Type: text/plain"), 415, "unsupported_media_type")
	if text := bodyOf(t, w.call("GET", "/metrics", "")); strings.Contains(text, "tranche_upstream_outcomes_total{") {
		t.Error("one of them was counted")
	}
}

// If this failed, a node that runs for long would remember every report, or count one twice that came twice in a row.
func TestOutcomesAreBounded(t *testing.T) {
	o := outcomes{}
	key := func(i int) allocation.IDKey { return allocation.IDKey{ID: fmt.Sprint(i)} }
	for i := range maxOutcomes + 10 {
		if !o.first(key(i), allocation.UpstreamOK) || o.first(key(i), allocation.UpstreamOK) {
			t.Fatalf("report %d", i)
		}
	}
	if len(o.seen) != maxOutcomes || len(o.order) != maxOutcomes || o.first(key(maxOutcomes), allocation.UpstreamOK) || !o.first(key(0), allocation.UpstreamOK) {
		t.Errorf("%d of %d are remembered", len(o.seen), len(o.order))
	}
}
