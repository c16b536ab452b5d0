package regional

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"tranche/allocation"
)

// If this failed, a caller's mistake would be charged, or answered without saying what to do about it.
func TestAPIBadInput(t *testing.T) {
	long := strings.Repeat("x", 300)
	labels := make([]string, allocation.MaxLabels+1)
	for i := range labels {
		labels[i] = fmt.Sprintf(`"l%d":"v"`, i)
	}
	units := make([]string, maxCosts+1)
	for i := range units {
		units[i] = fmt.Sprintf(`"u%d":1`, i)
	}
	for _, c := range []struct {
		path, body, field string
		headers           []string
	}{
		{"/v1/admit", `{"labels":{"tenant":"acme"},"cost":{"requests":1}}`, "cost", nil},
		{"/v1/admit", `{"Labels":{"tenant":"acme"}}`, "Labels", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme","tenant":"trial"}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"labels":{}}`, "labels", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":1,"tokens":2}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":-1}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":1.5}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":1.0}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":1e3}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":9007199254740993}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":99999999999999999999999}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":"5"}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":null}}`, "costs.tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"Tokens":1}}`, "costs.Tokens", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":[1]}`, "costs", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":null}`, "costs", nil},
		{"/v1/admit", `{"costs":{` + strings.Join(units, ",") + `}}`, "costs.u32", nil},
		{"/v1/admit", `{"labels":{` + strings.Join(labels, ",") + `}}`, "labels", nil},
		{"/v1/admit", `{"labels":{"tenant":""}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"tenant":"` + long + `"}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"tenant":"a\u0000"}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"tenant":"\ud800"}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"tenant":5}}`, "labels.tenant", nil},
		{"/v1/admit", `{"labels":{"Tenant":"acme"}}`, "labels", nil},
		{"/v1/admit", "{\"labels\":{\"tenant\":\"\xff\"}}", "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":"settle"}`, "op", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":"Spend"}`, "op", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":7}`, "op", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"deadline_ms":0}`, "deadline_ms", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"deadline_ms":30001}`, "deadline_ms", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"deadline_ms":"1s"}`, "deadline_ms", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"lifetime":"10m"}`, "lifetime", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":"reserve","lifetime":"0s"}`, "lifetime", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":"reserve","lifetime":"31d"}`, "lifetime", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"op":"reserve","lifetime":600}`, "lifetime", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"tenant":"acme"}`, "tenant", nil},
		{"/v1/admit", `[]`, "body", nil},
		{"/v1/admit", `null`, "body", nil},
		{"/v1/admit", ` `, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"}} {}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":01}}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"tokens":+1}}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"x":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + `}`, "body", nil},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id", []string{"Admission-Id: " + long}},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id", []string{"Admission-Id: é"}},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id", []string{`Admission-Id: "a`}},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id", []string{`Admission-Id: ""`}},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Admission-Id", []string{"Admission-Id: a", "Admission-Id: b"}},
		{"/v1/admit", `{"labels":{"tenant":"acme"}}`, "Idempotency-Key", []string{"Admission-Id: a", "Idempotency-Key: b"}},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"admission_id":"b"}`, "Admission-Id", []string{"Admission-Id: a"}},
		{"/v1/admit", `{"labels":{"tenant":"acme"},"admission_id":""}`, "admission_id", nil},
		{"/v1/admit/batch", `{}`, "items", nil},
		{"/v1/admit/batch", `{"items":[]}`, "items", nil},
		{"/v1/admit/batch", `{"items":[{}]}`, "Idempotency-Key", []string{"Idempotency-Key: a"}},
		{"/v1/admit/batch", `{"items":[{"labels":{"tenant":"acme"},"deadline_ms":5}]}`, "items[0].deadline_ms", nil},
		{"/v1/admit/batch", `{"items":[{"labels":{"tenant":"acme"}},{"labels":{"tenant":""}}]}`, "items[1].labels.tenant", nil},
		{"/v1/admit/batch", `{"items":[` + strings.Repeat(`{},`, MaxBatchRequests) + `{}]}`, "items", nil},
		{"/v1/settle", `{"tenant":"acme","labels":{"tenant":"acme"}}`, "labels", nil},
		{"/v1/settle", `{"tenant":"acme","costs":{"tokens":-4}}`, "costs.tokens", []string{"Admission-Id: a"}},
		{"/v1/settle", `{"tenant":"a\nb"}`, "tenant", []string{"Admission-Id: a"}},
		{"/v1/release", `{"costs":{}}`, "costs", []string{"Admission-Id: a"}},
		{"/v1/extend", `{"tenant":"acme"}`, "body", []string{"Admission-Id: a"}},
		{"/v1/match", `{"labels":{"tenant":"acme"},"costs":{}}`, "costs", nil},
	} {
		w := newAPIWorld(t)
		headers := c.headers
		if c.path == "/v1/admit" && len(headers) == 0 && !strings.Contains(c.body, "admission_id") {
			headers = []string{"Admission-Id: a"}
		}
		r := w.call("POST", c.path, c.body, headers...)
		wantStatus(t, r, 400, `"reason":"invalid_request"`, `"outcome":"none"`, `"field":"`+c.field+`"`, `"fix":"`)
		if r.Header.Get("Content-Type") != problemJSON || r.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("headers %v", r.Header)
		}
		if t.Failed() {
			t.Fatalf("%s %.200s", c.path, c.body)
		}
		if len(w.owner.asked) != 0 {
			t.Fatalf("%s %.200s: was asked of the owner", c.path, c.body)
		}
	}
}

