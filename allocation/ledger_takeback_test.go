package allocation

import "testing"

// A move that cannot finish must leave each region what it has, and no promise: else a return that comes days later takes
// permits from a region that lives.
func TestTakeBack(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "a", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu": 2, "us": 3}}}
	eu, us := Holder{"eu", "1"}, Holder{"us", "1"}
	gen := func(n int64) Generation { return Generation{Number: n, Stamp: "s"} }
	two := Members{Number: 1, Regions: []string{"eu", "us"}, Holders: []Holder{eu, us}}
	open := OpenLedger(b, 1, Periods{First: 0, Step: 60, Count: 3}, two, gen(1))
	moved, err := open.Move(us, eu, 25, 1, gen(2))
	if err != nil {
		t.Fatal(err)
	}
	held := func(l Ledger, h Holder) int64 {
		e := l.EntryAt(2)
		return e.find(h, General).Held()
	}
	for returned, want := range map[int64]struct{ us, eu int64 }{0: {60, 40}, 10: {50, 50}, 25: {35, 65}} {
		l, _, err := moved.Count(us, ShareStatement{
			Budget: "a", Generation: gen(2), Returned: []ReturnedStatement{{From: 60, Until: 180, Class: General, Returned: returned}},
		}, gen(3))
		if err != nil {
			t.Fatal(err)
		}
		if l, err = l.TakeBack(us, eu, 25, 1, gen(4)); err != nil {
			t.Fatal(err)
		}
		e := l.EntryAt(1)
		if e.find(us, General).Target != want.us || e.find(eu, General).Target != want.eu || l.Lowered(0) {
			t.Errorf("%d returned: us %d, eu %d; want %+v, and nothing to be returned", returned, e.find(us, General).Target, e.find(eu, General).Target, want)
		}
		if first := l.EntryAt(0); first.find(us, General).Target != 60 || first.find(us, General).Moved != 0 {
			t.Errorf("a period before the move: %+v", first)
		}
		// What us returned before it heard of the end.
		l, _, err = l.Count(us, ShareStatement{
			Budget: "a", Generation: gen(2), Returned: []ReturnedStatement{{From: 60, Until: 180, Class: General, Returned: 25}},
		}, gen(5))
		if err != nil || held(l, us) != want.us || held(l, eu) != want.eu {
			t.Errorf("%d returned, then the rest: %v %+v", returned, err, l.EntryAt(2))
		}
		if err := l.Conserved(); err != nil {
			t.Error(err)
		}
	}
}
