package allocation

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// gen is the generation of number n.
func genOf(n int64) Generation { return Generation{Number: n, Stamp: fmt.Sprint("s", n)} }

var tenMinutes = Periods{First: 6000, Step: 60, Count: 10}

// grantOf is a grant over ten minutes, of one entry per pair of granted and target; returned is what the ledger counted.
func grantOf(n int64, entries ...[3]int64) ShareGrant {
	g := ShareGrant{Budget: "a", Version: n, Periods: tenMinutes, Generation: genOf(n)}
	each := Instant(600 / len(entries))
	for i, e := range entries {
		from := 6000 + Instant(i)*each
		g.Entries = append(g.Entries, GrantEntry{From: from, Until: from + each, Class: General, Limit: 100, Granted: e[0], Returned: e[1], Target: e[2]})
	}
	return g
}

func apply(t *testing.T, s Share, g ShareGrant) Share {
	t.Helper()
	out, changed, err := s.Apply(g)
	if err != nil || !changed {
		t.Fatalf("generation %s: changed %v, %v", g.Generation, changed, err)
	}
	return out
}

// stated are the runs of a statement, as from-until returned.
func stated(s ShareStatement) string {
	text := ""
	for _, r := range s.Returned {
		text += fmt.Sprintf("%d-%d %d; ", r.From, r.Until, r.Returned)
	}
	return text
}

// A message that is late or repeated changes nothing, and one that contradicts is an error that changes nothing
// (invariant 8). If this fails an old answer raises what a lowered share gave back.
func TestApplyIgnoresTheOldAndRefusesTheContradicting(t *testing.T) {
	s := apply(t, apply(t, Share{}, grantOf(3, [3]int64{60, 0, 60})), grantOf(5, [3]int64{60, 0, 40}))
	for _, g := range []ShareGrant{grantOf(5, [3]int64{60, 0, 40}), grantOf(4, [3]int64{90, 0, 90}), grantOf(0, [3]int64{90, 0, 90})} {
		if out, changed, err := s.Apply(g); changed || err != nil || out.Generation != s.Generation || !slices.Equal(out.Entries, s.Entries) {
			t.Errorf("generation %s: changed %v, %v", g.Generation, changed, err)
		}
	}
	otherStamp, otherTerm, otherEnd, otherBudget := grantOf(5, [3]int64{90, 0, 90}), grantOf(6, [3]int64{90, 0, 90}), grantOf(6, [3]int64{90, 0, 90}), grantOf(6, [3]int64{90, 0, 90})
	otherStamp.Generation.Stamp = "other"
	otherTerm.Periods.First += 60
	otherEnd.Periods.Count++
	otherBudget.Budget = "b"
	for name, g := range map[string]ShareGrant{
		"another stamp": otherStamp, "another term": otherTerm, "another end": otherEnd, "another budget": otherBudget,
		"a return that was never made": grantOf(6, [3]int64{90, 21, 60}), "one of some periods": grantOf(6, [3]int64{60, 20, 40}, [3]int64{90, 30, 60}),
	} {
		if out, changed, err := s.Apply(g); changed || !errors.Is(err, ErrContradicted) || !slices.Equal(out.Entries, s.Entries) {
			t.Errorf("%s: changed %v, %v", name, changed, err)
		}
	}
	if out, _, _ := s.Apply(grantOf(6, [3]int64{50, 20, 40})); out.Entries[0].Granted != 60 {
		t.Errorf("granted fell to %d", out.Entries[0].Granted)
	}
	if _, changed, err := s.Apply(grantOf(6, [3]int64{90, 20, 70}, [3]int64{60, 19, 40})); !changed || err != nil {
		t.Errorf("returns that were made: %v, %v", changed, err)
	}
}

// A grant that comes late, to an owner that has forgotten the term, does not give it again what it returned.
func TestApplyToAForgottenTerm(t *testing.T) {
	s := apply(t, Share{}, grantOf(7, [3]int64{100, 40, 100}))
	if u, ok := s.Usage(UsageKey{Budget: "a", Period: 6060, Class: General}); !ok || u.Granted-u.Returned != 60 || u.Spendable(1000) != 60 {
		t.Errorf("holds %+v", u)
	}
}