// If this failed, what is not even a call would be worked on.
func TestAPIWrongCalls(t *testing.T) {
	good := `{"labels":{"tenant":"acme"}}`
	for _, c := range []struct {
		method, path, body string
		headers            []string
		status             int
		word               string
	}{
		{"POST", "/v1/admit", good, []string{"Content-Type: "}, 415, "application/json"},
		{"POST", "/v1/admit", good, []string{"Content-Type: ", "Content-Type: text/plain"}, 415, "application/json"},
		{"POST", "/v1/admit", good, []string{"Content-Type: ", "Content-Type: application/json; charset=latin1"}, 415, "application/json"},
		{"POST", "/v1/admit", good, []string{"Content-Encoding: gzip"}, 415, "encoded"},
		{"POST", "/v1/admit", good + strings.Repeat(" ", MaxBodyBytes), nil, 413, "1 MiB"},
		{"GET", "/v1/admit", "", nil, 405, "POST"},
		{"HEAD", "/v1/admit", "", nil, 405, ""},
		{"PUT", "/v1/status", "", nil, 405, "GET and HEAD"},
		{"OPTIONS", "/v1/admit", "", nil, 204, ""},
		{"GET", "/v1/nothing", "", nil, 404, "no such path"},
		{"POST", "/v1/admit/", good, nil, 404, "no such path"},
		{"POST", "/v1/settle", `{"tenant":"acme","costs":{"tokens":1}}`, nil, 400, "admission_id_missing"},
		{"POST", "/v1/settle", `{"tenant":"acme","costs":{"tokens":1}}`, []string{"Admission-Id: never"}, 404, "admission_id_unknown"},
		{"GET", "/v1/reservations?limit=0", "", nil, 400, `"field":"limit"`},
		{"GET", "/v1/reservations?limit=1001", "", nil, 400, `"field":"limit"`},
		{"GET", "/v1/reservations?limit=1&limit=2", "", nil, 400, "twice"},
		{"GET", "/v1/reservations?after=!", "", nil, 400, `"field":"after"`},
		{"GET", "/v1/reservations?page=2", "", nil, 400, `"field":"page"`},
		{"GET", "/v1/account?limit=x", "", nil, 400, `"field":"limit"`},
		{"GET", "/v1/decisions/", "", nil, 400, "is empty"},
		{"GET", "/v1/decisions/a?tenent=acme", "", nil, 400, `"field":"tenent"`},
		{"GET", "/v1/decisions/a?tenant=%zz", "", nil, 400, `"field":"query"`},
	} {
		w := newAPIWorld(t)
		r := w.call(c.method, c.path, c.body, c.headers...)
		wantStatus(t, r, c.status, c.word)
		if r.Header.Get("Allow") == "" && (c.status == 405 || c.status == 204) {
			t.Error("no Allow header")
		}
		if n := w.owner.charged(); n != 0 || t.Failed() {
			t.Fatalf("%s %s: %d charged", c.method, c.path, n)
		}
	}
}

// If this failed, an id with a slash or dots could be spent and never looked up.
func TestAPIFindsOddIDs(t *testing.T) {
	w := newAPIWorld(t)
	for id, path := range map[string]string{"a/b": "a%2Fb", "..": "%2E%2E", "a%b ?": "a%25b%20%3F", `q"q`: "q%22q"} {
		wantStatus(t, w.admit(id, `{"labels":{"tenant":"acme"}}`), 200)
		wantStatus(t, w.call("GET", "/v1/decisions/"+path+"?tenant=acme", ""), 200, `"state":"spent"`)
	}
}

// If this failed, an error of the database would be told to callers, or look like an empty list.
func TestAPIReadErrors(t *testing.T) {
	for err, reason := range map[error]allocation.Reason{
		fmt.Errorf("at 10.0.0.1: %w", ErrNotReady):              allocation.Starting,
		fmt.Errorf("at 10.0.0.1: %w", ErrHistoryLost):           allocation.HistoryLost,
		fmt.Errorf("at 10.0.0.1"):                               allocation.DatabaseUnavailable,
		fmt.Errorf("at 10.0.0.1: %w", context.DeadlineExceeded): allocation.Overloaded,
	} {
		w := newAPIWorld(t)
		w.owner.fail = err
		for _, path := range []string{"/v1/decisions/a", "/v1/reservations", "/v1/account"} {
			r := w.call("GET", path, "")
			wantStatus(t, r, 503, string(reason), `"outcome":"none"`)
			if strings.Contains(bodyOf(t, r), "10.0.0.1") || r.Header.Get("Retry-After") == "" {
				t.Error(path, "tells an address, or not when to come back")
			}
		}
	}
}

