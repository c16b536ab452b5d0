package coordinator_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"tranche/coordinator"
	"tranche/coordinator/etcd"
	"tranche/coordinator/etcd/embedded"
)

// patience is how long a test waits for what must happen, on a slow machine.
const patience = 30 * time.Second

// openEtcd starts a member for one test, and a client of it.
func openEtcd(t *testing.T) *etcd.Store {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	return dialEtcd(t, server.Endpoints())
}

func dialEtcd(t *testing.T, endpoints []string) *etcd.Store {
	t.Helper()
	store, err := etcd.Open(t.Context(), etcd.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// fault is what becomes of one write.
type fault int

const (
	none       fault = iota
	lostBefore       // it never arrives, and the answer is lost
	lostAfter        // it takes effect, and the answer is lost
	late             // the answer is lost, and it arrives when the test calls arrive
)

// faultyStore loses answers as the test says.
type faultyStore struct {
	coordinator.Store
	decide func(n int, txn coordinator.Txn) fault // n counts from 1; nil: none

	mu      sync.Mutex
	writes  int
	delayed []coordinator.Txn
}

func (f *faultyStore) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	f.mu.Lock()
	f.writes++
	n := f.writes
	f.mu.Unlock()
	what := none
	if f.decide != nil {
		what = f.decide(n, txn)
	}
	switch what {
	case lostBefore:
	case lostAfter:
		if _, err := f.Store.Commit(ctx, txn); err != nil {
			return coordinator.TxnResult{}, err
		}
	case late:
		f.mu.Lock()
		f.delayed = append(f.delayed, txn)
		f.mu.Unlock()
	default:
		return f.Store.Commit(ctx, txn)
	}
	return coordinator.TxnResult{}, fmt.Errorf("%w: by the test", coordinator.ErrUnknownOutcome)
}

func (f *faultyStore) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes
}

// arrive lets the delayed writes arrive, and says how many of them took effect.
func (f *faultyStore) arrive(t *testing.T) (committed int) {
	t.Helper()
	f.mu.Lock()
	delayed := f.delayed
	f.delayed = nil
	f.mu.Unlock()
	for _, txn := range delayed {
		result, err := f.Store.Commit(t.Context(), txn)
		if err != nil {
			t.Error(err)
		}
		if result.Committed {
			committed++
		}
	}
	return committed
}

// running is a committer at work; stop ends it and returns Run's error.
func running(t *testing.T, store coordinator.Store, options ...coordinator.CommitterOption) (c *coordinator.Committer, stop func() error) {
	t.Helper()
	c = coordinator.NewCommitter(store, nil, options...)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return c, stop
}

func document(name string) string { return coordinator.Root + "test/" + name }

// read is one document as it is now; revision 0 if it is not there.
func read(t *testing.T, store coordinator.Store, key string) coordinator.Item {
	t.Helper()
	items, _, err := store.Range(t.Context(), key)
	if err != nil {
		t.Error(err)
	}
	for _, item := range items {
		if item.Key == key {
			return item
		}
	}
	return coordinator.Item{Key: key}
}

// replace is a change that rests on one document and replaces it.
func replace(item coordinator.Item, value string) coordinator.Change {
	return coordinator.Change{
		Reads: []coordinator.Item{item}, Puts: []coordinator.Item{{Key: item.Key, Value: []byte(value)}},
	}
}
