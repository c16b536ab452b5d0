package regional

import (
	"testing"

	"tranche/allocation"
)

// A region that starts anew forgets its catalogue while batches are under way. What such a batch read changed since the
// catalogue that it began with; taken for all that there is, the region would answer no_budget for good.
func TestAForgottenCatalogueTakesNoLateChanges(t *testing.T) {
	n := NewNode(Config{Region: "us-east"}, nil)
	limit := int64(10)
	budget := allocation.ConfiguredBudget{Version: 1, Budget: allocation.Budget{
		Name: "a", Unit: "requests", Limit: &limit, Window: allocation.Window{Calendar: "day"},
		Allocation: allocation.Policy{Policy: allocation.PolicyHome, Region: "us-east"},
	}}
	all := func(changes int64) *Loaded {
		return &Loaded{Incarnation: "one", Changes: changes, Budgets: []allocation.ConfiguredBudget{budget}}
	}
	n.another("one")
	n.advance(all(3), 0)
	under := n.Catalogue().Number // a batch begins
	if n.another("two"); n.Catalogue().Number != 0 {
		t.Fatal("the catalogue of the former incarnation is kept")
	}
	n.advance(&Loaded{Incarnation: "two", Changes: 4}, under) // it has read what changed since
	if got := n.Catalogue().Number; got != 0 {
		t.Fatalf("a catalogue without its budgets is at number %d: they are never loaded", got)
	}
	n.advance(all(4), 0)
	plan := n.Catalogue().Plan(allocation.Request{Op: allocation.Check}, 0)
	if plan.Refusal == allocation.NoBudget {
		t.Error("the budget is not there after everything was loaded")
	}
}
