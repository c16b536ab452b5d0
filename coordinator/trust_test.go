package coordinator_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// vanish stops a replica for good; its memory goes with it, if wiped.
func (w *world) vanish(r *replica, wiped bool) {
	r.stop()
	w.replicas = slices.DeleteFunc(w.replicas, func(o *replica) bool { return o == r })
	if wiped {
		w.memories = slices.DeleteFunc(w.memories, func(m *memory) bool { return m == r.memory })
	}
}

// restoreAll puts everything back, also the marks of the coordinators.
func (w *world) restoreAll(backup []coordinator.Item) {
	w.t.Helper()
	w.putBack(backup, func(coordinator.Item) bool { return true })
}

func (w *world) freezes(r *replica) int { w.t.Helper(); return len(w.acts(r, "history.freeze")) }

// A coordinator that finds its own last mark goes on at once. If it did not, every restart would stop all grants until
// every region has called.
func TestRestartWithMemory(t *testing.T) {
	w, east, west := two(t, 1)
	before := w.replicas[0].memory.writer()
	w.vanish(w.replicas[0], false)
	r := w.start()
	w.round(r, east, west)
	if w.freezes(r) != 0 || r.memory.writer() != before || w.standing().Freeze != nil {
		t.Errorf("%d freezes, writer %s after %s", w.freezes(r), r.memory.writer(), before)
	}
}

// Etcd went back while the only coordinator was away. It remembers what it wrote, and no region has to find out first.
func TestRestoredWhileAway(t *testing.T) {
	w, east, west := two(t, 1)
	snapshot := w.backup()
	w.move(w.replicas[0], east, west, 30)
	w.vanish(w.replicas[0], false)
	w.restoreAll(snapshot)
	r := w.start()
	if w.freezes(r) != 1 || w.standing().Freeze == nil {
		t.Fatalf("%d freezes; %+v", w.freezes(r), w.standing())
	}
	w.round(r, east, west)
	if sum := w.held(east, west); sum > 100 || w.standing().Freeze != nil {
		t.Errorf("%d of 100 are held; %+v", sum, w.standing())
	}
	w.conserved()
}

// A coordinator without memory cannot tell whether etcd went back. With one beside it that can it starts at once; alone it
// begins a new history, and grants again when every region has stated.
func TestColdStart(t *testing.T) {
	w, east, west := two(t, 1)
	second := w.start() // cold, beside the first
	if w.freezes(second) != 0 {
		t.Fatal("it froze all beside one that could vouch")
	}
	if items, _, err := w.store.Range(t.Context(), coordinator.Root+"vouches/"); err != nil || len(items) > 0 {
		t.Errorf("the question stays: %v %v", items, err)
	}
	w.vanish(w.replicas[0], true)
	w.vanish(second, true)
	r := w.start()
	if w.freezes(r) != 1 {
		t.Fatalf("%d freezes", w.freezes(r))
	}
	east.sync(r)
	if a := east.sync(r); !a.Frozen || len(a.Shares) > 0 {
		t.Errorf("it answers %+v", a)
	}
	w.round(r, east, west)
	if w.standing().Freeze != nil || w.held(east, west) != 100 {
		t.Errorf("%d of 100 are held; %+v", w.held(east, west), w.standing())
	}
}

// A cold start says nothing of whether etcd went back: who was replaced just before it held what the ledgers say, and no term is
// withheld for it.
func TestColdStartAfterAReplacement(t *testing.T) {
	w, east, west := two(t, 1)
	former := east.incarnation
	east.lost = true
	w.round(w.replicas[0], east, west)
	if now := w.standing(); east.incarnation == former || len(now.Replaced) != 1 || now.Replaced[0].Incarnation != former {
		t.Fatalf("us-east is %s, after %s: %+v", east.incarnation, former, now)
	}
	w.vanish(w.replicas[0], true)
	r := w.start()
	w.round(r, east, west)
	if now := w.standing(); w.freezes(r) != 1 || now.Freeze != nil || len(now.Lost) != 0 || len(now.Replaced) != 1 {
		t.Errorf("%+v", now)
	}
	w.conserved()
}

// The first region to call after a cold start is not the one that knows better.
func TestColdStartOverARestoredEtcd(t *testing.T) {
	w, east, west := two(t, 1)
	snapshot := w.backup()
	w.move(w.replicas[0], east, west, 30)
	w.vanish(w.replicas[0], true)
	w.restoreAll(snapshot)
	r := w.start()
	for range 3 {
		east.sync(r)
		w.settle(r)
	}
	if east.held() != 30 {
		t.Errorf("east holds %d before west has called", east.held())
	}
	w.round(r, east, west)
	if sum := w.held(east, west); sum > 100 || w.standing().Freeze != nil {
		t.Errorf("%d of 100 are held; %+v", sum, w.standing())
	}
}

