package allocation

import (
	"strings"
	"testing"
)

// What was spent elsewhere before a budget was declared must not be spent again, and must be gone with the first period.
func TestOpeningSpent(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy Policy
		first  map[string]int64 // granted in the first period
		later  map[string]int64
		free   int64 // unallocated in the first period
	}{
		{"fixed", Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 1, "b": 1}}, map[string]int64{"a": 400, "b": 400}, map[string]int64{"a": 1000, "b": 1000}, 0},
		{"demand", Policy{Policy: PolicyDemand}, map[string]int64{"a": 200, "b": 200}, map[string]int64{"a": 500, "b": 500}, 400},
		{"home", Policy{Policy: PolicyHome, Region: "b"}, map[string]int64{"b": 800}, map[string]int64{"b": 2000}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			limit := int64(2000)
			b := Budget{Name: "x", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, OpeningSpent: 1200, Allocation: c.policy}
			if err := b.Validate(); err != nil {
				t.Fatal(err)
			}
			m := Members{Regions: []string{"a", "b"}, Holders: []Holder{{"a", "a1"}, {"b", "b1"}}}
			l := OpenLedger(b, 1, Periods{First: 600, Step: 60, Count: 5}, m, genOf(1))
			for i, want := range []map[string]int64{c.first, c.later} {
				for _, a := range l.EntryAt(i).Allocations {
					if a.Granted != want[a.Region] {
						t.Errorf("period %d: %s was granted %d, not %d", i, a.Region, a.Granted, want[a.Region])
					}
				}
			}
			if l.Unallocated(0) != c.free || l.Overcommitted(0) != 0 {
				t.Errorf("%d unallocated, %d overcommitted", l.Unallocated(0), l.Overcommitted(0))
			}
			// A region that asks is never given what was spent before.
			for range 50 {
				next, changed, err := l.Allot(0, []Seeker{{Holder: m.Holders[0], Askable: true, Used: 1 << 40, Unmet: 1 << 40}}, genOf(2))
				if err != nil {
					t.Fatal(err)
				}
				if !changed {
					break
				}
				l = next
			}
			line := Verify(Books{Earlier: []Ledger{l}, Later: []Ledger{l}, Now: 610})
			if first := line.Lines[0]; !line.Conserved() || first.Periods != 1 || first.Spent != 1200 || first.OpeningSpent != 1200 || first.Stranded+first.Unallocated != 800 {
				t.Errorf("verify: %+v %v", first, line.Violations)
			}
			if second := line.Lines[1]; second.Spent != 0 || second.Stranded+second.Unallocated != 2000 {
				t.Errorf("verify: %+v", second)
			}
			// Lowered below what is out: that is overcommitted, and nothing is granted.
			*b.Limit = 1000
			l, err := l.Follow(b, 2, 0, m, genOf(3))
			if err != nil || l.Conserved() != nil || l.Unallocated(0) != 0 || l.Overcommitted(0) < 200 {
				t.Errorf("lowered: %v %v, %d unallocated, %d overcommitted", err, l.Conserved(), l.Unallocated(0), l.Overcommitted(0))
			}
		})
	}
}

// Verify trusts no ledger: one that holds more than the limit beside what was spent before is told.
func TestOpeningSpentIsJudged(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "x", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, OpeningSpent: 60, Allocation: Policy{Policy: PolicyHome, Region: "a"}}
	h := Holder{"a", "a1"}
	sound := OpenLedger(b, 1, Periods{First: 600, Step: 60, Count: 3}, Members{Regions: []string{"a"}, Holders: []Holder{h}}, genOf(1))
	for name, spoil := range map[string]func(*Ledger){
		"more is out":         func(l *Ledger) { l.Entries[0].Allocations[0].Granted += 5 },
		"in all periods":      func(l *Ledger) { l.Entries = l.Entries[:1] },
		"in a later period":   func(l *Ledger) { l.Entries[1].OpeningSpent = 1 },
		"of a template":       func(l *Ledger) { l.Template = true },
		"less than none":      func(l *Ledger) { l.Entries[0].OpeningSpent = -1 },
		"it grew by somebody": func(l *Ledger) { l.Entries[0].OpeningSpent += 5 },
	} {
		l := sound.cut(0)
		spoil(&l)
		if l.Conserved() == nil {
			t.Errorf("%s: conserved", name)
		}
	}
	if err := sound.Conserved(); err != nil {
		t.Error(err)
	}
	// The owner spent all of a limit of which 60 were gone: the cap is broken, whatever the ledger says.
	key := UsageKey{Budget: "x", Period: 600, Class: General}
	owner := OwnerAccount{Region: "a", Incarnation: "a1", Usage: []Usage{{UsageKey: key, Until: 660, Term: 600, Granted: 100, Spent: 41}}}
	var rules []string
	for _, v := range Verify(Books{Earlier: []Ledger{sound}, Later: []Ledger{sound}, Owners: []OwnerAccount{owner}, Now: 610}).Violations {
		rules = append(rules, v.Rule)
	}
	if !strings.Contains(strings.Join(rules, " "), RuleCap) {
		t.Errorf("violations of %v", rules)
	}
}

