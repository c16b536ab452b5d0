//go:build unix

package client_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional/client"
)

func bytesReader(b []byte) io.Reader { return bytes.NewReader(b) }

// If this failed, the client would read a node's answers wrongly in the simplest case.
func TestAdmitAndRefuse(t *testing.T) {
	c := newClient(t, client.Options{})
	for i := range 3 {
		d, err := c.Admit(t.Context(), tenant("small"))
		if err != nil || !d.Admitted() || d.Region != region || d.AdmissionID == "" || d.Replayed || d.Header.Get("RateLimit") == "" {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
	}
	d, err := c.Admit(t.Context(), tenant("small"))
	if err != nil || d.Admitted() || d.Reason != allocation.CeilingReached || d.Blocking.Budget != "small" || d.Affordable["requests"] != 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	if n := spent(t, "small"); n != 3 {
		t.Errorf("%d spent, want 3", n)
	}
	if d, err := c.Admit(t.Context(), tenant("eu")); err != nil || d.Admitted() || d.Home != "eu-west" || d.Status != 421 {
		t.Errorf("%+v, %v", d, err)
	}
	if d, err := c.Check(t.Context(), tenant("acme")); err != nil || !d.Admitted() || d.AdmissionID != "" {
		t.Errorf("%+v, %v", d, err)
	}
}

// If this failed, an answer that is lost would be charged twice, or told as a refusal.
func TestLostAnswerIsAskedAgainUnderTheSameID(t *testing.T) {
	h := newHop(t, loses, says(503, "<html>a proxy's page</html>"), loses)
	before := spent(t, "acme")
	d, err := newClient(t, client.Options{Nodes: []string{h.URL}}).Admit(t.Context(), tenant("acme"))
	if err != nil || !d.Admitted() || !d.Replayed {
		t.Fatalf("%+v, %v", d, err)
	}
	calls := h.calls()
	if len(calls) != 4 {
		t.Fatalf("%d calls", len(calls))
	}
	for _, s := range calls {
		if s.id != calls[0].id || strings.Trim(s.id, `"`) != d.AdmissionID {
			t.Errorf("id %s, first %s, told %s", s.id, calls[0].id, d.AdmissionID)
		}
		if ms, _ := s.body["deadline_ms"].(float64); ms < 1 || ms > 5000 {
			t.Errorf("deadline_ms %v", s.body["deadline_ms"])
		}
	}
	if n := spent(t, "acme") - before; n != 1 {
		t.Errorf("%d charged, want 1", n)
	}
}

// If this failed, a node that is down would take its region's callers with it.
func TestNextNodeIsAsked(t *testing.T) {
	down := newHop(t)
	down.Close()
	c := newClient(t, client.Options{Nodes: []string{down.URL, nodeURL}})
	for range 3 {
		if d, err := c.Admit(t.Context(), tenant("acme")); err != nil || !d.Admitted() {
			t.Fatalf("%+v, %v", d, err)
		}
	}
}

const stopped = `{"type":"x","title":"The region is starting","status":503,"decision":"refused","reason":"starting","region":"us-east","outcome":"none","retryable":true}`

// If this failed, an outage would admit, or a caller would not learn whether it may have been charged.
func TestFailsClosed(t *testing.T) {
	for name, c := range map[string]struct {
		step    func(http.ResponseWriter, *http.Request)
		outcome string
	}{
		"503":         {says(503, stopped), "none"},
		"overloaded":  {says(503, `{"reason":"overloaded","status":503,"outcome":"none"}`), "none"},
		"unknown":     {says(503, strings.Replace(stopped, `"none"`, `"unknown"`, 1)), "unknown"},
		"no json":     {says(200, "ok"), "unknown"},
		"other json":  {says(200, `{"admitted":true}`), "unknown"},
		"allow, 500":  {says(500, `{"decision":"admitted","reason":"allow","outcome":"unknown"}`), "unknown"},
		"cut":         {loses, "unknown"},
		"a redirect":  {says(302, "", "Location", "/v1/admit"), "unknown"},
		"a proxy 429": {says(429, "slow down"), "unknown"},
		"new, 503":    {says(503, strings.Replace(stopped, "starting", "of_the_future", 1)), "none"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHop(t, c.step, c.step, c.step)
			d, err := newClient(t, client.Options{Nodes: []string{h.URL}, Tries: 3}).Admit(t.Context(), tenant("acme"))
			var undecided *client.UndecidedError
			if !errors.As(err, &undecided) || d.Admitted() || undecided.Tries != 3 || undecided.Outcome != c.outcome || undecided.Ref.ID == "" {
				t.Fatalf("%+v, %v", d, err)
			}
			if n := len(h.calls()); n != 3 {
				t.Errorf("%d tries, want 3", n)
			}
		})
	}
}