// If this failed, an orchestrator would restart a node for its database's absence, or send callers to it.
func TestAPIHealth(t *testing.T) {
	w := newAPIWorld(t, Token{Name: "gw"})
	wantStatus(t, w.call("GET", "/readyz", ""), 200, `{"ready":true}`)
	w.owner.status.Ready, w.owner.status.Reasons = false, []string{"admissions fail to commit"}
	wantStatus(t, w.call("GET", "/readyz", ""), 503, "admissions fail to commit")
	wantStatus(t, w.call("GET", "/healthz", ""), 200, "ok")
	wantStatus(t, w.call("HEAD", "/healthz", ""), 200)
	wantStatus(t, w.call("GET", "/v1/status", ""), 401)
}

// If this failed, some text would name two admissions, or two texts that a proxy makes of one id.
func FuzzAdmissionID(f *testing.F) {
	for _, seed := range []string{"a", `"a"`, `"a\"b"`, `"a";x=1`, `a"b`, "", `"`, "\x00", strings.Repeat("x", 256), " a", `" a"`, "é"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, problem := parseAdmissionID(text)
		if problem != "" {
			if id != "" {
				t.Fatalf("%q is refused and read as %q", text, id)
			}
			return
		}
		if len(id) < 1 || len(id) > MaxAdmissionID {
			t.Fatalf("%q is read as %q", text, id)
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(id) + `"`
		if again, problem := parseAdmissionID(quoted); again != id {
			t.Fatalf("%q quoted is %q: %s", id, again, problem)
		}
	})
}

// If this failed, a body would be read otherwise than the rest of the world reads it, and something else be charged.
func FuzzCallBody(f *testing.F) {
	for _, seed := range []string{
		`{"labels":{"tenant":"acme"},"costs":{"requests":1,"tokens":1200},"op":"reserve","deadline_ms":1000,"lifetime":"10m"}`,
		`{"items":[{"admission_id":"a","labels":{"x":"\u00e9\n"}},{}]}`, `{"a":[1,-2.5e+3,true,false,null,{"b":"c\\\""}]}`,
		`{"tenant":"a"}`, `{"costs":{"tokens":01}}`, `{`, `"`, `{"labels":{"a":"\ud800\udc00"}}`, `{"costs":{"t":tru}}`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		body, wrong := readCall(data, 1<<len(fieldNames)-1)
		if wrong != nil {
			if len(wrong.problems) == 0 || wrong.problems[0].Field == "" || wrong.problems[0].Fix == "" {
				t.Fatalf("%q is refused without a word", data)
			}
			return
		}
		var other struct {
			Labels map[string]string
			Costs  map[string]json.Number
			Items  []json.RawMessage
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&other); err != nil {
			t.Fatalf("%q is accepted, but is %v", data, err)
		}
		if len(body.items) != len(other.Items) || len(body.costs) != len(other.Costs) || len(body.labels) != len(other.Labels) {
			t.Fatalf("%q: %+v, not %+v", data, body, other)
		}
		for unit, n := range other.Costs {
			if fmt.Sprint(body.costs[unit]) != strings.TrimPrefix(n.String(), "-") {
				t.Fatalf("%q: %s costs %d", data, unit, body.costs[unit])
			}
		}
		for name, value := range other.Labels {
			if body.labels[name] != value {
				t.Fatalf("%q: label %s is %q", data, name, body.labels[name])
			}
		}
	})
}

// If this failed, a real server would read a body over its bound, or let a caller hold a connection for ever.
func TestAPIServer(t *testing.T) {
	w := newAPIWorld(t)
	s := NewServer(w)
	if s.ReadHeaderTimeout == 0 || s.ReadTimeout == 0 || s.WriteTimeout < MaxDeadline || s.IdleTimeout == 0 || s.MaxHeaderBytes == 0 {
		t.Errorf("a server without a bound: %+v", s)
	}
	real := httptest.NewUnstartedServer(s.Handler)
	real.Config = s
	real.Start()
	defer real.Close()
	big := strings.Repeat(" ", MaxBodyBytes+1)
	for body, status := range map[io.Reader]int{
		strings.NewReader(`{"labels":{"tenant":"acme"},"op":"check"}`): 200,
		strings.NewReader(big):                 413,
		io.MultiReader(strings.NewReader(big)): 413, // chunked: its length comes last
	} {
		r, err := real.Client().Post(real.URL+"/v1/admit", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		wantStatus(t, r, status)
	}
	r, err := real.Client().Head(real.URL + "/v1/status")
	if err != nil || r.StatusCode != 200 || r.ContentLength < 1 || bodyOf(t, r) != "" {
		t.Error(r, err)
	}
}
