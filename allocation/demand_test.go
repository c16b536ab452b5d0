package allocation

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func demandBudget(limit int64, p Policy) Budget {
	p.Policy = PolicyDemand
	return Budget{Name: "d", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, Allocation: p}
}

var threeHolders = []Holder{{"a", "a1"}, {"b", "b1"}, {"c", "c1"}}

func demandLedger(limit int64, p Policy) Ledger {
	m := Members{Regions: []string{"a", "b", "c"}, Holders: threeHolders}
	return OpenLedger(demandBudget(limit, p), 1, Periods{First: 600, Step: 60, Count: 5}, m, genOf(1))
}

// heldBy is what each region holds of period i.
func heldBy(l Ledger, i int) map[string]int64 {
	held := map[string]int64{}
	for _, a := range l.EntryAt(i).Allocations {
		held[a.Region] += a.Held()
	}
	return held
}

func targetsOf(l Ledger, i int) map[string]int64 {
	targets := map[string]int64{}
	for _, a := range l.EntryAt(i).Allocations {
		targets[a.Region] += a.Target
	}
	return targets
}

func seekersOf(change func(s []Seeker)) []Seeker {
	var list []Seeker
	for _, h := range threeHolders {
		list = append(list, Seeker{Holder: h, Askable: true})
	}
	change(list)
	return list
}

// A new term keeps a part back, or the first region that is busy could be given nothing before others have returned.
func TestDemandKeepsAPartUnallocated(t *testing.T) {
	l := demandLedger(300, Policy{Min: map[string]int64{"b": 90}, Max: map[string]int64{"c": 10}})
	if held := heldBy(l, 3); !maps.Equal(held, map[string]int64{"a": 50, "b": 90, "c": 10}) || l.Unallocated(3) != 150 {
		t.Fatalf("held %v, unallocated %d", held, l.Unallocated(3))
	}
	seen := demandBudget(300, Policy{}).demandBase(300, []string{"a", "b", "c"}, map[string]int64{"a": 900, "b": 100})
	if seen["a"] <= 100 || seen["c"] < 1 || seen["a"]+seen["b"]+seen["c"] != 150 {
		t.Fatalf("a base that does not follow what was seen: %v", seen)
	}
}

// The example of the documentation: chunks, then what the idle hold, and all of the limit ends where it is used.
func TestDemandGivesAllToTheOneThatUsesIt(t *testing.T) {
	l := demandLedger(300, Policy{})
	used, steps, own := int64(0), 0, map[Holder]Share{}
	for _, h := range threeHolders {
		own[h], _, _ = Share{}.Apply(l.GrantTo(h))
	}
	for range 400 {
		used = heldBy(l, 2)["a"] // all of it
		next, changed, err := l.Allot(2, seekersOf(func(s []Seeker) { s[0].Used, s[0].Rate, s[0].Unmet = used, 600, 5 }), genOf(l.Generation.Number+1))
		if err != nil {
			t.Fatal(err)
		}
		if l = next; changed {
			steps++
		}
		for _, h := range threeHolders {
			own[h], _, err = own[h].Apply(l.GrantTo(h))
			if err != nil {
				t.Fatal(err)
			}
			if l, _, err = l.Count(h, own[h].Statement(nil, nil), genOf(l.Generation.Number+1)); err != nil && h.Region != "a" {
				t.Fatal(err)
			}
		}
	}
	if held := heldBy(l, 2); held["a"] != 300 || steps > 30 {
		t.Fatalf("after %d steps %v", steps, held)
	}
	if held := heldBy(l, 3); held["a"] != 50 || held["b"] != 50 {
		t.Fatalf("the next period has %v: its base must not be touched", held)
	}
}

