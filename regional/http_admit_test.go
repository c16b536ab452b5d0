package regional

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
)

// If this failed, a caller could not follow one admission from its reservation to its true cost.
func TestAPILifeOfAReservation(t *testing.T) {
	w := newAPIWorld(t)
	reserve := `{"labels":{"tenant":"acme","metered":"yes"},"costs":{"tokens":1000},"op":"reserve","lifetime":"10m"}`
	wantStatus(t, w.admit("r-1", reserve), 200, `"decision":"admitted"`, `"state":"reserved"`, `"remaining":5000`, `"remaining":59`,
		`"expires_at":"2026-06-01T12:10:30.000000Z"`)
	wantStatus(t, w.admit(`"r-1"`, reserve), 200, `"replayed":true`, `"admission_id":"r-1"`)
	wantStatus(t, w.call("GET", "/v1/reservations", ""), 200, `"admission_id":"r-1"`, `"reserved":1000`, `"tenant":"acme"`)
	wantStatus(t, w.call("POST", "/v1/extend", `{"tenant":"acme","admission_id":"r-1","costs":{"tokens":1500},"lifetime":"20m"}`),
		200, `"charged":1500`, `"expires_at":"2026-06-01T12:20:30.000000Z"`)
	wantStatus(t, w.call("POST", "/v1/settle", `{"tenant":"acme","costs":{"tokens":700}}`, "Idempotency-Key: r-1"),
		200, `"state":"settled"`, `"charged":700`, `"remaining":5300`)
	wantStatus(t, w.call("POST", "/v1/release", `{"tenant":"acme"}`, "Admission-Id: r-1"), 409, `"reason":"admission_id_settled"`)
	wantStatus(t, w.call("GET", "/v1/decisions/r-1?tenant=acme", ""), 200, `"state":"settled"`, `"op":"reserve"`)
	wantStatus(t, w.call("GET", "/v1/decisions/r-1", ""), 404, "?tenant=")
	wantStatus(t, w.call("GET", "/v1/reservations", ""), 200, `"reservations":[]`)
}

// If this failed, a released admission would read as one that stands.
func TestAPIReleasedIsNotAdmitted(t *testing.T) {
	w := newAPIWorld(t)
	wantStatus(t, w.call("POST", "/v1/release", `{"tenant":"acme"}`, "Admission-Id: early"), 200, `"decision":"released"`, `"state":"released"`)
	wantStatus(t, w.admit("early", `{"labels":{"tenant":"acme"},"op":"reserve"}`), 409, `"retry":"with_new_id"`)
	wantStatus(t, w.call("GET", "/v1/decisions/early?tenant=acme", ""), 200, `"decision":"released"`)
	if n := w.owner.charged(); n != 0 {
		t.Errorf("%d charged", n)
	}
}

// If this failed, an id that a node made would be charged although a retry could not name it.
func TestAPIGeneratedID(t *testing.T) {
	w := newAPIWorld(t)
	user := "a"
	for ; !atHome(w, user); user += "a" {
	}
	wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"users","user":"`+user+`"}}`), 200, `"admission_id":"made-1"`)
	r := w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"}}`)
	wantStatus(t, r, 400, `"reason":"admission_id_missing"`, "Admission-Id")
	if strings.Contains(bodyOf(t, r), "made-2") {
		t.Error("tells an id that was never used")
	}
	if w.admit("x", `{"labels":{"tenant":"acme"}}`); w.owner.asked[2].Generated {
		t.Error("a caller's id counts as made")
	}
	if id := newAdmissionID(); len(id) != 36 || id[14] != '7' {
		t.Errorf("%s is no version 7 UUID", id)
	}
}

func atHome(w *apiWorld, user string) bool {
	p := w.owner.catalogue.Plan(allocation.Request{Op: allocation.Check, Labels: allocation.Labels{"tenant": "users", "user": user}}, allocation.Instant(apiStart/1_000_000))
	return p.Lines[0].Problem == ""
}

