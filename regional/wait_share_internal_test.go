package regional

import (
	"testing"
	"time"

	"tranche/allocation"
)

// A caller waits for permits that may come. If this fails it waits, in vain, for what is kept for a region that begins anew, or does
// not wait for what is free.
func TestWaitsForWhatMayCome(t *testing.T) {
	b := allocation.Budget{Name: "a", WaitForShare: 2 * allocation.Second}
	n := &Node{}
	n.catalogue.Store(allocation.NewCatalogue("eu").With(1, []allocation.ConfiguredBudget{{Budget: b, Version: 1}}, nil, nil))
	key := allocation.UsageKey{Budget: "a", Period: 60}
	d := allocation.Decision{
		Reason: allocation.RegionShareSpent, Retry: 1, Op: allocation.Spend,
		Budgets: []allocation.BudgetDecision{{UsageKey: key, Reason: allocation.RegionShareSpent}},
	}
	for name, c := range map[string]struct {
		elsewhere *allocation.Elsewhere
		waits     bool
	}{
		"nothing is known":           {nil, true},
		"of another period":          {&allocation.Elsewhere{Period: 0}, true},
		"nothing is left":            {&allocation.Elsewhere{Period: 60}, false},
		"unallocated":                {&allocation.Elsewhere{Period: 60, Unallocated: 1}, true},
		"spendable elsewhere":        {&allocation.Elsewhere{Period: 60, Spendable: 1}, true},
		"all of it is kept":          {&allocation.Elsewhere{Period: 60, Unallocated: 5, Kept: 5}, false},
		"more than what is kept":     {&allocation.Elsewhere{Period: 60, Unallocated: 6, Kept: 5}, true},
		"kept, and others have some": {&allocation.Elsewhere{Period: 60, Unallocated: 5, Kept: 5, Spendable: 1}, true},
	} {
		n.synced.elsewhere = map[string]allocation.Elsewhere{}
		if c.elsewhere != nil {
			n.synced.elsewhere["a"] = *c.elsewhere
		}
		if got := n.waitsFor(allocation.Request{Op: allocation.Spend}, &d); (got == 2*time.Second) != c.waits {
			t.Errorf("%s: waits for %s", name, got)
		}
	}
}
