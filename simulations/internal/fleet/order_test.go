package fleet

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// A check that took every refusal for right would find nothing, and one that knew no overlap would cry wolf.
func TestRefusedBy(t *testing.T) {
	state := func(at time.Duration, used int64) rowState {
		return rowState{from: at, held: 10, target: 10, used: used, clock: int64(at)}
	}
	free5 := state(10, 5)
	free2 := state(20, 8)
	free4 := state(30, 6)
	batch := rowState{from: 40, held: 10, target: 10, used: 5, charged: 4, clock: 39} // 4 were charged, and 5 given back
	states := []rowState{free5, free2, free4, batch}
	for name, c := range map[string]struct {
		from, decided    time.Duration
		cost, left       int64
		known, short, ok bool
	}{
		"it fitted all the time":        {31, 5, 3, 3, true, false, false},
		"it did not fit for a while":    {15, 5, 3, 2, true, true, true},
		"with another number left":      {15, 5, 3, 1, true, true, false},
		"the state when it was asked":   {29, 5, 4, 2, true, true, true},
		"within a batch":                {35, 39, 1, 0, true, true, true},
		"beside a batch":                {35, 38, 1, 0, true, false, false},
		"a cost that never fits":        {45, 5, 6, 5, true, true, true},
		"after the last, and it fitted": {45, 5, 5, 5, true, false, false},
	} {
		b := allocation.BudgetDecision{Limit: 100, Requested: c.cost, Remaining: c.left}
		if known, short, exact := refusedBy(states, c.from, int64(c.decided), "", b); known != c.known || short != c.short || exact != c.ok {
			t.Errorf("%s: %v, %v, %v", name, known, short, exact)
		}
	}
	if known, _, _ := refusedBy(nil, 0, 0, "", allocation.BudgetDecision{}); known {
		t.Error("a row that never was")
	}
}

// What is spent after a seal must be seen, whether the seal was of the row or of the share that the row is made from; a
// settle within what was reserved must pass.
func TestSealedRows(t *testing.T) {
	ref := allocation.ShareRef{Budget: "steady", Term: 60}
	row := func(spent, reserved int64, sealed bool) allocation.Usage {
		return allocation.Usage{UsageKey: allocation.UsageKey{Budget: "steady", Period: 60, Class: allocation.General}, Term: 60, Granted: 10, Spent: spent, Reserved: reserved, Sealed: sealed}
	}
	for name, c := range map[string]struct {
		changes []ownertwin.UsageChange
		share   bool // the share is sealed before
		holds   bool
	}{
		"settled after the seal":      {[]ownertwin.UsageChange{{Before: row(1, 2, false), After: row(1, 2, true)}, {Before: row(1, 2, true), After: row(2, 0, true)}}, false, true},
		"spent after the seal":        {[]ownertwin.UsageChange{{Before: row(1, 2, false), After: row(1, 2, true)}, {Before: row(1, 2, true), After: row(2, 2, true)}}, false, false},
		"opened after the seal":       {[]ownertwin.UsageChange{{Before: row(1, 0, false), After: row(1, 0, true)}, {Before: row(1, 0, true), After: row(1, 0, false)}}, false, false},
		"made under a sealed share":   {[]ownertwin.UsageChange{{After: row(0, 0, true)}}, true, true},
		"made open, under a sealed":   {[]ownertwin.UsageChange{{After: row(0, 0, false)}}, true, false},
		"spent, and the share sealed": {[]ownertwin.UsageChange{{Before: row(1, 0, false), After: row(2, 0, false)}}, true, false},
	} {
		f := newFleet(Options{Seed: 1})
		r := f.regions[0]
		if c.share {
			f.check.sealed[sealKey{r.db.Name(), "life", ref, allocation.UsageKey{}}] = true
		}
		for _, u := range c.changes {
			f.check.judgeSealed(r, &ownertwin.Commit{Database: r.db.Name(), Incarnation: "life"}, ref, u)
		}
		if f.w.Failed() == c.holds {
			t.Errorf("%s: a violation is found: %v", name, f.w.Failed())
		}
		f.w.Close()
	}
}