// If this failed, two callers would share an admission, or a deadline would be the node's and not the caller's.
func TestAPIRequest(t *testing.T) {
	w := newAPIWorld(t)
	wantStatus(t, w.call("POST", "/v1/admit", `{"labels":{"tenant":"acme"},"costs":{"requests":2},"deadline_ms":250}`,
		"Admission-Id: a b", "Idempotency-Key: \"a b\"", "X-Request-Id: req-9",
		"Traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"), 200, `"correlation":"4bf92f3577b34da6a3ce929d0e0e4736"`)
	got := w.owner.asked[0]
	if want := (allocation.IDKey{Credential: LoopbackCredential, Tenant: "acme", ID: "a b"}); got.Key != want || got.Op != allocation.Spend || got.Costs["requests"] != 2 {
		t.Errorf("asked %+v", got)
	}
	if d := w.owner.deadlines[0].Sub(time.UnixMicro(apiStart)); d != 250*time.Millisecond {
		t.Errorf("deadline %s", d)
	}
	w.call("POST", "/v1/admit", `{}`, "X-Request-Id: req-9", "Traceparent: 00-00000000000000000000000000000000-00f067aa0ba902b7-01")
	if got := w.owner.asked[1]; got.Correlation != "req-9" {
		t.Errorf("correlation %q", got.Correlation)
	}
	if d := w.owner.deadlines[1].Sub(time.UnixMicro(apiStart)); d != DefaultDeadline {
		t.Errorf("deadline %s", d)
	}
}

// If this failed, a batch would hide which of its items was admitted, or charge those beside one that is wrong.
func TestAPIBatch(t *testing.T) {
	w := newAPIWorld(t)
	r := w.call("POST", "/v1/admit/batch", `{"deadline_ms":500,"items":[
		{"admission_id":"b-1","labels":{"tenant":"acme"},"costs":{"requests":59}},
		{"admission_id":"b-2","labels":{"tenant":"acme"},"costs":{"requests":2}},
		{"admission_id":"\"b-1\"","labels":{"tenant":"acme"},"costs":{"requests":59}},
		{"labels":{"tenant":"nobody"},"op":"check"},
		{"admission_id":"b-3","labels":{"tenant":"acme"},"op":"reserve","lifetime":"1m"}]}`)
	wantStatus(t, r, 200)
	var got struct {
		Results []struct {
			Status   int
			Reason   string
			Replayed bool
		}
	}
	if err := json.Unmarshal([]byte(bodyOf(t, r)), &got); err != nil {
		t.Fatal(err)
	}
	if text := fmt.Sprint(got.Results); text != "[{200 allow false} {429 region_share_spent false} {200 allow true} {422 no_budget false} {200 allow false}]" {
		t.Errorf("results %s", text)
	}
	if n := w.owner.charged(); n != 60 {
		t.Errorf("%d charged, want 60", n)
	}
	before := w.owner.charged()
	wantStatus(t, w.call("POST", "/v1/admit/batch", `{"items":[{"admission_id":"c-1","labels":{"tenant":"trial"}},{"admission_id":"c-2","costs":{"tokens":-1}}]}`),
		400, `"field":"items[1].costs.tokens"`, "is negative")
	if n := w.owner.charged(); n != before {
		t.Errorf("a batch with a wrong item charged %d", n-before)
	}
}

