package regional

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tranche/allocation"
)

// decidedAlready is a backend whose decision costs nothing, so that what is measured is the API.
type decidedAlready struct {
	Backend
	decision allocation.Decision
}

func (b *decidedAlready) Decide(_ context.Context, requests []allocation.Request, _ time.Time) []allocation.Decision {
	d := b.decision
	d.Key = requests[0].Key
	return []allocation.Decision{d}
}

// sink is where a server would write to; its header is made anew for each answer, as a server does.
type sink struct {
	header http.Header
	status int
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(status int)      { s.status = status }
func (s *sink) Write(b []byte) (int, error) { s.bytes += len(b); return len(b), nil }

// answering is one call of the API alone, over the decision that the world's owner makes for the last of the bodies.
func answering(tb testing.TB, status int, bodies ...string) (answer func()) {
	w := newAPIWorld(tb)
	w.owner.observed = apiStart - 1_500_000
	for i, body := range bodies {
		w.admit(string(rune('a'+i)), body)
	}
	stub := &decidedAlready{Backend: w.owner}
	w.owner.asked[len(w.owner.asked)-1].Key.ID = "the-one"
	stub.decision = w.owner.decide(w.owner.asked[len(w.owner.asked)-1])
	w.Backend = stub
	body := bytes.NewReader(nil)
	r := httptest.NewRequest(http.MethodPost, "/v1/admit", body)
	r.Header["Content-Type"], r.Header[admissionIDHeader] = []string{"application/json"}, []string{"018f3c5e-0000-7000-8000-000000000001"}
	r.ContentLength = int64(len(bodies[len(bodies)-1]))
	r.Body = io.NopCloser(body)
	to, text := &sink{}, []byte(bodies[len(bodies)-1])
	return func() {
		body.Reset(text)
		to.header, to.bytes = http.Header{}, 0
		w.ServeHTTP(to, r)
		if to.status != status || to.bytes == 0 {
			tb.Fatalf("answered %d", to.status)
		}
	}
}

var (
	anAdmission = []string{`{"labels":{"tenant":"acme"},"deadline_ms":5000}`}
	aRefusal    = []string{`{"labels":{"tenant":"acme"},"costs":{"requests":60}}`, `{"labels":{"tenant":"acme"},"deadline_ms":5000}`}
)

func BenchmarkAnswerAdmission(b *testing.B) {
	answer := answering(b, 200, anAdmission...)
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}

func BenchmarkAnswerRefusal(b *testing.B) {
	answer := answering(b, 429, aRefusal...)
	b.ReportAllocs()
	for b.Loop() {
		answer()
	}
}

// At tens of thousands of answers a second each allocation counts. Most of those that are left are the labels, the id, and
// the values of headers.
func TestAnswerAllocations(t *testing.T) {
	for name, answer := range map[string]func(){
		"admission": answering(t, 200, anAdmission...), "refusal": answering(t, 429, aRefusal...),
	} {
		if got := testing.AllocsPerRun(300, answer); got > 25 {
			t.Errorf("%s: %v allocations, want at most 25", name, got)
		}
	}
}
