package storetest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"tranche/coordinator"
)

// delivered is one call of a watch.
type delivered struct {
	events   []coordinator.Event
	revision int64
}

// watch runs a watch and hands over what it delivers; stop ends it and returns its error.
func watch(t *testing.T, s coordinator.Store, prefix string, after int64) (calls <-chan delivered, stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	out, end := make(chan delivered), make(chan error, 1)
	go func() {
		end <- s.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
			select {
			case out <- delivered{events, revision}:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(cancel)
	return out, func() error { cancel(); return receive(t, end) }
}

// untilRevision collects what is delivered up to a revision, and checks the order of the calls.
func untilRevision(t *testing.T, calls <-chan delivered, after, revision int64) (events []coordinator.Event) {
	t.Helper()
	for last := after; last < revision; {
		call := receive(t, calls)
		if call.revision <= last {
			t.Fatalf("revision %d delivered after %d", call.revision, last)
		}
		for _, e := range call.events {
			if e.Revision <= last || e.Revision > call.revision {
				t.Fatalf("event of revision %d in a call from %d to %d", e.Revision, last, call.revision)
			}
		}
		events, last = append(events, call.events...), call.revision
	}
	return events
}

// A mirror that missed, repeated or reordered a change would decide on a ledger that never was.
func testWatch(t *testing.T, s coordinator.Store) {
	start := put(t, s, key("w/before"), "1")
	calls, stop := watch(t, s, key("w/"), start)
	const changes = 200
	var revisions []int64
	for i := range changes {
		put(t, s, key("other"), "x")
		revisions = append(revisions, put(t, s, key("w/a"), fmt.Sprint(i)))
	}
	gone := commit(t, s, coordinator.Txn{Deletes: []string{key("w/a")}})
	events := untilRevision(t, calls, start, gone)
	if len(events) != changes+1 {
		t.Fatalf("%d events, want %d", len(events), changes+1)
	}
	for i, e := range events[:changes] {
		if e.Deleted || !equal(e.Item, item(key("w/a"), fmt.Sprint(i), revisions[i])) {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
	if last := events[changes]; !last.Deleted || !equal(last.Item, item(key("w/a"), "", gone)) {
		t.Fatalf("delete: %+v", last)
	}
	if err := stop(); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// After a broken watch the next one must go on exactly after the revision that was delivered.
func testWatchResumes(t *testing.T, s coordinator.Store) {
	start := put(t, s, key("w/0"), "0")
	var revisions []int64
	for i := range 20 {
		revisions = append(revisions, put(t, s, key("w/%02d", i), "1"))
	}
	last := revisions[len(revisions)-1]
	for _, after := range []int64{start, revisions[4], revisions[18]} {
		calls, stop := watch(t, s, key("w/"), after)
		want := 0
		for _, r := range revisions {
			if r > after {
				want++
			}
		}
		if events := untilRevision(t, calls, after, last); len(events) != want {
			t.Fatalf("after %d: %d events, want %d", after, len(events), want)
		}
		if err := stop(); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
}

// Half a transaction must never be seen: a ledger without its return, say. Large ones are where a store might split.
func testWatchGroups(t *testing.T, s coordinator.Store) {
	start := put(t, s, key("other"), "1")
	value := string(make([]byte, 15<<10))
	var last int64
	for range 5 {
		var txn coordinator.Txn
		for i := range 60 {
			txn.Puts = append(txn.Puts, item(key("w/%02d", i), value, 0))
		}
		last = commit(t, s, txn)
	}
	calls, _ := watch(t, s, key("w/"), start)
	for seen := start; seen < last; {
		call := receive(t, calls)
		if len(call.events)%60 != 0 {
			t.Fatalf("%d events in one call: part of a revision", len(call.events))
		}
		seen = call.revision
	}
}

// Without progress a mirror of a quiet prefix would look ever older while other keys change.
func testWatchProgress(t *testing.T, s coordinator.Store) {
	start := put(t, s, key("w/a"), "1")
	calls, _ := watch(t, s, key("w/"), start)
	last := put(t, s, key("other"), "1")
	if events := untilRevision(t, calls, start, last); len(events) != 0 {
		t.Fatalf("events: %+v", events)
	}
}

// Whoever asks for forgotten changes must be told to read again, or it would miss them for ever.
func testCompaction(t *testing.T, s coordinator.Store) {
	start := put(t, s, key("w/a"), "1")
	for i := range 10 {
		put(t, s, key("w/a"), fmt.Sprint(i))
	}
	last := put(t, s, key("w/b"), "1")
	for range 2 { // doing it again is no error
		if err := s.Compact(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := deadline(t)
	defer cancel()
	err := s.Watch(ctx, key("w/"), start, func(events []coordinator.Event, revision int64) {
		t.Errorf("delivered %d events up to %d", len(events), revision)
	})
	if !errors.Is(err, coordinator.ErrCompacted) {
		t.Fatal(err)
	}
	items, _, err := s.Range(t.Context(), key("w/"))
	if err != nil || len(items) != 2 {
		t.Fatalf("%+v, %v", items, err)
	}
	calls, _ := watch(t, s, key("w/"), last)
	next := put(t, s, key("w/a"), "next")
	if events := untilRevision(t, calls, last, next); len(events) != 1 {
		t.Fatalf("after a compaction: %+v", events)
	}
}