// If this failed, an answer of a later version could let a request through.
func TestUnknownReasonsAreRefusals(t *testing.T) {
	for _, body := range []string{
		`{"decision":"admitted","reason":"of_the_future","action":"preferred"}`,
		`{"decision":"of_the_future","reason":"allow","action":"preferred"}`,
		`{"decision":"refused","reason":"of_the_future","retryable":true}`,
	} {
		h := newHop(t, says(200, body))
		d, err := newClient(t, client.Options{Nodes: []string{h.URL}}).Admit(t.Context(), tenant("acme"))
		if err != nil || d.Admitted() || len(h.calls()) != 1 {
			t.Errorf("%s: %+v, %v", body, d, err)
		}
	}
}

// If this failed, failing open would be silent, or would let through what was refused or asked wrongly.
func TestFailOpenIsLoudAndOnlyForWhatNobodyDecided(t *testing.T) {
	var log bytes.Buffer
	h := newHop(t, says(503, stopped), says(503, stopped), says(422, `{"decision":"refused","reason":"no_budget","status":422}`),
		says(401, `{"reason":"token_unknown","status":401}`), says(503, stopped), says(503, stopped))
	c := newClient(t, client.Options{Nodes: []string{h.URL}, Tries: 2, FailOpen: "checkout must go on", Log: slog.New(slog.NewTextHandler(&log, nil))})
	d, err := c.Admit(t.Context(), tenant("acme"))
	if err != nil || !d.Admitted() || !d.FailedOpen || c.FailedOpen() != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	for _, words := range []string{"level=WARN", "level=ERROR", "checkout must go on", d.AdmissionID, "starting"} {
		if !strings.Contains(log.String(), words) {
			t.Errorf("the log lacks %s: %s", words, log.String())
		}
	}
	if d, err := c.Admit(t.Context(), tenant("nobody")); err != nil || d.Admitted() {
		t.Errorf("a refusal was let through: %+v, %v", d, err)
	}
	var wrong *client.CallError
	if d, err := c.Admit(t.Context(), tenant("acme")); !errors.As(err, &wrong) || d.Admitted() {
		t.Errorf("a wrong call was let through: %+v, %v", d, err)
	}
	if _, err := c.Settle(t.Context(), client.Ref{ID: "x"}, nil); err == nil {
		t.Error("a settlement failed open")
	}
}

// If this failed, callers would come back before the node wants them, or for something that can never pass.
func TestRetryAfterIsHonoured(t *testing.T) {
	h := newHop(t, says(503, stopped, "Retry-After", "3"), says(503, stopped, "Retry-After", "40"))
	c := newClient(t, client.Options{Nodes: []string{h.URL}, Patience: 30 * time.Second})
	var waits []time.Duration
	client.SetSleep(c, func(d time.Duration) { waits = append(waits, d) })
	_, err := c.Admit(t.Context(), tenant("acme"))
	var undecided *client.UndecidedError
	if !errors.As(err, &undecided) || undecided.Tries != 2 || undecided.Wait < 40*time.Second {
		t.Fatal(err)
	}
	if len(waits) != 1 || waits[0] < 3*time.Second || waits[0] > 3300*time.Millisecond {
		t.Errorf("waits %v, want one of 3 s and up to a tenth", waits)
	}
}

