package coordinator_test

import (
	"slices"
	"testing"

	"tranche/allocation"
)

// A database and its copy, which both lost their history, ask for a new incarnation one after the other. If both got the
// same one, each would be told of what is granted to it, and could spend that: two replicas do not hear for 2 s of the marks
// that the other one was told.
func TestTwoThatBothLostHistory(t *testing.T) {
	w, east, _ := two(t, 2)
	r, other := w.replicas[0], w.replicas[1]
	copied := *east
	copied.marks = append(slices.Clone(east.marks), allocation.Mark{Writer: "us-east-copy", Count: 1, Value: "c"})
	copied.shares, copied.used = map[allocation.ShareRef]allocation.Share{}, map[allocation.ShareRef]map[allocation.UsageKey]allocation.Usage{}
	copied.changed, copied.numbers, copied.acked = map[allocation.ShareRef]int64{}, map[int]int64{}, map[int]int64{}
	copied.budgets = map[string]allocation.ConfiguredBudget{}
	east.lost, copied.lost = true, true
	east.marks = append(slices.Clone(east.marks), allocation.Mark{Writer: "us-east-new", Count: 1, Value: "n"})

	east.sync(r) // it gets a new incarnation, and has not named it yet
	copied.sync(r)
	if east.incarnation == "" || east.incarnation == copied.incarnation {
		t.Errorf("both databases are incarnation %q", east.incarnation)
	}
	east.sync(r) // now it has
	copied.sync(other)
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "200"), "If-Match", `"1"`)
	for range 4 { // within a moment: what one replica heard is not written down
		east.sync(r)
		copied.sync(other)
		w.settle(r)
		w.settle(other)
	}
	if a, b := east.spend("acme/requests", 1000), copied.spend("acme/requests", 1000); a > 0 && b > 0 {
		t.Errorf("of one region's share %d and %d were spent", a, b)
	}
}

// The answer to a database that asked was lost: what it asks for again it gets as it was given, though its marks have gone on.
func TestTheSameIsGivenOutAgain(t *testing.T) {
	w, east, _ := two(t, 1)
	east.lost = true
	var given []string
	for range 2 {
		a, err := w.replicas[0].Sync(t.Context(), east.call())
		if err != nil || a.Refusal != "" {
			t.Fatalf("%+v %v", a, err)
		}
		given = append(given, a.Incarnation)
	}
	if given[0] == "" || given[0] != given[1] || given[0] == east.incarnation {
		t.Errorf("%v were given out", given)
	}
}