// Two that start at once without memory begin one history, not one each, and both go on.
func TestTwoColdStarts(t *testing.T) {
	w, east, west := two(t, 1)
	w.vanish(w.replicas[0], true)
	w.memories = []*memory{{}, {}}
	var wait sync.WaitGroup
	started := make([]*replica, 2)
	for i := range started {
		wait.Go(func() { started[i] = w.startWith(w.memories[i]) })
	}
	wait.Wait()
	w.replicas = started
	if n := w.freezes(started[0]); n != 1 {
		t.Errorf("%d histories", n)
	}
	w.round(started[0], east, west)
	w.round(started[1], east, west)
	if w.standing().Freeze != nil || w.freezes(started[1]) != 1 {
		t.Errorf("%+v", w.standing())
	}
}

// The exception is named and audited, and counts for a cold start only.
func TestTrustEtcd(t *testing.T) {
	w, _, _ := two(t, 1)
	w.vanish(w.replicas[0], true)
	w.spoil = func(c *coordinator.Config) { c.TrustEtcd = true }
	r := w.start()
	if w.freezes(r) != 0 || len(w.acts(r, "coordinator.trust-etcd")) != 1 {
		t.Errorf("%d freezes, %d lines", w.freezes(r), len(w.acts(r, "coordinator.trust-etcd")))
	}
	snapshot := w.backup()
	w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, "90"), "If-Match", `"1"`)
	w.vanish(r, false)
	w.restoreAll(snapshot)
	if r = w.start(); w.freezes(r) != 1 {
		t.Error("what it remembers to have written is gone, and it trusts etcd")
	}
}

// A running coordinator whose own last write is gone grants nothing more from what it knows, and goes on under a new history.
func TestOwnMarkLost(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.move(r, east, west, 30)
	w.restoreAll(snapshot)
	if status, _ := w.ask(r, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, "100"), "If-Match", `"1"`); status != 503 {
		t.Fatalf("it writes on: %d", status)
	}
	w.untilReady(r)
	if w.freezes(r) != 1 {
		t.Fatalf("%d freezes", w.freezes(r))
	}
	w.round(r, east, west)
	if sum := w.held(east, west); sum > 100 || w.standing().Freeze != nil {
		t.Errorf("%d of 100 are held; %+v", sum, w.standing())
	}
	w.conserved()
}

// An empty etcd in the place of the one that granted: the deployment keeps its id, and what regions hold is granted to
// nobody else when the budget is declared again.
func TestEmptyEtcd(t *testing.T) {
	w, east, west := two(t, 1)
	w.vanish(w.replicas[0], false)
	w.restoreAll(nil)
	w.admin = ""
	r := w.start()
	if status := get[coordinator.Status](w, r, "/v1/status"); status.Deployment != east.deployment {
		t.Fatalf("deployment %s became %s", east.deployment, status.Deployment)
	}
	for _, f := range []*fakeRegion{east, west} {
		w.must(r, 201, "POST", "/v1/regions", map[string]string{"region": f.name})
	}
	before := w.held(east, west)
	w.round(r, east, west)
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100"))
	w.round(r, east, west)
	// Their incarnations were never heard of, so they start over; what they held stays out.
	if sum := w.held(east, west); before != 100 || sum != 0 || w.standing().Freeze != nil || len(w.standing().Lost) != 2 {
		t.Errorf("%d of 100 are held after %d; %+v", sum, before, w.standing())
	}
	w.conserved()
}

// Nothing is vouched for by somebody who does not know it.
func TestAskedIsNotTrusted(t *testing.T) {
	w, _, _ := two(t, 1)
	w.vanish(w.replicas[0], true)
	asked := &memory{saved: coordinator.Remembered{Format: 1, Writer: "w", Left: allocation.Mark{Writer: "w", Count: 1, Value: "v"}}}
	commitRaw(t, w.store, coordinator.Txn{Puts: []coordinator.Item{{Key: coordinator.Root + "marks/w", Value: []byte(`{"format":1,"count":1,"value":"v"}`)}}})
	r := w.startWith(asked)
	w.replicas = append(w.replicas, r)
	if n := w.freezes(r); n != 1 {
		t.Errorf("%d freezes: a mark of a process that had found out nothing is proof", n)
	}
	if why := string(w.acts(r, "history.freeze")[0].New); !strings.Contains(why, "a cold start") {
		t.Errorf("the audit says %s", why)
	}
}