// If this failed, clients that failed together would come back together, or would hammer a node.
func TestBackoffGrowsAndIsBounded(t *testing.T) {
	h := newHop(t, slicesRepeat(says(503, stopped), 12)...)
	c := newClient(t, client.Options{Nodes: []string{h.URL}, Tries: 12, Patience: time.Hour})
	var waits []time.Duration
	client.SetSleep(c, func(d time.Duration) { waits = append(waits, d) })
	if _, err := c.Admit(t.Context(), tenant("acme")); err == nil {
		t.Fatal("admitted")
	}
	if len(waits) != 11 {
		t.Fatalf("%d waits", len(waits))
	}
	for i, w := range waits {
		full := min(50*time.Millisecond<<i, 2*time.Second)
		if w < full/2 || w > full {
			t.Errorf("wait %d is %s, want %s to %s", i, w, full/2, full)
		}
	}
}

func slicesRepeat[T any](one T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = one
	}
	return out
}

// If this failed, deferred work could not come back: its id would be bound, or lost.
func TestARefusalThatMayPassIsWaitedForUnderTheSameID(t *testing.T) {
	c := newClient(t, client.Options{})
	held, err := c.Reserve(t.Context(), tenant("hold"))
	if err != nil || !held.Admitted() {
		t.Fatal(held, err)
	}
	work := tenant("hold")
	work.ID = "work-1"
	d, err := c.Admit(t.Context(), work)
	if err != nil || d.Admitted() || !d.Retryable || d.AdmissionID != "work-1" {
		t.Fatalf("%+v, %v", d, err)
	}
	var waited []time.Duration
	client.SetSleep(c, func(d time.Duration) {
		if waited = append(waited, d); len(waited) == 2 {
			if _, err := c.Release(t.Context(), held.Ref()); err != nil {
				t.Error(err)
			}
		}
	})
	work.Wait = time.Minute
	if d, err = c.Admit(t.Context(), work); err != nil || !d.Admitted() || d.AdmissionID != "work-1" || d.Replayed {
		t.Fatalf("%+v, %v", d, err)
	}
	if len(waited) != 2 || waited[0] < time.Second {
		t.Errorf("waited %v", waited)
	}
	if n := spent(t, "hold"); n != 1 {
		t.Errorf("%d spent", n)
	}
}

// If this failed, a deferred batch job would be told as refused for good.
func TestDeferred(t *testing.T) {
	h := newHop(t, says(429, `{"decision":"refused","reason":"deferred","action":"deferred","retryable":true,"retry":"soon","retry_after_seconds":90}`))
	d, err := newClient(t, client.Options{Nodes: []string{h.URL}}).Admit(t.Context(), tenant("acme"))
	if err != nil || !d.Deferred() || d.Admitted() || d.RetryAfter != 90*time.Second {
		t.Errorf("%+v, %v", d, err)
	}
}

