package coordinator_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

func marks(t *testing.T, store coordinator.Store) []coordinator.Item {
	t.Helper()
	items, _, err := store.Range(t.Context(), coordinator.Root+"marks/")
	if err != nil {
		t.Fatal(err)
	}
	return items
}

// commitRaw writes without a committer: somebody else, or a restore.
func commitRaw(t *testing.T, store coordinator.Store, txn coordinator.Txn) {
	t.Helper()
	if result, err := store.Commit(t.Context(), txn); err != nil || !result.Committed {
		t.Fatal(result, err)
	}
}

// A store that does not hold our own last write has lost grants that regions spend from: writing on would grant them
// twice. Nothing may be written from then on, whatever the mark shows later.
func TestHistoryLost(t *testing.T) {
	etcd := openEtcd(t)
	for name, test := range map[string]struct {
		harm  func(mark coordinator.Item) coordinator.Txn
		fault fault // of the next write
	}{
		"overwritten":                {harm: func(m coordinator.Item) coordinator.Txn { return puts(m.Key, "{}") }},
		"same value, other revision": {harm: func(m coordinator.Item) coordinator.Txn { return puts(m.Key, string(m.Value)) }},
		"removed":                    {harm: func(m coordinator.Item) coordinator.Txn { return coordinator.Txn{Deletes: []string{m.Key}} }},
		"found after a lost answer":  {harm: func(m coordinator.Item) coordinator.Txn { return puts(m.Key, "{}") }, fault: lostBefore},
		"removed, and a lost answer": {harm: func(m coordinator.Item) coordinator.Txn { return coordinator.Txn{Deletes: []string{m.Key}} }, fault: lostAfter},
	} {
		t.Run(name, func(t *testing.T) {
			store := &faultyStore{Store: etcd}
			c, stop := running(t, store)
			a := coordinator.Item{Key: document(name)}
			if _, err := c.Commit(t.Context(), replace(a, "1")); err != nil {
				t.Fatal(err)
			}
			mark := read(t, store, coordinator.Root+"marks/"+c.Mark().Writer)
			commitRaw(t, store.Store, test.harm(mark))
			store.decide = func(n int, _ coordinator.Txn) fault {
				if n == 2 {
					return test.fault
				}
				return none
			}
			before := read(t, store, a.Key)
			if _, err := c.Commit(t.Context(), replace(before, "2")); !errors.Is(err, coordinator.ErrHistoryLost) {
				t.Fatal(err)
			}
			if !c.Lost() || !strings.Contains(c.LostDetail(), fmt.Sprint("had left mark ", c.Mark().Count)) || strings.ContainsAny(c.LostDetail(), "{}") {
				t.Fatalf("lost %v: %s", c.Lost(), c.LostDetail())
			}
			written := store.count()
			for range 3 {
				if _, err := c.Commit(t.Context(), replace(before, "3")); !errors.Is(err, coordinator.ErrHistoryLost) {
					t.Fatal(err)
				}
			}
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			if got := read(t, store, a.Key); got.Revision != before.Revision || store.count() != written {
				t.Fatalf("%+v, %d writes after %d", got, store.count(), written)
			}
		})
	}
}

func puts(key, value string) coordinator.Txn {
	return coordinator.Txn{Puts: []coordinator.Item{{Key: key, Value: []byte(value)}}}
}

// The mark in the store must be the one that Mark says, since regions and the state directory remember that.
func TestMarkIsWhatIsStored(t *testing.T) {
	store := openEtcd(t)
	c, stop := running(t, store)
	if m := c.Mark(); m.Count != 0 || m.Writer == "" {
		t.Fatalf("%+v", m)
	}
	for n := int64(1); n <= 3; n++ {
		if _, err := c.Commit(t.Context(), coordinator.Change{}); err != nil {
			t.Fatal(err)
		}
		var stored struct {
			Format, Count int64
			Value         string
			At            time.Time
		}
		mark := marks(t, store)[0]
		if err := json.Unmarshal(mark.Value, &stored); err != nil {
			t.Fatal(err)
		}
		m := c.Mark()
		if m.Count != n || stored.Format != 1 || stored.Count != n || stored.Value != m.Value || mark.Key != coordinator.Root+"marks/"+m.Writer {
			t.Fatalf("%+v, stored %s = %s", m, mark.Key, mark.Value)
		}
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	if left := marks(t, store); len(left) != 0 {
		t.Fatalf("an orderly end left %v", left)
	}
}

// Sweeping the mark of a living process would make it believe that history was lost. One sighting is not enough, however
// old the mark says it is: a clock may be wrong.
func TestSweepMarks(t *testing.T) {
	store := openEtcd(t)
	clock := &clock{at: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	old, prefix := `{"format":1,"count":7,"value":"aa","at":"2026-02-01T00:00:00Z"}`, coordinator.Root+"marks/"
	commitRaw(t, store, coordinator.Txn{Puts: []coordinator.Item{
		{Key: prefix + "dead", Value: []byte(old)},
		{Key: prefix + "slow", Value: []byte(old)},
		{Key: prefix + "young", Value: []byte(strings.Replace(old, "02-01", "03-01", 1))},
		{Key: prefix + "foreign", Value: []byte(strings.Replace(old, "1", "2", 1))},
	}})
	c, _ := running(t, store, coordinator.WithRuntime(clock))
	if _, err := c.Commit(t.Context(), coordinator.Change{}); err != nil {
		t.Fatal(err)
	}
	sweep := func(want int) {
		t.Helper()
		if err := c.SweepMarks(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := marks(t, store); len(left) != want {
			t.Fatalf("%d marks, want %d: %v", len(left), want, left)
		}
	}
	sweep(5)
	commitRaw(t, store, puts(prefix+"slow", old)) // it lives, with a clock a month behind
	clock.move(time.Hour)
	sweep(4)
	if read(t, store, prefix+"dead").Revision != 0 {
		t.Fatal("the dead one stays")
	}
	clock.move(26 * time.Hour)
	sweep(2) // foreign, and our own
}

// A process that was away for a day comes back without a mark because it was swept: that must stop it, but not freeze
// the whole deployment as a lost history would.
func TestMarkExpires(t *testing.T) {
	store := openEtcd(t)
	clock := &clock{at: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)}
	c, stop := running(t, store, coordinator.WithRuntime(clock))
	if _, err := c.Commit(t.Context(), coordinator.Change{}); err != nil {
		t.Fatal(err)
	}
	commitRaw(t, store, coordinator.Txn{Deletes: []string{marks(t, store)[0].Key}})
	clock.move(25 * time.Hour)
	_, err := c.Commit(t.Context(), replace(coordinator.Item{Key: document("a")}, "1"))
	if err == nil || errors.Is(err, coordinator.ErrHistoryLost) || c.Lost() {
		t.Fatal(err)
	}
	if err := stop(); err == nil {
		t.Fatal("Run ended well")
	}
	if got := read(t, store, document("a")); got.Revision != 0 {
		t.Fatal("written")
	}
}
