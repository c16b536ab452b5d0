package coordinator_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"tranche/coordinator"
)

// ledgersAsBefore is a store that shows its ledgers as they were when it was told to: like a replica that follows an etcd which
// went back, and has not read everything again.
type ledgersAsBefore struct {
	coordinator.Store
	mu      sync.Mutex
	ledgers []coordinator.Item // nil: as they are
}

func isLedger(key string) bool { return strings.HasPrefix(key, coordinator.Root+"ledgers/") }

func (s *ledgersAsBefore) keep(all []coordinator.Item) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledgers = slices.DeleteFunc(slices.Clone(all), func(i coordinator.Item) bool { return !isLedger(i.Key) })
}

func (s *ledgersAsBefore) kept() []coordinator.Item {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledgers
}

func (s *ledgersAsBefore) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	items, revision, err := s.Store.Range(ctx, prefix)
	if kept := s.kept(); kept != nil && prefix == coordinator.Root {
		items = append(slices.DeleteFunc(items, func(i coordinator.Item) bool { return isLedger(i.Key) }), kept...)
	}
	return items, revision, err
}

func (s *ledgersAsBefore) Watch(ctx context.Context, prefix string, after int64, deliver func(events []coordinator.Event, revision int64)) error {
	return s.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		if s.kept() != nil {
			events = slices.DeleteFunc(slices.Clone(events), func(e coordinator.Event) bool { return isLedger(e.Key) })
		}
		deliver(events, revision)
	})
}

// A replica that hears of a new history before it has read everything again still shows what a region holds, from the line that
// was lost. If it took that for entered, all would thaw without it, and what the region holds would be granted once more.
func TestWhatOnlyThisReplicaShowsIsNotEntered(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	late := &ledgersAsBefore{Store: w.store}
	w.spoil = func(c *coordinator.Config) { c.Store = late }
	behind := w.start()
	snapshot := w.backup()
	w.move(r, east, west, 30)
	if err := behind.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	late.keep(w.backup())
	w.restore(snapshot)
	for range 2 { // it finds out, and hears of the history
		if a := west.sync(r); !a.Frozen {
			t.Fatalf("%+v", a)
		}
	}
	if err := behind.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	east.sync(r)
	call := east.call()
	if len(call.Statements) == 0 || call.Statements[0].Shares[0].Held == nil {
		t.Fatalf("it does not state what it holds: %+v", call.Statements)
	}
	if a, err := behind.Sync(t.Context(), call); err == nil {
		t.Errorf("it is answered %+v", a)
	}
	if d := w.standing(); d.Freeze == nil || len(d.Freeze.Stated) != 1 {
		t.Errorf("it counts as stated: %+v", d)
	}
	if a := east.sync(r); !a.Restated && a.Frozen {
		t.Errorf("the other replica answers %+v", a)
	}
}
