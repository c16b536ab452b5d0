package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// hook is a receiver that was written by its page of the documentation alone: it checks the signature itself, keeps what it took,
// and can be down, or die while it answers.
type hook struct {
	secret []byte
	hold   chan struct{} // what an answer waits for, if it is held

	mu    sync.Mutex
	down  bool
	held  bool
	wrong []string
	tried int // deliveries that it did not take
	taken []coordinator.FeedEvent
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = h.signed(r.Header, body)
	}
	var e coordinator.FeedEvent
	if err == nil {
		err = json.Unmarshal(body, &e)
	}
	if err == nil && e.ID != r.Header.Get("Tranche-Event") {
		err = fmt.Errorf("the header names %q", r.Header.Get("Tranche-Event"))
	}
	if h.took(e, err) {
		select { // taken, and the answer is lost with whoever asked
		case <-h.hold:
		case <-r.Context().Done():
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down || err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// took notes a delivery, and says whether its answer is held.
func (h *hook) took(e coordinator.FeedEvent, err error) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.wrong = append(h.wrong, err.Error())
	case h.down:
		h.tried++
	default:
		h.taken = append(h.taken, e)
		return h.held
	}
	return false
}

// signed checks `t=SECONDS,v1=HEX`: the HMAC-SHA256 of the seconds, a dot, and the body as it came.
func (h *hook) signed(header http.Header, body []byte) error {
	at, sum, found := strings.Cut(header.Get("Tranche-Signature"), ",v1=")
	at = strings.TrimPrefix(at, "t=")
	seconds, err := strconv.ParseInt(at, 10, 64)
	if !found || err != nil || time.Since(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return fmt.Errorf("signature %q: %w", header.Get("Tranche-Signature"), err)
	}
	m := hmac.New(sha256.New, h.secret)
	m.Write([]byte(at + "." + string(body)))
	if got := hex.EncodeToString(m.Sum(nil)); got != sum {
		return fmt.Errorf("the signature is %s, and the body's is %s", sum, got)
	}
	return nil
}

func (h *hook) set(down, held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down, h.held = down, held
}

// so waits until the receiver is as it should be.
func (h *hook) so(t *testing.T, what string, holds func(h *hook) bool) {
	t.Helper()
	err := stage.Until(t.Context(), progressWait, what, func() (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		return holds(h), nil
	})
	if err != nil {
		h.mu.Lock()
		defer h.mu.Unlock()
		t.Fatalf("%v; taken %v, %d refused, wrong: %v", err, subjects(h.taken), h.tried, h.wrong)
	}
}

func subjects(events []coordinator.FeedEvent) (list []string) {
	for _, e := range events {
		list = append(list, e.Tenant)
	}
	return list
}

func hasTaken(tenant string) func(h *hook) bool {
	return func(h *hook) bool { return slices.Contains(subjects(h.taken), tenant) }
}

// A receiver of a real coordinator process: each event comes, signed so that anybody who has the secret can check it, in order,
// through an outage of the receiver and two kills of the coordinator, one of them between a delivery and its answer. What is lost
// there, nobody is paged for.
func TestWebhookOfARealCoordinator(t *testing.T) {
	h := &hook{secret: []byte("a secret of the receiver's, 31 B"), hold: make(chan struct{})}
	server := httptest.NewServer(h)
	defer server.Close()
	defer close(h.hold)
	file := filepath.Join(t.TempDir(), "hook.secret")
	if err := os.WriteFile(file, append(h.secret, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := stage.Start(t.Context(), stage.Options{Coordinators: 1, EtcdMembers: 1, Unreachable: 2 * time.Second})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	v := &vault{theatre: &theatre{s, t}}
	block := func(tenant string) {
		t.Helper()
		v.run(0, "block", "tenant="+tenant, "--for", "2h", "--reason", "a test")
	}
	told := func(tenant string) {
		t.Helper()
		v.untilTold(coordinator.EventBlock, coordinator.EventBegan, func(e coordinator.FeedEvent) bool { return e.Tenant == tenant })
	}
	again := func() {
		t.Helper()
		s.Coordinators[0].Kill()
		if err := s.Coordinators[0].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Coordinators[0].With("--webhook-url", server.URL+"/told", "--webhook-secret-file", file)
	again()
	for i := 0; ; i++ { // it begins with what is told after it was set up
		block(fmt.Sprint("warm-", i))
		told(fmt.Sprint("warm-", i))
		h.mu.Lock()
		begun := len(h.taken) > 0
		h.mu.Unlock()
		if begun {
			break
		}
	}
	block("a")
	h.so(t, "the first is taken", hasTaken("a"))

	// The receiver is away, and so is the coordinator, killed as by a crash.
	h.set(true, false)
	block("b")
	block("c")
	told("c")
	h.so(t, "the receiver refused one", func(h *hook) bool { return h.tried > 0 })
	again()
	block("d")
	told("d")
	h.set(false, false)
	h.so(t, "what was told meanwhile is taken", hasTaken("d"))

	// Killed while its delivery is under way: the receiver has it, and the coordinator does not know.
	h.set(false, true)
	block("e")
	h.so(t, "the receiver has it", hasTaken("e"))
	h.set(false, false)
	again()
	block("f")
	h.so(t, "it goes on", hasTaken("f"))
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.wrong) > 0 {
		t.Errorf("wrong: %v", h.wrong)
	}
	var once []string
	repeated := map[string]int{}
	for _, e := range h.taken {
		if n := len(once); n > 0 && once[n-1] == e.ID {
			repeated[e.Tenant]++
			continue
		}
		once = append(once, e.ID)
	}
	if repeated["e"] == 0 {
		t.Errorf("what was under way at the kill did not come again: %v", subjects(h.taken))
	}
	var want []string
	for _, e := range v.feed() {
		if e.ID >= h.taken[0].ID {
			want = append(want, e.ID)
		}
	}
	if !slices.Equal(once, want) || !slices.IsSorted(once) {
		t.Errorf("taken %v, and told %v", once, want)
	}
	status, printed := inProcess("coordinator", "--dev", "--data-dir", t.TempDir(), "--webhook-url", "http://hooks.example.com/x", "--webhook-secret-file", file)
	if status != 2 || !strings.Contains(printed, "--webhook-url") {
		t.Errorf("an address without TLS on another machine: %d %s", status, printed)
	}
}
