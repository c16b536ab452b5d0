//go:build unix

package postgres

import (
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// If this failed nothing of a batch would be as it was written.
func TestBatchWritesAndReadsBack(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.give("b", 10)
	a, b := o.key("a", 10), o.key("b", 10)
	o.mustSpend("one", a, b)
	seen, err := o.store.Peek(t.Context(), regional.Want{IDs: []allocation.IDKey{id("none"), id("one")}, OfIDs: []allocation.IDKey{id("one")}})
	if err != nil {
		t.Fatal(err)
	}
	got := seen.IDs[id("one")]
	if got == nil || len(seen.IDs) != 1 || len(got.Lines) != 2 || got.Lines[0].UsageKey != a || got.Lines[1].UsageKey != b ||
		got.Lines[0].Remaining != 9 || got.First.Correlation != `"\{}` || got.Payload != "0123456789abcdef" || got.State != allocation.StateSpent {
		t.Fatalf("read back %+v", got)
	}
	if len(seen.Usage) != 2 || seen.Usage[a].Spent != 1 || seen.Usage[b].Spent != 1 {
		t.Fatalf("usage %+v", seen.Usage)
	}
	if len(seen.Terms) != 2 || seen.Changes != 2 || seen.Unsafe != "" || seen.Incarnation != "life-1" || seen.Home.System == "" || seen.Home.Timeline != 1 {
		t.Fatalf("seen %+v", seen.Loaded)
	}
	if ok, err := o.spend(o.store, o.w, "one", a); ok || err != nil {
		t.Fatalf("the id was admitted again: %v, %v", ok, err)
	}
}