// A lowered target gives back what is free: all of it in periods that are unused, the rest of the used one as it frees
// up, stated apart. If this fails the ledger counts a permit as returned that was spent here, and sells it again.
func TestReturnsOfAUsedPeriod(t *testing.T) {
	s := apply(t, Share{}, grantOf(1, [3]int64{60, 0, 60}))
	k := UsageKey{Budget: "a", Period: 6120, Class: General}
	u, ok := s.Usage(k)
	if !ok || u.Until != 6180 || u.Term != 6000 || u.Granted != 60 || u.Target != 60 || u.Generation != 1 {
		t.Fatalf("made %+v, %v", u, ok)
	}
	u.Spent, u.Reserved = 35, 10
	early := s.Statement([]Usage{u}, nil)
	s = apply(t, s, grantOf(2, [3]int64{60, 0, 20}))
	u = u.Take(s)
	if u.Returned != 15 || u.Spendable(1000) != 0 || u.Generation != 2 || u.Version != 2 {
		t.Errorf("the used period holds %+v", u)
	}
	first := s.Statement([]Usage{u}, nil)
	if want := "6000-6120 40; 6120-6180 15; 6180-6600 40; "; stated(first) != want || first.Generation != genOf(2) || len(first.Usage) != 1 || first.Usage[0].Spent != 35 || first.Usage[0].Reserved != 10 {
		t.Errorf("stated %s, want %s; %+v", stated(first), want, first.Usage)
	}
	u.Reserved = 0
	u.giveBack()
	second := s.Statement([]Usage{u}, nil)
	if want := "6000-6120 40; 6120-6180 25; 6180-6600 40; "; stated(second) != want {
		t.Errorf("stated %s, want %s", stated(second), want)
	}

	claims := second
	claims.Returned = append(slices.Clone(second.Returned), ReturnedStatement{From: 6060, Until: 6180, Class: General, Returned: 40})
	if _, changed, err := ledgerOf(Holder{"here", "one"}, 60, Holder{"there", "two"}, 40).Count(Holder{"here", "one"}, claims, genOf(9)); err == nil || changed {
		t.Error("a run that speaks of the used period as well was counted")
	}

	// The ledger counts them in any order to the same end, and grants what came back to the other.
	a, b := Holder{"here", "one"}, Holder{"there", "two"}
	before := ledgerOf(a, 60, b, 40)
	want := ""
	for _, order := range [][]ShareStatement{{early, first, second}, {second, first, early}, {first, second, first}, {second}} {
		l, n := before, int64(10)
		for _, s := range order {
			var err error
			if l, _, err = l.Count(a, s, genOf(n)); err != nil {
				t.Fatal(err)
			}
			n++
		}
		got := ""
		for i := range 10 {
			e := l.EntryAt(i)
			got += fmt.Sprintf("%d+%d ", e.find(a, General).Held(), e.find(b, General).Held())
		}
		if want == "" {
			want = "20+80 20+80 35+65 20+80 20+80 20+80 20+80 20+80 20+80 20+80 "
		}
		if got != want {
			t.Errorf("counted to %s", got)
		}
	}
}

// ledgerOf has granted two holders, and would now have a hold 20 and b the rest.
func ledgerOf(a Holder, toA int64, b Holder, toB int64) Ledger {
	budget := testBudget("a", "requests", toA+toB)
	budget.Allocation.Weights = map[string]int64{a.Region: toA, b.Region: toB}
	m := Members{Number: 1, Regions: []string{a.Region, b.Region}, Holders: []Holder{a, b}}
	l := OpenLedger(budget, 1, tenMinutes, m, genOf(1))
	budget.Allocation.Weights = map[string]int64{a.Region: 20, b.Region: toA + toB - 20}
	l, err := l.Follow(budget, 2, 0, m, genOf(2))
	if err != nil {
		panic(err)
	}
	return l
}

// A lowering that was raised back before it was stated: what was returned comes again by a new grant, neither twice nor
// never. If this fails a budget shrinks for good by being changed twice in a second.
func TestLoweringRaisedBack(t *testing.T) {
	for _, sawLowering := range []bool{true, false} {
		here := Holder{"here", "one"}
		budget := testBudget("a", "requests", 60)
		budget.Allocation.Weights = map[string]int64{"here": 1}
		m := Members{Regions: []string{"here"}, Holders: []Holder{here}}
		l := OpenLedger(budget, 1, tenMinutes, m, genOf(1))
		s := apply(t, Share{}, l.GrantTo(here))
		for i, limit := range []int64{30, 60} {
			budget.Limit = units(limit)
			l, _ = l.Follow(budget, 2, 0, m, genOf(int64(i+2)))
			if i == 1 || sawLowering {
				s = apply(t, s, l.GrantTo(here))
			}
		}
		u, _ := s.Usage(UsageKey{Budget: "a", Period: 6060, Class: General})
		if want := map[bool]int64{true: 30, false: 60}[sawLowering]; u.Spendable(60) != want {
			t.Errorf("saw the lowering %v: %d can be spent, want %d", sawLowering, u.Spendable(60), want)
		}
		l, changed, err := l.Count(here, s.Statement(nil, nil), genOf(4))
		if err != nil || changed != sawLowering {
			t.Fatalf("counted %v, %v", changed, err)
		}
		if changed {
			s = apply(t, s, l.GrantTo(here))
		}
		if u, _ = s.Usage(u.UsageKey); u.Spendable(60) != 60 || l.Unallocated(0) != 0 {
			t.Errorf("saw the lowering %v: at last %d can be spent, %d unallocated", sawLowering, u.Spendable(60), l.Unallocated(0))
		}
	}
}

