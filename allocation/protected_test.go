package allocation

import (
	"fmt"
	"testing"
)

// Each region's part of the floor follows its target, also where a part of the limit is not handed out. If this fails a region
// protects nothing, or keeps from all traffic what it may spend.
func TestProtectedFollowsTargets(t *testing.T) {
	three := Members{Number: 1, Regions: []string{"a", "b", "c"}}
	for _, r := range three.Regions {
		three.Holders = append(three.Holders, Holder{r, "one"})
	}
	budget := func(protected int64, p Policy) Budget {
		return Budget{Name: "x", Unit: "requests", Limit: units(1000), Protected: protected, Window: Window{Every: Minute}, Allocation: p}
	}
	fixed := Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 6, "b": 4, "c": 0}}
	template := budget(100, fixed)
	template.Name = "x/{caller}"
	hashed := budget(100, Policy{Policy: PolicyHome, HashOf: "caller"})
	hashed.Name = "x/{caller}"
	opening := budget(1000, fixed)
	opening.OpeningSpent = 900
	for name, c := range map[string]struct {
		b    Budget
		want string // target and protected of a, b and c in the first period
	}{
		"fixed":             {budget(100, fixed), "600/60 400/40 0/0"},
		"rounded up":        {budget(1, fixed), "600/1 400/1 0/0"},
		"all of it":         {budget(1000, fixed), "600/600 400/400 0/0"},
		"none":              {budget(0, fixed), "600/0 400/0 0/0"},
		"a part is kept":    {budget(100, Policy{Policy: PolicyFixed, Weights: fixed.Weights, KeepPercent: 10}), "540/54 360/36 0/0"},
		"demand":            {budget(100, Policy{Policy: PolicyDemand}), "167/17 167/17 166/17"},
		"home":              {budget(100, Policy{Policy: PolicyHome, Region: "b"}), "0/0 1000/100 0/0"},
		"a template":        {template, "600/60 400/40 0/0"},
		"each instance one": {hashed, "1000/100 1000/100 1000/100"},
		"spent before":      {opening, "60/60 40/40 0/0"},
	} {
		l := OpenLedger(c.b, 1, Periods{First: 6000, Step: 60, Count: 2}, three, genOf(1))
		got := ""
		for i, h := range three.Holders {
			a := l.Entries[0].find(h, General)
			if got += fmt.Sprintf("%d/%d", a.Target, a.Protected); i < 2 {
				got += " "
			}
			if g := l.GrantTo(h).Entries[0]; g.Protected != a.Protected {
				t.Errorf("%s: %s is told %d", name, h.Region, g.Protected)
			}
		}
		if err := l.Conserved(); got != c.want || err != nil {
			t.Errorf("%s: %s, want %s; %v", name, got, c.want, err)
		}
	}
}

// A floor that is above its target, or the budget's, is found. If this fails verify is blind to it.
func TestProtectedConserved(t *testing.T) {
	l := OpenLedger(Budget{
		Name: "x", Unit: "requests", Limit: units(100), Protected: 10, Window: Window{Every: Minute},
		Allocation: Policy{Policy: PolicyHome, Region: "a"},
	}, 1, Periods{First: 6000, Step: 60, Count: 2}, Members{Number: 1, Regions: []string{"a"}, Holders: []Holder{{"a", "one"}}}, genOf(1))
	for _, n := range []int64{-1, 11} {
		l.Entries[0].Allocations[0].Protected = n
		if l.Conserved() == nil {
			t.Errorf("%d is taken", n)
		}
	}
}

// A region that runs low of what is not protected asks for more, however much is protected. If this fails its traffic is refused
// while permits are free.
func TestAllotMindsTheFloor(t *testing.T) {
	b := Budget{Name: "x", Unit: "requests", Limit: units(1000), Protected: 400, Window: Window{Every: Minute}, Allocation: Policy{Policy: PolicyDemand}}
	m := Members{Number: 1, Regions: []string{"a", "b"}, Holders: []Holder{{"a", "one"}, {"b", "one"}}}
	l := OpenLedger(b, 1, Periods{First: 6000, Step: 60, Count: 2}, m, genOf(1))
	before := l.Entries[0].find(m.Holders[0], General)
	if before.Target != 250 || before.Protected != 100 {
		t.Fatalf("%+v", before)
	}
	l, changed, err := l.Allot(0, []Seeker{{Holder: m.Holders[0], Askable: true, Used: 150, Unmet: 1}}, genOf(2))
	if after := l.Entries[0].find(m.Holders[0], General); err != nil || !changed || after.Target <= 250 || after.Protected <= 100 {
		t.Errorf("%+v, %v", after, err)
	}
}

// What a request leaves is told by its priority, and who is refused for the floor's sake hears so. If this fails callers
// wait for a budget that is not used up, or batch work goes below the floor.
func TestProtectedDecides(t *testing.T) {
	owner := func() *Locked {
		l := newOwner(granted{testBudget("a", "requests", 100), 50})
		l.Usage[UsageKey{Budget: "a", Period: firstMinute, Class: General}].Protected = 20
		return l
	}
	ask := func(l *Locked, p Priority, op Op, id string, n int64) Decision {
		r := request(op, id, requests(n))
		r.Priority = p
		return l.put(r)
	}
	for _, p := range []Priority{Batch, Interactive, "", "urgent"} {
		l := owner()
		if d := ask(l, p, Spend, "1", 30); !d.Admitted() || d.Budgets[0].Remaining != 0 || d.Budgets[0].Protected != 20 {
			t.Errorf("%s: the last unprotected: %+v", p, d)
		}
		if d := ask(l, p, Spend, "2", 1); d.Reason != OnlyProtectedLeft || d.Retry < 1 || d.Blames != "a" {
			t.Errorf("%s: one over: %+v", p, d)
		}
		if d := ask(l, p, Spend, "3", 21); d.Reason != RegionShareSpent {
			t.Errorf("%s: more than all that is left: %s", p, d.Reason)
		}
		if d := ask(l, Essential, Spend, "4", 20); !d.Admitted() || d.Budgets[0].Remaining != 0 || d.Evidence.Priority != Essential {
			t.Errorf("essential, of what %s left: %+v", p, d)
		}
		if d := ask(l, Essential, Spend, "5", 1); d.Reason != RegionShareSpent {
			t.Errorf("essential, one over: %s", d.Reason)
		}
	}
	// A reservation is settled by the priority that it was made with, whoever settles it.
	for p, want := range map[Priority]string{Batch: "30/0/20", Essential: "50/0/0"} {
		l := owner()
		ask(l, p, Reserve, "1", 10)
		if d := ask(l, Essential, Settle, "1", 50); !d.Admitted() || l.account("a") != want {
			t.Errorf("%s: settled as %s, want %s", p, l.account("a"), want)
		}
	}
	for p, want := range map[Priority]Reason{Batch: OnlyProtectedLeft, Essential: Allow} {
		l := owner()
		ask(l, p, Reserve, "1", 10)
		if d := ask(l, Essential, Extend, "1", 50); d.Reason != want {
			t.Errorf("%s: extended with %s, want %s", p, d.Reason, want)
		}
	}
}