// A term that is opened after the first has the whole limit; a template's limit is per instance.
func TestOpeningSpentOnce(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "x", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, OpeningSpent: 60, Allocation: Policy{Policy: PolicyHome, Region: "a"}}
	m := Members{Regions: []string{"a"}, Holders: []Holder{{"a", "a1"}}}
	l := OpenLedger(b.Later(), 1, Periods{First: 600, Step: 60, Count: 3}, m, genOf(1))
	if l.EntryAt(0).OpeningSpent != 0 || l.EntryAt(0).Allocations[0].Granted != 100 {
		t.Errorf("%+v", l.Entries)
	}
	b.Name, b.Allocation = "x/{caller}", Policy{Policy: PolicyHome, HashOf: "caller"}
	if err := b.Validate(); err == nil || !strings.Contains(err.Error(), "opening_spent") {
		t.Errorf("a template: %v", err)
	}
	b.Name, b.Allocation, b.OpeningSpent = "x", Policy{Policy: PolicyHome, Region: "a"}, -1
	if err := b.Validate(); err == nil || !strings.Contains(err.Error(), "opening_spent") {
		t.Errorf("below 0: %v", err)
	}
}

// A term that etcd lost is made anew from what owners hold of it, and what was spent before it must be in there: else it is
// granted once more. It is the same whether the first to state it holds the first period or came later, and whether the
// term was opened anew without it.
func TestOpeningSpentSurvives(t *testing.T) {
	limit := int64(100)
	b := Budget{Name: "x", Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, OpeningSpent: 60, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 1, "b": 1}}}
	here, there := Holder{"a", "a1"}, Holder{"b", "b1"}
	periods := Periods{First: 600, Step: 60, Count: 5}
	l := OpenLedger(b, 1, periods, Members{Regions: []string{"a", "b"}, Holders: []Holder{here}}, genOf(1))
	l, err := l.Follow(b, 1, 1, Members{Number: 1, Regions: []string{"a", "b"}, Holders: []Holder{here, there}}, genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	mine, _, _ := Share{}.Apply(l.GrantTo(here))
	theirs, _, _ := Share{}.Apply(l.GrantTo(there))
	if mine.OpeningSpent != 60 || theirs.OpeningSpent != 60 {
		t.Errorf("the owners know of %d and %d", mine.OpeningSpent, theirs.OpeningSpent)
	}
	anew, err := OpenUnproven(b.Later(), 9, periods, Members{Regions: []string{"a", "b"}}, Standing{}, genOf(1))
	if err != nil {
		t.Fatal(err)
	}
	for name, base := range map[string]Ledger{"from the first period": RebuildLedger(mine, b.Unit), "from a later one": RebuildLedger(theirs, b.Unit), "opened anew": anew} {
		for _, o := range []struct {
			Holder
			Share
		}{{there, theirs}, {here, mine}} {
			if base, _, err = base.Reconcile(o.Holder, o.Share, o.Share.Statement(nil, nil), "new"); err != nil {
				t.Fatal(err)
			}
		}
		if base.EntryAt(0).OpeningSpent != 60 || base.EntryAt(1).OpeningSpent != 0 || base.Unallocated(0) > l.Unallocated(0) || base.Conserved() != nil {
			t.Errorf("%s: %+v, %v", name, base.Entries, base.Conserved())
		}
	}
}