// If this failed, an operator could not see which budgets a request hits before it costs something.
func TestAPIMatch(t *testing.T) {
	w := newAPIWorld(t)
	wantStatus(t, w.call("POST", "/v1/match", `{"labels":{"tenant":"acme","metered":"yes"}}`), 200,
		`"budget":"acme/requests"`, `"share":60`, `"budget":"acme/tokens"`, `"share":6000`, `"resets_in_seconds":30`)
	wantStatus(t, w.call("POST", "/v1/match", `{"labels":{"tenant":"eu"}}`), 200, `"reason":"not_home"`, `"home":"eu-west"`)
	wantStatus(t, w.call("POST", "/v1/match", `{"labels":{"tenant":"users"}}`), 200, `"reason":"label_missing"`, `"budget":"users/{user}"`)
	w.owner.force = allocation.DatabaseUnavailable
	r := w.call("POST", "/v1/match", `{"labels":{"tenant":"acme"}}`)
	wantStatus(t, r, 200, `"budget":"acme/requests"`, `"limit":100`)
	if strings.Contains(bodyOf(t, r), "share") {
		t.Error("tells a share that nobody read")
	}
	if n := w.owner.charged(); n != 0 {
		t.Errorf("%d charged", n)
	}
}

// If this failed, pages would repeat or leave out what they list.
func TestAPIPages(t *testing.T) {
	w := newAPIWorld(t)
	for i := range 5 {
		w.admit(fmt.Sprintf("p-%d", i), `{"labels":{"tenant":"acme"},"op":"reserve"}`)
	}
	w.admit("t", `{"labels":{"tenant":"trial"}}`)
	for path, want := range map[string]string{
		"/v1/reservations?limit=2": "p-0 p-1 p-2 p-3 p-4",
		"/v1/account?limit=1":      "acme/requests trial",
	} {
		var seen []string
		for next := path; next != ""; {
			var page struct {
				Reservations []struct {
					ID string `json:"admission_id"`
				}
				Usage []struct{ Budget string }
				Next  string
			}
			r := w.call("GET", next, "")
			if err := json.Unmarshal([]byte(bodyOf(t, r)), &page); err != nil || r.StatusCode != 200 {
				t.Fatal(r.Status, err)
			}
			for _, m := range page.Reservations {
				seen = append(seen, m.ID)
			}
			for _, u := range page.Usage {
				seen = append(seen, u.Budget)
			}
			if next = ""; page.Next != "" {
				next = path + "&after=" + page.Next
			}
		}
		if got := strings.Join(seen, " "); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// If this failed, a node that broke its promise would answer for a charge that nobody knows.
func TestAPIShortAnswerIsUnknown(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.short = true
	wantStatus(t, w.admit("a", `{"labels":{"tenant":"acme"}}`), 503, `"outcome":"unknown"`, `"retry":"with_same_id"`)
}

// If this failed, a node with too much to do would answer late instead of at once.
func TestAPIConcurrencyBound(t *testing.T) {
	w := newAPIWorld(t)
	w.slots = make(chan struct{}, 1)
	w.owner.hold, w.owner.entered = make(chan struct{}), make(chan struct{}, 1)
	done := make(chan *http.Response)
	go func() { done <- w.admit("a", `{"labels":{"tenant":"acme"}}`) }()
	<-w.owner.entered
	r := w.admit("b", `{"labels":{"tenant":"acme"}}`)
	wantStatus(t, r, 503, `"reason":"overloaded"`, `"outcome":"none"`)
	if r.Header.Get("Retry-After") != "1" {
		t.Error("no Retry-After")
	}
	wantStatus(t, w.call("GET", "/v1/status", ""), 200)
	close(w.owner.hold)
	wantStatus(t, <-done, 200)
	w.owner.hold = nil
	wantStatus(t, w.admit("c", `{"labels":{"tenant":"acme"}}`), 200)
}

func BenchmarkAPIAdmit(b *testing.B) {
	w := newAPIWorld(b)
	body := `{"labels":{"tenant":"none","route":"/v1/chat","caller":"bob"},"costs":{"requests":1,"tokens":1200},"deadline_ms":500}`
	b.ReportAllocs()
	for b.Loop() {
		w.owner.asked, w.owner.deadlines = w.owner.asked[:0], w.owner.deadlines[:0]
		w.admit("x", body)
	}
}