// Those that cannot be asked, those that were given a moment ago, and those that need it themselves keep what they have;
// so does everybody his min.
func TestDemandAsksOnlyWhoCanGive(t *testing.T) {
	full := func(p Policy) Ledger {
		l := demandLedger(30, p)
		for i := range l.Entries[0].Allocations {
			l.Entries[0].Allocations[i].Granted, l.Entries[0].Allocations[i].Target = 10, 10
		}
		return l
	}
	hungry := func(s []Seeker) { s[0].Used, s[0].Unmet = 10, 8 }
	for name, c := range map[string]struct {
		policy Policy
		change func(s []Seeker)
		want   map[string]int64
	}{
		"idle":              {Policy{}, func([]Seeker) {}, map[string]int64{"a": 18, "b": 0, "c": 10}},
		"one is cut off":    {Policy{}, func(s []Seeker) { s[1].Askable = false }, map[string]int64{"a": 18, "b": 10, "c": 0}},
		"one is fresh":      {Policy{}, func(s []Seeker) { s[1].Fresh = true }, map[string]int64{"a": 18, "b": 10, "c": 0}},
		"one needs it":      {Policy{}, func(s []Seeker) { s[1].Rate, s[2].Fresh = 300, true }, map[string]int64{"a": 15, "b": 5, "c": 10}},
		"min":               {Policy{Min: map[string]int64{"b": 7, "c": 9}}, func([]Seeker) {}, map[string]int64{"a": 14, "b": 7, "c": 9}},
		"max":               {Policy{Max: map[string]int64{"a": 12}}, func([]Seeker) {}, map[string]int64{"a": 12, "b": 0, "c": 10}},
		"it used all of it": {Policy{}, func(s []Seeker) { s[1].Used, s[2].Used = 10, 10 }, nil},
		"nobody can":        {Policy{}, func(s []Seeker) { s[1].Askable, s[2].Askable = false, false }, nil},
	} {
		l := full(c.policy)
		next, changed, err := l.Allot(2, seekersOf(func(s []Seeker) { hungry(s); c.change(s) }), genOf(2))
		if err != nil || changed != (c.want != nil) {
			t.Errorf("%s: %v, %v", name, changed, err)
			continue
		}
		if c.want == nil {
			continue
		}
		// While what was asked for is on its way, nothing is written.
		_, again, err := next.Allot(2, seekersOf(func(s []Seeker) { hungry(s); c.change(s); s[1].Fresh, s[2].Fresh = true, true }), genOf(3))
		if again || err != nil {
			t.Errorf("%s: the same once more: %v, %v", name, again, err)
		}
		if got := targetsOf(next, 2); !maps.Equal(got, c.want) {
			t.Errorf("%s: targets %v, want %v", name, got, c.want)
		}
		if held := heldBy(next, 2); held["a"] != 10 || held["b"] != 10 {
			t.Errorf("%s: held %v before anybody has returned", name, held)
		}
	}
}

// At the end of a period, when nothing is left, asking must cost nothing: no write that changes nothing, and no permit
// that wanders between regions that all need it.
func TestDemandEndsWithoutStorm(t *testing.T) {
	l := demandLedger(30, Policy{})
	writes := 0
	for range 200 {
		held := heldBy(l, 2)
		next, changed, err := l.Allot(2, seekersOf(func(s []Seeker) {
			for i := range s {
				s[i].Used, s[i].Rate, s[i].Unmet = held[s[i].Region], 600, 3
			}
		}), genOf(l.Generation.Number+1))
		if err != nil {
			t.Fatal(err)
		}
		if l = next; changed {
			writes++
		}
	}
	if l.Unallocated(2) != 0 || writes > 10 {
		t.Fatalf("%d writes, %d unallocated", writes, l.Unallocated(2))
	}
}

// A manual move would be undone by the next chunk, so it is refused, with what to set instead.
func TestDemandRefusesMoves(t *testing.T) {
	_, err := demandLedger(30, Policy{}).Move(threeHolders[0], threeHolders[1], 1, 0, genOf(2))
	if err == nil || !strings.Contains(err.Error(), "min") || !strings.Contains(err.Error(), "max") {
		t.Fatal(err)
	}
}

// Periods that have not begun follow what was seen, and small differences cost no write.
func TestRebase(t *testing.T) {
	m := Members{Regions: []string{"a", "b", "c"}, Holders: threeHolders, Seen: map[string]int64{"c": 1000}}
	l := demandLedger(300, Policy{})
	next, changed, err := l.Rebase(demandBudget(300, Policy{}), 2, m, genOf(2))
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := targetsOf(next, 4); got["c"] < 120 || got["a"] > 20 {
		t.Fatalf("targets %v", got)
	}
	if got := targetsOf(next, 1); got["c"] != 50 {
		t.Fatalf("a period that has begun got %v", got)
	}
	if _, changed, _ = next.Rebase(demandBudget(300, Policy{}), 3, m, genOf(3)); changed {
		t.Fatal("changed again, to the same")
	}
}

// A region that drained while a term was opened is not among those that the term names. Once it went on, its min is its own.
func TestRebaseKeepsMinOfWhoCameLater(t *testing.T) {
	policy := Policy{Min: map[string]int64{"c": 30}}
	l := demandLedger(300, policy)
	l.Regions = []string{"a", "b"}
	m := Members{Regions: []string{"a", "b", "c"}, Holders: threeHolders, Seen: map[string]int64{"a": 1000}}
	next, changed, err := l.Rebase(demandBudget(300, policy), 2, m, genOf(2))
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if got := targetsOf(next, 4); got["c"] != 30 {
		t.Fatalf("targets %v", got)
	}
}