// A share knows its own periods only, and takes nothing of an older generation; an instance returns nothing, and spends within its target all the same.
func TestUsageOfAShare(t *testing.T) {
	s := apply(t, Share{}, grantOf(3, [3]int64{60, 0, 60}))
	for _, k := range []UsageKey{{"a", "", 6030, General}, {"a", "", 6600, General}, {"a", "", 5940, General}} {
		if u, ok := s.Usage(k); ok {
			t.Errorf("%v made %+v", k, u)
		}
	}
	came := grantOf(3, [3]int64{60, 0, 60}, [3]int64{60, 0, 60})
	came.Entries = came.Entries[1:] // of a region that came in the middle of the term
	for k, want := range map[UsageKey]bool{{"a", "", 6240, General}: false, {"a", "", 6300, General}: true, {"a", "", 6300, Protected}: false} {
		if u, ok := apply(t, Share{}, came).Usage(k); ok != want || ok && (u.Granted != 60 || u.Until != 6360) {
			t.Errorf("%v made %+v, %v", k, u, ok)
		}
	}
	gap := grantOf(3, [3]int64{60, 0, 60}, [3]int64{0, 0, 0}, [3]int64{60, 0, 60})
	gap.Entries = slices.Delete(gap.Entries, 1, 2)
	if u, ok := apply(t, Share{}, gap).Usage(UsageKey{"a", "", 6240, General}); ok {
		t.Errorf("between two runs that were granted: %+v", u)
	}
	u, _ := s.Usage(UsageKey{Budget: "a", Period: 6000, Class: General})
	u.Generation = 4
	if took := u.Take(apply(t, s, grantOf(4, [3]int64{60, 0, 10}))); took.Returned != 50 {
		t.Errorf("the same generation, taken again: %+v", took)
	}
	u.Generation = 5
	if took := u.Take(apply(t, s, grantOf(4, [3]int64{60, 0, 10}))); took != u {
		t.Errorf("an older share changed %+v to %+v", u, took)
	}
	if took := u.Take(Share{Generation: genOf(6), Entries: []GrantEntry{{From: 6000, Until: 6060, Class: General, Granted: 50, Target: 60}}}); took.Granted != 60 {
		t.Errorf("granted fell to %d", took.Granted)
	}
	lowered := grantOf(4, [3]int64{60, 0, 10})
	lowered.Template = true
	template := apply(t, s, lowered)
	u, _ = template.Usage(UsageKey{Budget: "a", Instance: "kim", Period: 6000, Class: General})
	u.Spent = 4
	if u.giveBack(); u.Returned != 0 || u.Spendable(100) != 6 || u.Spendable(5) != 1 || !u.Template {
		t.Errorf("an instance: %+v, spendable %d", u, u.Spendable(100))
	}
	instances := map[Instant]int64{6000: 7}
	if st := template.Statement([]Usage{u}, instances); len(st.Returned) != 0 || st.Usage[0].Instances != 7 {
		t.Errorf("a template states %+v", st)
	}
}

// Any counter out of its bounds stops the commit. If this fails, a bug elsewhere becomes permits.
func TestOverflowed(t *testing.T) {
	good := Usage{Granted: 10, Returned: 2, Spent: 5, Reserved: 3}
	if good.Overflowed() || good.Spendable(10) != 0 {
		t.Errorf("%+v", good)
	}
	for name, change := range map[string]func(*Usage){
		"spent": func(u *Usage) { u.Spent = -1 }, "reserved": func(u *Usage) { u.Reserved = -1 }, "overdraft": func(u *Usage) { u.Overdraft = -1 },
		"returned": func(u *Usage) { u.Returned = -1 }, "all returned": func(u *Usage) { *u = Usage{Granted: 10, Returned: 11} },
		"one too many": func(u *Usage) { u.Reserved++ }, "returned what is spent": func(u *Usage) { u.Returned++ },
	} {
		u := good
		if change(&u); !u.Overflowed() {
			t.Errorf("%s: %+v", name, u)
		}
	}
}
