package coordinator_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"tranche/coordinator"
)

// copyOf is what a mirror's apply builds; it checks the order as it goes.
type copyOf struct {
	t        *testing.T
	mu       sync.Mutex
	items    map[string]string
	revision int64
	resets   int
}

func (c *copyOf) apply(events []coordinator.Event, revision int64, reset bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reset {
		c.items, c.resets = map[string]string{}, c.resets+1
	} else if revision <= c.revision {
		c.t.Errorf("revision %d after %d", revision, c.revision)
	}
	for _, e := range events {
		if !reset && (e.Revision <= c.revision || e.Revision > revision) {
			c.t.Errorf("event of %d in a batch from %d to %d", e.Revision, c.revision, revision)
		}
		if e.Deleted {
			delete(c.items, e.Key)
		} else {
			c.items[e.Key] = string(e.Value)
		}
	}
	c.revision = revision
}

// check compares the copy with the store.
func (c *copyOf) check(store coordinator.Store) {
	c.t.Helper()
	items, _, err := store.Range(c.t.Context(), coordinator.Root)
	if err != nil {
		c.t.Fatal(err)
	}
	want := map[string]string{}
	for _, item := range items {
		want[item.Key] = string(item.Value)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !maps.Equal(c.items, want) {
		c.t.Errorf("the mirror shows %d documents, the store holds %d", len(c.items), len(want))
	}
}

func (c *copyOf) resetCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.resets
}

// hookedStore lets a test stand between a mirror and its store. Reads tells of each Range that came back.
type hookedStore struct {
	coordinator.Store
	beforeWatch func(n int) // counts from 1
	changeRead  func(prefix string, revision int64) int64
	reads       chan error
	watches     int
}

func (h *hookedStore) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	items, revision, err := h.Store.Range(ctx, prefix)
	if err == nil && h.changeRead != nil {
		revision = h.changeRead(prefix, revision)
	}
	if h.reads != nil {
		select {
		case h.reads <- err:
		case <-ctx.Done():
		}
	}
	return items, revision, err
}

func (h *hookedStore) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	h.watches++
	if h.beforeWatch != nil {
		h.beforeWatch(h.watches)
	}
	return h.Store.Watch(ctx, prefix, after, deliver)
}

func mirroring(t *testing.T, store coordinator.Store) (*coordinator.Mirror, *copyOf) {
	t.Helper()
	shown := &copyOf{t: t}
	m := coordinator.NewMirror(store, shown.apply)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m, shown
}

func waitFor(t *testing.T, m *coordinator.Mirror, revision int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := m.WaitFor(ctx, revision); err != nil {
		t.Fatal(err)
	}
}

// A mirror that missed a change would show a ledger that is not; one that lags behind its own process's commit would let
// it decide on what it has just replaced.
func TestMirrorShowsWhatIsThere(t *testing.T) {
	store := openEtcd(t)
	c, _ := running(t, store)
	m, shown := mirroring(t, store)
	waitFor(t, m, 0)
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 20 {
				change := coordinator.Change{Puts: []coordinator.Item{{Key: document(fmt.Sprint(w, "/", i)), Value: []byte(fmt.Sprint(i))}}}
				if i%3 == 2 {
					change.Deletes = []string{document(fmt.Sprint(w, "/", i-1))}
				}
				revision, err := c.Commit(t.Context(), change)
				if err != nil {
					t.Error(err)
				}
				waitFor(t, m, revision)
				shown.mu.Lock()
				if _, ok := shown.items[change.Puts[0].Key]; !ok {
					t.Errorf("own commit %d is not shown", revision)
				}
				shown.mu.Unlock()
			}
		})
	}
	wait.Wait()
	shown.check(store)
	if n := shown.resetCount(); n != 1 {
		t.Errorf("%d loads", n)
	}
}

// After a compaction that overtook the watch, changes are missing for good: the mirror must read everything again.
func TestMirrorSurvivesCompaction(t *testing.T) {
	store := openEtcd(t)
	loaded, compacted := make(chan struct{}), make(chan struct{})
	hooked := &hookedStore{Store: store, beforeWatch: func(n int) {
		if n == 1 {
			close(loaded)
			select {
			case <-compacted:
			case <-t.Context().Done():
			}
		}
	}}
	commitRaw(t, store, puts(document("gone"), "1"))
	m, shown := mirroring(t, hooked)
	<-loaded
	commitRaw(t, store, coordinator.Txn{Deletes: []string{document("gone")}})
	for i := range 5 {
		commitRaw(t, store, puts(document("a"), fmt.Sprint(i)))
	}
	last := read(t, store, document("a")).Revision
	if err := store.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	close(compacted)
	waitFor(t, m, last)
	shown.check(store)
	if n := shown.resetCount(); n != 2 {
		t.Errorf("%d loads", n)
	}
}

// A store that is at an older revision than the mirror is another one or was restored: what the mirror shows is void.
func TestMirrorSeesAStoreThatWentBack(t *testing.T) {
	store := openEtcd(t)
	commitRaw(t, store, puts(document("a"), "1"))
	back, again := true, make(chan struct{})
	hooked := &hookedStore{Store: store, changeRead: func(prefix string, revision int64) int64 {
		if prefix != coordinator.Root && back {
			back = false
			return revision - 1
		}
		return revision
	}, beforeWatch: func(n int) {
		if n == 2 {
			close(again)
		}
	}}
	_, shown := mirroring(t, hooked)
	select {
	case <-again:
	case <-time.After(patience):
		t.Fatal("the mirror goes on")
	}
	shown.check(store)
}
