package fleet

import (
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/ownertwin"
)

// A region that is removed for a second time may still hold, by the ledger, what a former incarnation was granted: its database
// counts anew, and the checker must know what was spent in it before, and no more than that.
func TestRemovalKnowsWhatAFormerIncarnationSpent(t *testing.T) {
	usage := func(spent, reserved int64) []ownertwin.UsageChange {
		return []ownertwin.UsageChange{{After: allocation.Usage{
			UsageKey: allocation.UsageKey{Budget: "steady", Period: 60, Class: allocation.General}, Term: 60, Granted: 8, Returned: 4, Spent: spent, Reserved: reserved,
		}}}
	}
	for name, c := range map[string]struct {
		commits []ownertwin.Commit
		holds   bool
	}{
		"it spent all":                   {[]ownertwin.Commit{{Incarnation: "former", Usage: usage(3, 0)}, {Incarnation: "former", Usage: usage(4, 0)}}, true},
		"all, and the next one none":     {[]ownertwin.Commit{{Incarnation: "former", Usage: usage(4, 0)}, {Incarnation: "next", Usage: usage(0, 0)}}, true},
		"it spent a part":                {[]ownertwin.Commit{{Incarnation: "former", Usage: usage(3, 0)}}, false},
		"a part, and the next one more":  {[]ownertwin.Commit{{Incarnation: "former", Usage: usage(3, 0)}, {Incarnation: "next", Usage: usage(4, 0)}}, false},
		"a part, and it reserved a part": {[]ownertwin.Commit{{Incarnation: "former", Usage: usage(3, 1)}, {Incarnation: "former", Usage: usage(4, 0), StartsOver: true}}, false},
		"nothing":                        {nil, false},
	} {
		f := newFleet(Options{Seed: 1})
		r := f.regions[0]
		f.check.ledgers[allocation.ShareRef{Budget: "steady", Term: 60}] = &ledgerView{doc: allocation.Ledger{
			Budget: "steady", Periods: allocation.Periods{First: 60, Step: 60, Count: 1},
			Entries: []allocation.Entry{{Limit: 8, Highest: 8, Allocations: []allocation.Allocation{{
				Holder: allocation.Holder{Region: r.name, Incarnation: "former"}, Class: allocation.General, Granted: 8, Returned: 4,
			}}}},
		}}
		for _, x := range c.commits {
			f.check.noteSpent(r, &x)
		}
		f.check.judgeRemoval(coordinator.RegionDocument{Region: r.name, Incarnation: "next", Former: []string{"former"}})
		if f.w.Failed() == c.holds {
			t.Errorf("%s: a violation is found: %v", name, f.w.Failed())
		}
		f.w.Close()
	}
}
