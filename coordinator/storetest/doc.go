// Package storetest holds every coordinator.Store to the contract that the coordinator rests on. The adapter for etcd
// and the simulator's twin run the same suite, so that what is proven in simulation holds for what is run:
//
//	storetest.Run(t, func(t *testing.T) coordinator.Store { … })
//
// Each test gets a store of its own, empty below coordinator.Root. Nothing here sleeps: a test waits for what it asks
// for, at most patience long.
package storetest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"tranche/coordinator"
)

// patience is how long a test waits for what must happen, on a slow machine.
const patience = 30 * time.Second

// Run runs the suite. Open returns an empty store and ends it with the test.
func Run(t *testing.T, open func(t *testing.T) coordinator.Store) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s coordinator.Store)
	}{
		{"compare", testCompare},
		{"all or nothing", testAllOrNothing},
		{"bounds", testBounds},
		{"ended context", testEndedContext},
		{"range", testRange},
		{"watch", testWatch},
		{"watch resumes", testWatchResumes},
		{"watch groups a revision", testWatchGroups},
		{"watch tells progress", testWatchProgress},
		{"compaction", testCompaction},
		{"leadership", testLeadership},
		{"leadership given up", testLeadershipGivenUp},
		{"members", testMembers},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func key(format string, a ...any) string { return coordinator.Root + fmt.Sprintf(format, a...) }

func item(key, value string, revision int64) coordinator.Item {
	return coordinator.Item{Key: key, Value: []byte(value), Revision: revision}
}

// commit runs a transaction whose comparisons must hold.
func commit(t *testing.T, s coordinator.Store, txn coordinator.Txn) int64 {
	t.Helper()
	result, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	if !result.Committed || result.Revision == 0 {
		t.Fatalf("not committed: %+v", result)
	}
	return result.Revision
}

func put(t *testing.T, s coordinator.Store, pairs ...string) int64 {
	t.Helper()
	var txn coordinator.Txn
	for i := 0; i < len(pairs); i += 2 {
		txn.Puts = append(txn.Puts, item(pairs[i], pairs[i+1], 0))
	}
	return commit(t, s, txn)
}

// get is one key as it is now; revision 0 if it is not there.
func get(t *testing.T, s coordinator.Store, key string) coordinator.Item {
	t.Helper()
	items, _, err := s.Range(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if i.Key == key {
			return i
		}
	}
	return coordinator.Item{Key: key}
}

func deadline(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), patience)
}

// receive waits for a value.
func receive[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}
