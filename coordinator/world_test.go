package coordinator_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"tranche/coordinator"
)

// clock is the time that a test's replicas and regions see, moved by hand. Waits are as long as they are.
type clock struct {
	coordinator.Real
	mu sync.Mutex
	at time.Time
}

// Now is the time, for a Runtime.
func (c *clock) Now() time.Time { return c.now() }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) move(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(by)
}

// followers is a store whose replicas never lead: the test does the background work by name.
type followers struct{ coordinator.Store }

func (followers) Lead(ctx context.Context, _ string, _ func(context.Context) error) error {
	<-ctx.Done()
	return ctx.Err()
}

// world is one etcd, some replicas on it, and a clock.
type world struct {
	t        *testing.T
	store    coordinator.Store
	clock    *clock
	admin    string
	log      hclog.Logger // of the replicas that are started next
	replicas []*replica
	memories []*memory
	spoil    func(*coordinator.Config) // of the replicas that are started next
}

// replica is one coordinator.
type replica struct {
	*coordinator.Service
	handler  http.Handler
	registry *prometheus.Registry
	memory   *memory
	stop     func()
}

// parallel has the tests that run beside each other.
var parallel sync.Map

// besideOthers lets a test run beside others, also one that asks for it twice: each world has an etcd of its own, and most
// of a test's time is waiting.
func besideOthers(t *testing.T) {
	if _, twice := parallel.LoadOrStore(t, true); !twice {
		t.Parallel()
	}
}

// newWorld starts n replicas; the regions are registered, and have joined, in their order.
func newWorld(t *testing.T, n int) *world {
	t.Helper()
	besideOthers(t)
	start, err := time.Parse(time.RFC3339, "2026-05-04T10:00:07Z")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: followers{openEtcd(t)}, clock: &clock{at: start}}
	for range n {
		w.start()
	}
	return w
}

// start adds a replica and waits until it is ready.
func (w *world) start() *replica {
	w.t.Helper()
	r := w.startWith(w.freeMemory())
	w.replicas = append(w.replicas, r)
	return r
}

func (w *world) startWith(m *memory) *replica {
	w.t.Helper()
	token := make(chan string, 1)
	r := &replica{registry: prometheus.NewRegistry(), memory: m}
	config := coordinator.Config{
		Store: w.store, Memory: r.memory, Log: w.log, Runtime: w.clock, Registry: r.registry,
		OnFirstAdminToken: func(text string) { token <- text },
		// Long, so that no test depends on how fast the machine is: clocks are moved by hand.
		ReportUnreachableAfter: 90 * time.Second,
	}
	if w.spoil != nil {
		w.spoil(&config)
	}
	r.Service = coordinator.New(config)
	r.handler = r.Handler()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		r.memory.used = false
		if err := <-ended; err != nil {
			w.t.Errorf("replica ended: %v", err)
		}
	})
	w.t.Cleanup(r.stop)
	if w.admin == "" {
		select {
		case w.admin = <-token:
		case <-time.After(patience):
			w.t.Fatal("no admin token was made")
		}
	}
	w.untilReady(r)
	return r
}

func (w *world) untilReady(r *replica) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	for ctx.Err() == nil {
		if err := r.Refresh(ctx); err != nil {
			continue
		}
		if status, _ := w.ask(r, "GET", "/readyz", nil); status == 200 {
			return
		}
	}
	w.t.Fatal("replica is not ready")
}

// ask makes a request of the admin API and returns the status and the decoded answer.
func (w *world) ask(r *replica, method, path string, body any, headers ...string) (int, map[string]any) {
	w.t.Helper()
	recorder := w.request(r, method, path, body, headers...)
	var out map[string]any
	if recorder.Body.Len() > 0 {
		if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil {
			w.t.Fatalf("%s %s answers %q: %v", method, path, recorder.Body.String(), err)
		}
	}
	return recorder.Code, out
}

func (w *world) request(r *replica, method, path string, body any, headers ...string) *httptest.ResponseRecorder {
	w.t.Helper()
	text, isText := body.(string)
	if !isText && body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			w.t.Fatal(err)
		}
		text = string(data)
	}
	q := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(text))
	q.Header.Set("Authorization", "Bearer "+w.admin)
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	recorder := httptest.NewRecorder()
	r.handler.ServeHTTP(recorder, q)
	return recorder
}

// must is ask for a request that has to be answered with the status.
func (w *world) must(r *replica, status int, method, path string, body any, headers ...string) map[string]any {
	w.t.Helper()
	got, answer := w.ask(r, method, path, body, headers...)
	if got != status {
		w.t.Fatalf("%s %s answers %d %v, not %d", method, path, got, answer, status)
	}
	return answer
}

// get reads a typed answer.
func get[T any](w *world, r *replica, path string) T {
	w.t.Helper()
	var out T
	recorder := w.request(r, "GET", path, nil)
	if recorder.Code != 200 {
		w.t.Fatalf("GET %s answers %d %s", path, recorder.Code, recorder.Body.String())
	}
	if err := json.Unmarshal(recorder.Body.Bytes(), &out); err != nil {
		w.t.Fatal(err)
	}
	return out
}

// budgetJSON is a budget of 100 requests a minute, 60 to 40, unless parts are replaced.
func budgetJSON(name string, limit string) string {
	return `{"budget":"` + name + `","unit":"requests","limit":` + limit + `,"window":{"every":"1m"},"match":{"tenant":"acme"},` +
		`"allocation":{"policy":"fixed","weights":{"us-east":3,"eu-west":2}}}`
}

// settle brings one replica and all that is behind up to date.
func (w *world) settle(r *replica) {
	w.t.Helper()
	if err := r.Settle(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// conserved checks every ledger of every replica's picture against invariant 1.
func (w *world) conserved() {
	w.t.Helper()
	for _, r := range w.replicas {
		if err := r.Refresh(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		for _, l := range r.Ledgers() {
			if err := l.Conserved(); err != nil {
				w.t.Error(err)
			}
		}
	}
}

// persist lets a replica write what is only known, and all replicas read it.
func (w *world) persist(r *replica) {
	w.t.Helper()
	w.clock.move(3 * time.Second)
	if err := r.Persist(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	for _, r := range w.replicas {
		if err := r.Refresh(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func containsLine(text, line string) bool { return strings.Contains("\n"+text, "\n"+line+"\n") }