// drawSeekers makes hints, right or wrong: what a replica heard may be of any age.
func (w *ledgerWorld) drawSeekers(t *rapid.T) []Seeker {
	var list []Seeker
	for _, h := range w.members.Holders {
		list = append(list, Seeker{
			Holder: h, Askable: rapid.Bool().Draw(t, "askable"), Fresh: rapid.IntRange(0, 3).Draw(t, "fresh") == 0, Used: rapid.Int64Range(0, 12).Draw(t, "used"),
			Rate: rapid.Int64Range(0, 400).Draw(t, "rate"), Unmet: rapid.Int64Range(0, 9).Draw(t, "unmet"),
		})
	}
	return list
}

func (w *ledgerWorld) allot(t *rapid.T) {
	i, seekers := rapid.IntRange(0, 4).Draw(t, "period"), w.drawSeekers(t)
	before := w.ledger
	next, changed, err := w.ledger.Allot(i, seekers, w.next())
	if err != nil {
		t.Fatal(err)
	}
	if !changed {
		return
	}
	p := w.ledger.Policy
	for _, s := range seekers {
		var was, is Allocation
		b, n := before.EntryAt(i), next.EntryAt(i)
		if a := b.find(s.Holder, General); a != nil {
			was = *a
		}
		if a := n.find(s.Holder, General); a != nil {
			is = *a
		}
		most, bounded := p.Max[s.Region]
		lowered := is.Target < min(was.Target, was.Held())
		switch {
		case lowered && (!s.Askable || s.Fresh):
			t.Fatalf("%s was asked to return, and could not be: %+v became %+v", s.Region, was, is)
		case lowered && is.Target < p.Min[s.Region]:
			t.Fatalf("%s was brought below its min: %+v became %+v", s.Region, was, is)
		case bounded && is.Target > was.Target && is.Target > most:
			t.Fatalf("%s was brought above its max: %+v became %+v", s.Region, was, is)
		}
	}
	for n := range next.Periods.Len() {
		if n != i && !maps.Equal(targetsOf(before, n), targetsOf(next, n)) {
			t.Fatalf("period %d was changed with period %d", n, i)
		}
	}
	w.change(next)
}

// The same promises as under any other policy: whatever the hints say, and whatever becomes of the messages, nobody spends
// what another has, and no permit is lost.
func TestDemandUnderAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newLedgerWorld(t)
		*w.budget.Limit = rapid.Int64Range(4, 40).Draw(t, "the limit")
		w.budget.Allocation = Policy{
			Policy: PolicyDemand, Min: map[string]int64{"b": rapid.Int64Range(0, 3).Draw(t, "min")}, Max: map[string]int64{"c": rapid.Int64Range(3, 20).Draw(t, "max")},
		}
		w.refollow()
		t.Repeat(map[string]func(*rapid.T){
			"":      w.check,
			"allot": w.allot,
			"more":  w.allot,
			"limit": func(t *rapid.T) {
				*w.budget.Limit = rapid.Int64Range(3, 40).Draw(t, "limit")
				w.refollow()
			},
			"rebase": func(t *rapid.T) {
				m := w.members
				m.Seen = map[string]int64{"a": rapid.Int64Range(0, 50).Draw(t, "seen a"), "c": rapid.Int64Range(0, 50).Draw(t, "seen c")}
				next, changed, err := w.ledger.Rebase(w.budget, w.running+1, m, w.next())
				if err == nil && changed {
					w.change(next)
				} else if err != nil && !errors.Is(err, ErrTooManyEntries) {
					t.Fatal(err)
				}
			},
			"grant": func(t *rapid.T) {
				o := w.someone(t)
				if list := w.grants[o.holder]; len(list) > 0 {
					w.deliver(o, rapid.SampledFrom(list).Draw(t, "grant"))
				}
			},
			"spend": func(t *rapid.T) {
				w.spend(w.someone(t), rapid.IntRange(0, 4).Draw(t, "period"), rapid.Int64Range(1, 8).Draw(t, "units"))
			},
			"count": func(t *rapid.T) {
				o := w.someone(t)
				w.state(o)
				w.count(o, rapid.SampledFrom(w.statements[o.holder]).Draw(t, "statement"))
			},
			"exchange": func(t *rapid.T) {
				o := w.someone(t)
				w.deliver(o, w.ledger.GrantTo(o.holder))
				w.count(o, w.state(o))
			},
			"next period": func(*rapid.T) { w.running = min(w.running+1, 4) },
			"new incarnation": func(t *rapid.T) {
				if len(w.owners) < 6 {
					w.members.Number++
					w.join(rapid.SampledFrom(w.members.Regions).Draw(t, "region"))
					w.refollow()
				}
			},
		})
		w.catchUp()
		w.check(t)
	})
}
