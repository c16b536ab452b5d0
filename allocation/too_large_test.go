package allocation

import (
	"strings"
	"testing"
)

// Of 100, split 50 to 50, one of 51 never passes: told to come back soon it comes back for ever. A share that is only spent, that
// moves by itself, or that is still on its way is another thing.
func TestTooLargeForTheShare(t *testing.T) {
	demand := testBudget("a", "requests", 100)
	demand.Allocation = Policy{Policy: PolicyDemand}
	for name, c := range map[string]struct {
		budget  Budget
		granted int64
		spent   int64
		cost    int64
		want    Reason
		never   bool
	}{
		"above the share":                    {testBudget("a", "requests", 100), 50, 0, 51, RegionShareSpent, true},
		"above the share, spent":             {testBudget("a", "requests", 100), 50, 20, 60, RegionShareSpent, true},
		"as large as the share, spent":       {testBudget("a", "requests", 100), 50, 1, 50, RegionShareSpent, false},
		"more was moved here":                {testBudget("a", "requests", 100), 60, 1, 60, RegionShareSpent, false},
		"above what was moved here":          {testBudget("a", "requests", 100), 60, 0, 61, RegionShareSpent, true},
		"not granted yet":                    {testBudget("a", "requests", 100), 20, 0, 50, RegionShareSpent, false},
		"above what it will be granted":      {testBudget("a", "requests", 100), 20, 0, 51, RegionShareSpent, true},
		"above the share, which moves":       {demand, 50, 0, 51, RegionShareSpent, false},
		"above what is left of it all":       {testBudget("a", "requests", 100), 50, 50, 51, CeilingReached, false},
		"above the limit, another thing":     {testBudget("a", "requests", 100), 50, 0, 101, CostExceedsLimit, true},
		"fits":                               {testBudget("a", "requests", 100), 50, 0, 50, Allow, false},
		"above the share, of another period": {testBudget("a", "requests", 100), 49, 0, 50, RegionShareSpent, false},
	} {
		l := newOwner(granted{c.budget, c.granted})
		if c.spent > 0 {
			l.ask(Spend, "first", requests(c.spent))
		}
		d := l.ask(Spend, "x", requests(c.cost))
		if d.Reason != c.want || !d.Admitted() && d.Never() != c.never {
			t.Errorf("%s: %s, never %v: %s", name, d.Reason, d.Never(), d.Detail)
		}
		if said := strings.Contains(d.Detail, "can never pass here"); d.Reason == RegionShareSpent && said != c.never {
			t.Errorf("%s says %s", name, d.Detail)
		}
	}
}
