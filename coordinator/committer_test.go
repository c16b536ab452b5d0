package coordinator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tranche/coordinator"
)

// appendLine adds a line to a document until it was acknowledged, as every part of the coordinator does: read, decide,
// commit, on a conflict again. It returns how often there was one.
func appendLine(t *testing.T, store coordinator.Store, w coordinator.Writer, key, line string) (conflicts int) {
	for {
		item := read(t, store, key)
		_, err := w.Commit(t.Context(), replace(item, string(item.Value)+line+"\n"))
		switch {
		case err == nil:
			return conflicts
		case errors.Is(err, coordinator.ErrConflict):
			conflicts++
		default:
			t.Error(err)
			return conflicts
		}
	}
}

// checkLines wants each line exactly once over all documents.
func checkLines(t *testing.T, store coordinator.Store, lines int) {
	t.Helper()
	items, _, err := store.Range(t.Context(), document(""))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, item := range items {
		for line := range strings.Lines(string(item.Value)) {
			seen[strings.TrimSpace(line)]++
		}
	}
	for i := range lines {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			t.Errorf("line %d is there %d times", i, n)
		}
	}
}

// A change that was acknowledged and is not there, or there twice, is a permit that was lost or sold twice; with answers
// lost at random, before and after the effect, it must be the same.
func TestCommitterManyWritersFewDocuments(t *testing.T) {
	for name, changes := range map[string]int{"calm": 200, "answers lost": 60} {
		t.Run(name, func(t *testing.T) {
			store := &faultyStore{Store: openEtcd(t)}
			if name != "calm" {
				dice := rand.New(rand.NewPCG(1, 2)) // used by the committer's goroutine alone
				store.decide = func(int, coordinator.Txn) fault {
					return []fault{none, none, none, lostBefore, lostAfter}[dice.IntN(5)]
				}
			}
			c, stop := running(t, store)
			const documents = 8
			var wait sync.WaitGroup
			var conflicts atomic.Int64
			for i := range changes {
				wait.Go(func() {
					conflicts.Add(int64(appendLine(t, store, c, document(fmt.Sprint(i%documents)), fmt.Sprint(i))))
				})
			}
			wait.Wait()
			if err := stop(); err != nil {
				t.Error(err)
			}
			checkLines(t, store, changes)
			if conflicts.Load() == 0 {
				t.Error("no conflict was reported")
			}
			if c.Lost() {
				t.Error(c.LostDetail())
			}
		})
	}
}

// One transaction per change would make etcd's disk the bound of every budget. Changes that exclude each other must not
// share one, or the second would be written over the first.
func TestCommitterGathers(t *testing.T) {
	store := &faultyStore{Store: openEtcd(t)}
	hold, entered := make(chan struct{}), make(chan struct{})
	store.decide = func(n int, txn coordinator.Txn) fault {
		if n == 1 { // the others come meanwhile
			close(entered)
			<-hold
		}
		if err := txn.Check(); err != nil {
			t.Error(err)
		}
		return none
	}
	c, _ := running(t, store)
	const changes = 200
	value := strings.Repeat("x", 10<<10) // so that some transactions are full by bytes
	var wait, begun sync.WaitGroup
	for i := range changes {
		begun.Add(1)
		wait.Go(func() {
			if i > 0 {
				<-entered
			}
			begun.Done()
			item := coordinator.Item{Key: document(fmt.Sprint(i))}
			if _, err := c.Commit(t.Context(), replace(item, value)); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	close(hold)
	wait.Wait()
	if n := store.count(); n > changes/4 {
		t.Errorf("%d transactions for %d changes", n, changes)
	}
	if count := c.Mark().Count; count != int64(store.count()) {
		t.Errorf("mark counts %d of %d transactions", count, store.count())
	}
}

// Several coordinators write to the same ledgers; each compares what it read, so none overwrites the other.
func TestTwoCommittersOneDocument(t *testing.T) {
	store := openEtcd(t)
	const changes = 30
	var wait sync.WaitGroup
	for half := range 2 {
		c, _ := running(t, store)
		for i := half * changes / 2; i < (half+1)*changes/2; i++ {
			wait.Go(func() { appendLine(t, store, c, document("one"), fmt.Sprint(i)) })
		}
	}
	wait.Wait()
	checkLines(t, store, changes)
}

// A conflict of one change must not fail those that were gathered with it, and must not be tried again.
func TestCommitterConflictIsForTheGuiltyOnly(t *testing.T) {
	store := openEtcd(t)
	c, _ := running(t, store)
	stale := coordinator.Item{Key: document("stale")}
	if _, err := c.Commit(t.Context(), replace(stale, "1")); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	for i := range 20 {
		wait.Go(func() {
			if _, err := c.Commit(t.Context(), replace(stale, "2")); !errors.Is(err, coordinator.ErrConflict) {
				t.Errorf("stale: %v", err)
			}
		})
		wait.Go(func() {
			item := coordinator.Item{Key: document(fmt.Sprint(i))}
			revision, err := c.Commit(t.Context(), replace(item, "1"))
			if got := read(t, store, item.Key); err != nil || got.Revision != revision {
				t.Errorf("%d: at %d, is %d, %v", i, revision, got.Revision, err)
			}
		})
	}
	wait.Wait()
	if got := read(t, store, stale.Key); string(got.Value) != "1" {
		t.Errorf("stale is %s", got.Value)
	}
}

// What can never fit must be refused at once, not block those behind it.
func TestCommitterBounds(t *testing.T) {
	c, _ := running(t, openEtcd(t))
	var change coordinator.Change
	for i := range 60 {
		change.Puts = append(change.Puts, coordinator.Item{Key: document(fmt.Sprint(i)), Value: []byte("1")})
	}
	if _, err := c.Commit(t.Context(), change); err != nil {
		t.Error(err)
	}
	change.Deletes = []string{document("more")}
	if _, err := c.Commit(t.Context(), change); !errors.Is(err, coordinator.ErrTooLarge) {
		t.Errorf("61 documents: %v", err)
	}
	large := coordinator.Change{Puts: []coordinator.Item{{Key: document("large"), Value: make([]byte, coordinator.MaxTxnBytes-100)}}}
	if _, err := c.Commit(t.Context(), large); !errors.Is(err, coordinator.ErrTooLarge) {
		t.Errorf("large: %v", err)
	}
	own := coordinator.Change{Deletes: []string{coordinator.Root + "marks/" + c.Mark().Writer}}
	if _, err := c.Commit(t.Context(), own); err == nil {
		t.Error("a change may touch the mark")
	}
}
