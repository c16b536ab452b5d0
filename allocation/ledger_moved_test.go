package allocation

import "testing"

// Without this a region that registers or drains somewhere would silently undo what an operator moved by hand; or a
// rebalance would outlive the declaration that it adjusted.
func TestMovesStandWhileTheBudgetDoes(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "a", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu": 1, "us": 1}}}
	eu, us, ap := Holder{"eu", "1"}, Holder{"us", "1"}, Holder{"ap", "1"}
	gen := func(n int64) Generation { return Generation{Number: n, Stamp: "s"} }
	two := Members{Number: 1, Regions: []string{"eu", "us"}, Holders: []Holder{eu, us}}
	moved, err := OpenLedger(b, 1, Periods{First: 0, Step: 60, Count: 3}, two, gen(1)).Move(eu, us, 30, 1, gen(2))
	if err != nil {
		t.Fatal(err)
	}
	target := func(l Ledger, h Holder) int64 {
		e := l.EntryAt(1)
		return e.find(h, General).Target
	}
	follow := func(version int64, m Members) Ledger {
		l, err := moved.Follow(b, version, 1, m, gen(3))
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	three := Members{Number: 2, Regions: []string{"ap", "eu", "us"}, Holders: []Holder{ap, eu, us}}
	if l := follow(1, three); target(l, eu) != 20 || target(l, us) != 80 {
		t.Errorf("a region registers: eu %d, us %d; want 20 and 80", target(l, eu), target(l, us))
	}
	drained := Members{Number: 2, Regions: two.Regions, Draining: []string{"us"}, Holders: []Holder{eu}}
	if l := follow(1, drained); target(l, eu) != 100 || target(l, us) != 0 {
		t.Errorf("the taker drains: eu %d, us %d; want 100 and 0", target(l, eu), target(l, us))
	}
	if l := follow(2, two); target(l, eu) != 50 || target(l, us) != 50 {
		t.Errorf("the budget changes: eu %d, us %d; want 50 and 50", target(l, eu), target(l, us))
	}
}

// What comes back of a period that is over for the coordinator may still run for an owner whose clock is behind: a region that
// drains is not granted it.
func TestDrainTakesNoMoreOfPeriodsBefore(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "a", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu": 1, "us": 1}}}
	eu, us := Holder{"eu", "1"}, Holder{"us", "1"}
	gen := func(n int64) Generation { return Generation{Number: n, Stamp: "s"} }
	two := Members{Number: 1, Regions: []string{"eu", "us"}, Holders: []Holder{eu, us}}
	l, err := OpenLedger(b, 1, Periods{First: 0, Step: 60, Count: 3}, two, gen(1)).Move(eu, us, 30, 0, gen(2))
	if err != nil {
		t.Fatal(err)
	}
	l, err = l.Follow(b, 1, 1, Members{Number: 2, Regions: two.Regions, Draining: []string{"us"}, Holders: []Holder{eu}}, gen(3))
	if err != nil {
		t.Fatal(err)
	}
	before := l.EntryAt(0)
	if a := before.find(us, General); a.Held() != 50 || a.Target != 50 {
		t.Errorf("us holds %d of the period before, and is promised %d; want 50 and 50", a.Held(), a.Target)
	}
	// It had given 5 back before, when less was its own.
	back := ShareStatement{Budget: "a", Generation: l.Generation, Returned: []ReturnedStatement{{From: 0, Until: 60, Class: General, Returned: 5}}}
	l, changed, err := l.CountDrained(us, back, gen(4))
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	before = l.EntryAt(0)
	if a := before.find(us, General); a.Granted != 50 || a.Held() != 45 || a.Target != 45 {
		t.Errorf("us was granted %d of the period before, holds %d, and is promised %d; want 50, 45 and 45", a.Granted, a.Held(), a.Target)
	}
}

// A move that its giver can only do in part, since another region takes part again, must not promise its taker more than that:
// the targets would add up to more than the limit, and the region that is back would wait for what nobody returns.
func TestMovesFitWhatTheGiverHas(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "a", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"ap": 5, "eu": 3, "us": 2}}}
	ap, eu, us := Holder{"ap", "1"}, Holder{"eu", "1"}, Holder{"us", "1"}
	gen := func(n int64) Generation { return Generation{Number: n, Stamp: "s"} }
	regions := []string{"ap", "eu", "us"}
	drained := Members{Number: 1, Regions: regions, Draining: []string{"ap"}, Holders: []Holder{eu, us}}
	l, err := OpenLedger(b, 1, Periods{First: 0, Step: 60, Count: 3}, drained, gen(1)).Move(eu, us, 40, 0, gen(2))
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range [][3]int64{{50, 0, 50}, {0, 30, 70}} { // it is back, and drains again
		m := Members{Number: int64(n) + 2, Regions: regions, Holders: []Holder{ap, eu, us}}
		if n == 1 {
			m = drained
			m.Number = 3
		}
		if l, err = l.Follow(b, 1, 0, m, gen(int64(n)+3)); err != nil {
			t.Fatal(err)
		}
		for i, h := range []Holder{ap, eu, us} {
			e := l.EntryAt(0)
			if a := e.find(h, General); a.Target != want[i] {
				t.Errorf("step %d: %s is to hold %d, not %d", n, h.Region, a.Target, want[i])
			}
		}
	}
}