// A coordinator that crashes while a write is on its way starts again before that write arrives. Its own late write is no
// lost history.
func TestWriteOfTheLifeBeforeArrivesLate(t *testing.T) {
	w, east, west := two(t, 1)
	w.vanish(w.replicas[0], false)
	m := w.memories[0]
	mark := read(t, w.store, coordinator.Root+"marks/"+m.saved.Writer)
	late := coordinator.Txn{
		Compares: []coordinator.Item{mark},
		Puts:     []coordinator.Item{{Key: mark.Key, Value: []byte(`{"format":1,"count":9999,"value":"late"}`)}},
	}
	m.saved.Tried = []allocation.Mark{{Writer: m.saved.Writer, Count: 9999, Value: "late"}}
	r := w.start()
	if result, err := w.store.Commit(t.Context(), late); err != nil || result.Committed {
		t.Fatalf("it takes effect: %+v %v", result, err)
	}
	w.round(r, east, west)
	if w.freezes(r) != 0 {
		t.Error("it takes its own write for lost history")
	}
}

// deafStore does not answer reads any more once it is deaf.
type deafStore struct {
	coordinator.Store
	is atomic.Bool
}

func (d *deafStore) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	if d.is.Load() {
		return nil, 0, coordinator.ErrUnavailable
	}
	return d.Store.Range(ctx, prefix)
}

// A process that ends before it knows what became of its last write remembers what it tried. If it forgot, that write would
// be lost history at the next start, and all would be frozen for nothing.
func TestUnsettledWriteIsRemembered(t *testing.T) {
	deaf := &deafStore{Store: openEtcd(t)}
	store, m := &faultyStore{Store: deaf}, &memory{}
	c := coordinator.NewCommitter(store, nil, coordinator.WithMemory(m, func() (string, allocation.History) { return "", allocation.History{} }))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	c.Trust()
	if _, err := c.Commit(t.Context(), replace(coordinator.Item{Key: document("unsettled")}, "1")); err != nil {
		t.Fatal(err)
	}
	before := read(t, store, document("unsettled"))
	store.decide = func(int, coordinator.Txn) fault {
		deaf.is.Store(true)
		cancel()
		return lostAfter
	}
	if _, err := c.Commit(t.Context(), replace(before, "2")); !errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	<-ended
	now := read(t, deaf.Store, coordinator.Root+"marks/"+m.saved.Writer)
	known := append(slices.Clone(m.saved.Tried), m.saved.Left)
	if !slices.ContainsFunc(known, func(k allocation.Mark) bool { return strings.Contains(string(now.Value), k.Value) && k.Value != "" }) {
		t.Errorf("it left %s, and remembers %+v", now.Value, m.saved)
	}
}

// A process that starts again fences what it tried before. Where the answer to that fence is lost, too, and it arrives late, it
// is as much its own as what it tried. If it forgot it, all would be frozen for nothing.
func TestFenceThatArrivesLateIsRemembered(t *testing.T) {
	etcd := openEtcd(t)
	for name, inTime := range map[string]bool{"before it looks again": true, "after the next fence": false} {
		t.Run(name, func(t *testing.T) {
			m := &memory{}
			remembers := coordinator.WithMemory(m, func() (string, allocation.History) { return "", allocation.History{} })
			first, stop := running(t, etcd, remembers)
			first.Trust()
			if _, err := first.Commit(t.Context(), replace(coordinator.Item{Key: document(name)}, "1")); err != nil {
				t.Fatal(err)
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			left := m.saved.Left
			m.saved.Tried = []allocation.Mark{{Writer: left.Writer, Count: left.Count + 1, Value: "tried"}}
			store := &faultyStore{Store: etcd, decide: func(n int, _ coordinator.Txn) fault {
				if n == 1 {
					return late
				}
				return none
			}}
			again, _ := running(t, store, remembers)
			if _, err := again.Recall(t.Context()); !errors.Is(err, coordinator.ErrUnknownOutcome) {
				t.Fatal(err)
			}
			if inTime && store.arrive(t) != 1 {
				t.Fatal("the fence does not arrive")
			}
			if _, err := again.Recall(t.Context()); err != nil || again.Mark().Writer != left.Writer {
				t.Errorf("%v: it goes on as %+v, and had left %+v: it takes its own fence for lost history", err, again.Mark(), left)
			}
			if !inTime && store.arrive(t) != 0 {
				t.Error("the first fence takes effect after the second one")
			}
		})
	}
}
