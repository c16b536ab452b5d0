package storetest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"tranche/coordinator"
)

// A store that compares less than revision and value would let two processes grant the same permits, or one go on after
// a restore.
func testCompare(t *testing.T, s coordinator.Store) {
	a, absent := key("a"), key("absent")
	first := put(t, s, a, "1")
	second := put(t, s, a, "2")
	now := item(a, "2", second)
	for name, test := range map[string]struct {
		compare coordinator.Item
		holds   bool
	}{
		"as it is":                 {now, true},
		"older revision":           {item(a, "1", first), false},
		"older revision, value ok": {item(a, "2", first), false},
		"later revision":           {item(a, "2", second+1), false},
		"another value":            {item(a, "1", second), false},
		"must be absent, is there": {item(a, "", 0), false},
		"must be absent, is":       {item(absent, "", 0), true},
		"must be there, is absent": {item(absent, "2", second), false},
	} {
		t.Run(name, func(t *testing.T) {
			result, err := s.Commit(t.Context(), coordinator.Txn{
				Compares: []coordinator.Item{test.compare}, Puts: []coordinator.Item{item(key("out"), name, 0)},
			})
			if err != nil || result.Committed != test.holds {
				t.Fatalf("committed %v, %v", result.Committed, err)
			}
			if written := string(get(t, s, key("out")).Value) == name; written != test.holds {
				t.Fatalf("written: %v", written)
			}
			if test.holds {
				return
			}
			want := coordinator.Item{Key: absent}
			if test.compare.Key == a {
				want = now
			}
			if len(result.Current) != 1 || !equal(result.Current[0], want) {
				t.Fatalf("current %+v, want %+v", result.Current, want)
			}
		})
	}
}

func equal(a, b coordinator.Item) bool {
	return a.Key == b.Key && a.Revision == b.Revision && string(a.Value) == string(b.Value)
}

// One comparison of many that fails must leave nothing behind, and show all compared keys at one moment, in their order.
func testAllOrNothing(t *testing.T, s coordinator.Store) {
	a, b, c, d := key("a"), key("b"), key("c"), key("d")
	revision := put(t, s, a, "1", b, "1", c, "1")
	all := coordinator.Txn{
		Compares: []coordinator.Item{item(a, "1", revision), item(b, "1", revision-1), item(d, "", 0)},
		Puts:     []coordinator.Item{item(a, "2", 0), item(d, "2", 0)},
		Deletes:  []string{c},
	}
	result, err := s.Commit(t.Context(), all)
	if err != nil || result.Committed {
		t.Fatalf("%+v, %v", result, err)
	}
	want := []coordinator.Item{item(a, "1", revision), item(b, "1", revision), item(d, "", 0)}
	if !slices.EqualFunc(result.Current, want, equal) {
		t.Fatalf("current %+v", result.Current)
	}
	if get(t, s, a).Revision != revision || get(t, s, c).Revision != revision || get(t, s, d).Revision != 0 {
		t.Fatal("a refused transaction changed something")
	}
	all.Compares[1].Revision = revision
	next := commit(t, s, all)
	if next <= revision {
		t.Fatalf("revision %d after %d", next, revision)
	}
	if !equal(get(t, s, a), item(a, "2", next)) || !equal(get(t, s, d), item(d, "2", next)) || get(t, s, c).Revision != 0 || get(t, s, b).Revision != revision {
		t.Fatal("a committed transaction is not there as a whole")
	}
}

// What does not fit must be refused with a clear error before it is sent; what fits must fit.
func testBounds(t *testing.T, s coordinator.Store) {
	var full coordinator.Txn
	for i := range coordinator.MaxTxnDocuments {
		full.Puts = append(full.Puts, item(key("doc/%02d", i), "1", 0))
	}
	revision := commit(t, s, full)
	for _, p := range full.Puts {
		p.Revision = revision
		full.Compares = append(full.Compares, p)
	}
	commit(t, s, full)

	over := coordinator.Txn{Puts: append(slices.Clone(full.Puts), item(key("more"), "1", 0))}
	large := coordinator.Txn{Puts: []coordinator.Item{item(key("large"), strings.Repeat("x", coordinator.MaxTxnBytes), 0)}}
	for _, txn := range []coordinator.Txn{over, large} {
		if _, err := s.Commit(t.Context(), txn); !errors.Is(err, coordinator.ErrTooLarge) {
			t.Fatalf("beyond the bounds: %v", err)
		}
	}
	twice := coordinator.Txn{Puts: []coordinator.Item{item(key("a"), "1", 0)}, Deletes: []string{key("a")}}
	if _, err := s.Commit(t.Context(), twice); err == nil || errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatalf("one key twice: %v", err)
	}
	commit(t, s, coordinator.Txn{Puts: []coordinator.Item{item(key("fits"), strings.Repeat("x", coordinator.MaxTxnBytes-100), 0)}})
}

// A context that had ended before the call is the one failure of which a caller knows for certain that nothing happened.
func testEndedContext(t *testing.T, s coordinator.Store) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Commit(ctx, coordinator.Txn{Puts: []coordinator.Item{item(key("a"), "1", 0)}})
	if !errors.Is(err, context.Canceled) || errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Fatal(err)
	}
	if get(t, s, key("a")).Revision != 0 {
		t.Fatal("written")
	}
}

// A range must be in key order, of one revision, whole also where it takes several requests, and no older than what was
// committed before.
func testRange(t *testing.T, s coordinator.Store) {
	const documents = 300
	for i := 0; i < documents; i += 50 {
		var txn coordinator.Txn
		for j := range 50 {
			txn.Puts = append(txn.Puts, item(key("r/%03d", (i+j)*7%documents), "1", 0))
		}
		commit(t, s, txn)
	}
	put(t, s, key("r"), "not below", key("r0"), "nor this")
	last := put(t, s, key("q"), "1")
	items, revision, err := s.Range(t.Context(), key("r/"))
	if err != nil || revision < last || len(items) != documents {
		t.Fatalf("%d items at %d, %v", len(items), revision, err)
	}
	for i, it := range items {
		if it.Key != key("r/%03d", i) || it.Revision == 0 || it.Revision > revision {
			t.Fatalf("item %d is %+v", i, it)
		}
	}
	if none, revision, err := s.Range(t.Context(), key("none/")); err != nil || len(none) != 0 || revision < last {
		t.Fatalf("%v at %d, %v", none, revision, err)
	}
}