// If this failed, a service could not tell what shadow only let through, or would lose its traffic to a shadow.
func TestShadow(t *testing.T) {
	c := newClient(t, client.Options{})
	r := tenant("shadow")
	r.Legacy = "deny"
	for i, want := range []allocation.Reason{"", "", allocation.CeilingReached} {
		d, err := c.Reserve(t.Context(), r)
		if err != nil || !d.Admitted() || d.Would != want || (want != "") != (d.Blocking != nil) {
			t.Fatalf("%d: %+v, %v", i, d, err)
		}
		for range 2 {
			if s, err := c.Settle(t.Context(), d.Ref(), nil); err != nil || s.State != allocation.StateSettled {
				t.Errorf("%+v, %v", s, err)
			}
		}
	}
	if n := spent(t, "shadow"); n != 2 {
		t.Errorf("%d spent of 2", n)
	}
	for range 5 {
		if d, err := c.Admit(t.Context(), tenant("meter")); err != nil || !d.Admitted() || d.Would != "" {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if n := spent(t, "meter"); n != 2 {
		t.Errorf("%d spent of 2", n)
	}
}

// If this failed, one admission could not be followed from its estimate to its true cost.
func TestReservation(t *testing.T) {
	c := newClient(t, client.Options{})
	r := client.Request{Labels: map[string]string{"tenant": "acme", "metered": "yes"}, Costs: map[string]int64{"tokens": 500}, Lifetime: 90 * time.Second}
	d, err := c.Reserve(t.Context(), r)
	if err != nil || !d.Admitted() || d.State != allocation.StateReserved || d.ExpiresAt == "" {
		t.Fatalf("%+v, %v", d, err)
	}
	if e, err := c.Extend(t.Context(), d.Ref(), 2*time.Minute, map[string]int64{"tokens": 700}); err != nil || !e.Admitted() || e.ExpiresAt <= d.ExpiresAt {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := c.Extend(t.Context(), d.Ref(), 0, map[string]int64{"tokens": 1_000_001}); err != nil || e.Admitted() {
		t.Errorf("%+v, %v", e, err)
	}
	for range 2 { // also when it is repeated
		if s, err := c.Settle(t.Context(), d.Ref(), map[string]int64{"tokens": 123}); err != nil || s.State != allocation.StateSettled {
			t.Fatalf("%+v, %v", s, err)
		}
	}
	f, err := c.Find(t.Context(), d.Ref())
	if err != nil || f.State != allocation.StateSettled || f.Budgets[1].Charged != 123 {
		t.Errorf("%+v, %v", f, err)
	}
	var refused *client.RefusedError
	if _, err := c.Release(t.Context(), d.Ref()); !errors.As(err, &refused) || refused.Decision.Reason != allocation.AdmissionIDSettled {
		t.Error(err)
	}
	if _, err := c.Release(t.Context(), client.Ref{ID: "never", Tenant: "acme"}); err != nil {
		t.Error(err)
	}
	if _, err := c.Settle(t.Context(), client.Ref{}, nil); err == nil {
		t.Error("settles nothing")
	}
}

// If this failed, an id with quotes or spaces would be another id on the way.
func TestAnyID(t *testing.T) {
	c := newClient(t, client.Options{})
	r := tenant("acme")
	r.ID = `a "b" \ c/d%20?e`
	for i := range 2 {
		d, err := c.Admit(t.Context(), r)
		if err != nil || !d.Admitted() || d.AdmissionID != r.ID || d.Replayed != (i == 1) {
			t.Fatalf("%+v, %v", d, err)
		}
	}
	if d, err := c.Find(t.Context(), client.Ref{ID: r.ID, Tenant: "acme"}); err != nil || d.AdmissionID != r.ID {
		t.Errorf("%+v, %v", d, err)
	}
}

// If this failed, some items of a batch would be charged twice or told wrongly when an answer is lost.
func TestBatch(t *testing.T) {
	h := newHop(t, loses)
	c := newClient(t, client.Options{Nodes: []string{h.URL}})
	var items []client.Item
	for range 7 {
		items = append(items, client.Item{Request: tenant("batch")})
	}
	items = append(items, client.Item{Op: "check", Request: tenant("acme")}, client.Item{Request: tenant("nobody")})
	decisions, err := c.Batch(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	admitted := 0
	for i, d := range decisions[:7] {
		if d.Admitted() {
			admitted++
		}
		if d.Replayed != d.Admitted() { // which five is open: lanes take the items side by side
			t.Errorf("item %d: admitted %v, replayed %v: its first answer was lost", i, d.Admitted(), d.Replayed)
		}
	}
	if admitted != 5 || spent(t, "batch") != 5 || !decisions[7].Admitted() || decisions[8].Reason != allocation.NoBudget {
		t.Errorf("%d admitted, %d spent: %+v", admitted, spent(t, "batch"), decisions)
	}
	if _, err := c.Batch(t.Context(), nil); err == nil {
		t.Error("takes an empty batch")
	}
}

// If this failed, the items of a batch that were decided would be decided again with those that were not.
func TestBatchAsksAgainForWhatIsLeft(t *testing.T) {
	admitted := `{"status":200,"decision":"admitted","reason":"allow","region":"us-east"}`
	h := newHop(t, says(200, `{"results":[`+admitted+`,`+stopped+`]}`))
	c := newClient(t, client.Options{Nodes: []string{h.URL}})
	decisions, err := c.Batch(t.Context(), []client.Item{{Request: tenant("acme")}, {Request: tenant("acme")}})
	if err != nil || !decisions[0].Admitted() || !decisions[1].Admitted() {
		t.Fatalf("%+v, %v", decisions, err)
	}
	second := h.calls()[1].body["items"].([]any)
	if len(second) != 1 || second[0].(map[string]any)["admission_id"] != decisions[1].AdmissionID {
		t.Errorf("the second try asks for %v", second)
	}
	all := newHop(t, slicesRepeat(says(200, `{"results":[`+admitted+`,`+stopped+`]}`), 1)...)
	c = newClient(t, client.Options{Nodes: []string{all.URL}, Tries: 1})
	decisions, err = c.Batch(t.Context(), []client.Item{{Request: tenant("acme")}, {Request: tenant("acme")}})
	var undecided *client.UndecidedError
	if !errors.As(err, &undecided) || !decisions[0].Admitted() || decisions[1].Admitted() {
		t.Errorf("%+v, %v", decisions, err)
	}
}

// If this failed, clients that share the last permits could together admit more than there are.
func TestLastPermits(t *testing.T) {
	c := newClient(t, client.Options{Patience: time.Minute, Tries: 50})
	var admitted atomic.Int64
	var all sync.WaitGroup
	for range 150 {
		all.Go(func() {
			d, err := c.Admit(context.Background(), tenant("last"))
			if err != nil {
				t.Error(err)
			}
			if d.Admitted() {
				admitted.Add(1)
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 50 || spent(t, "last") != 50 {
		t.Errorf("%d admitted, %d spent, of 50", n, spent(t, "last"))
	}
}

// If this failed, an id lost in one region could be charged again in another without a word.
func TestASecondRegionIsNoticed(t *testing.T) {
	other := newHop(t, says(200, `{"decision":"admitted","reason":"allow","region":"eu-west"}`))
	c := newClient(t, client.Options{Nodes: []string{nodeURL, other.URL}})
	if _, err := c.Admit(t.Context(), tenant("acme")); err != nil {
		t.Fatal(err)
	}
	client.Advance(c)
	if d, err := c.Admit(t.Context(), tenant("acme")); err == nil || !strings.Contains(err.Error(), "eu-west") {
		t.Errorf("%+v, %v", d, err)
	}
}

// If this failed, wrong options would be found out under load, or a token would travel in the clear.
func TestOptions(t *testing.T) {
	for want, o := range map[string]client.Options{
		"empty":     {},
		"not an":    {Nodes: []string{"node:7080"}},
		"the clear": {Nodes: []string{"http://node.internal:7080"}, Token: "t"},
		"Tries":     {Nodes: []string{"http://localhost:7080"}, Tries: -1},
		"negative":  {Nodes: []string{"http://localhost:7080"}, Patience: -1},
	} {
		if _, err := client.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if _, err := client.New(client.Options{Nodes: []string{"http://[::1]:7080/", "https://node.internal"}, Token: "t"}); err != nil {
		t.Error(err)
	}
}
