package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/coordinator"
)

// receiver is a webhook that takes what it is told, or nothing.
type receiver struct {
	mu   sync.Mutex
	down bool
	got  []string
}

func (r *receiver) Send(_ context.Context, id string, _ time.Time, body []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e coordinator.FeedEvent
	if err := json.Unmarshal(body, &e); err != nil || e.ID != id {
		return fmt.Errorf("%s is no event %s: %w", body, id, err)
	}
	if r.down {
		return errors.New("nobody is there")
	}
	r.got = append(r.got, e.Tenant)
	return nil
}

func (r *receiver) set(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *receiver) took() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(slices.Clone(r.got), " ")
}

// Each event must arrive, in order, through an outage of the receiver and of a coordinator; and one that is never taken must
// not hold up the rest for ever.
func TestWebhook(t *testing.T) {
	hook := &receiver{}
	w := &world{t: t, store: followers{openEtcd(t)}, clock: &clock{at: time.Date(2026, 5, 4, 10, 0, 7, 0, time.UTC)}, spoil: func(c *coordinator.Config) { c.Webhook = hook }}
	w.start()
	block := func(tenant string) {
		t.Helper()
		w.must(w.replicas[0], 201, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": tenant}, "for": "2000h", "reason": "x"})
		w.notice()
	}
	send := func(r *replica) (sent int, err error) {
		t.Helper()
		w.untilReady(r)
		for range 10 {
			ok, err := r.SendNext(t.Context())
			if err != nil || !ok && sent > 0 {
				return sent, err
			}
			if ok {
				sent++
			}
		}
		return sent, nil
	}
	r := w.replicas[0]
	block("before") // it is told before there was a receiver
	if n, err := send(r); n != 0 || err != nil {
		t.Fatalf("%d %v", n, err)
	}
	block("a")
	block("b")
	if n, err := send(r); n != 2 || err != nil || hook.took() != "a b" {
		t.Fatalf("%d %v, took %q", n, err, hook.took())
	}
	hook.set(true)
	block("c")
	w.clock.move(time.Minute)
	if n, err := send(r); n != 0 || err == nil {
		t.Fatalf("%d %v", n, err)
	}
	if text := w.request(r, "GET", "/metrics", nil).Body.String(); !containsLine(text, `tranche_coordinator_webhook_attempts_total{result="failed"} 1`) || !containsLine(text, "tranche_coordinator_webhook_lag_seconds 60") {
		t.Errorf("%s", text)
	}
	// Another replica goes on where it stands.
	other := w.start()
	r.stop()
	w.replicas = w.replicas[1:]
	hook.set(false)
	block("d")
	if n, err := send(other); n != 2 || err != nil || hook.took() != "a b c d" {
		t.Fatalf("%d %v, took %q", n, err, hook.took())
	}
	hook.set(true)
	block("e")
	w.clock.move(25 * time.Hour)
	if n, err := send(other); n != 1 || err != nil {
		t.Fatalf("after a day: %d %v", n, err)
	}
	hook.set(false)
	block("f")
	if n, err := send(other); n != 1 || err != nil || hook.took() != "a b c d f" {
		t.Fatalf("%d %v, took %q", n, err, hook.took())
	}
	text := w.request(other, "GET", "/metrics", nil).Body.String()
	if !containsLine(text, `tranche_coordinator_webhook_attempts_total{result="given_up"} 1`) || !containsLine(text, "tranche_coordinator_webhook_lag_seconds 0") {
		t.Errorf("%s", text)
	}
}
