package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Two periods of a minute, and a third that no test owner was granted anything of.
const (
	firstMinute  Instant = 6000
	secondMinute Instant = 6060
)

// granted is a budget of a test owner, with what the owner holds of it in each period.
type granted struct {
	Budget
	units int64
}

func testBudget(name, unit string, limit int64) Budget {
	return Budget{
		Name: name, Unit: unit, Limit: units(limit), Window: Window{Every: Minute},
		Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"here": 1, "there": 1}},
	}
}

func testTerm(b Budget) Term {
	return Term{
		Budget: b.Name, Template: b.IsTemplate(), Policy: b.Allocation, Regions: []string{"here", "there"},
		Periods: Periods{First: firstMinute, Step: 60, Count: 3},
	}
}

// newOwner is an owner in region "here", one second into the first period, whose rows of the first two periods are locked.
func newOwner(budgets ...granted) *Locked {
	l := &Locked{
		Now: int64(firstMinute+1) * 1_000_000, Incarnation: "one", Usage: map[UsageKey]*Usage{}, Full: map[UsageKey]bool{},
		IDs: map[IDKey]*Admission{}, LookedUp: func(IDKey) bool { return true }, Elsewhere: map[string]Elsewhere{},
		ChangedUsage: map[UsageKey]bool{}, Inserted: map[IDKey]bool{}, Updated: map[IDKey]bool{},
	}
	var configured []ConfiguredBudget
	var terms []Term
	for _, g := range budgets {
		configured = append(configured, ConfiguredBudget{Budget: g.Budget, Version: 1})
		terms = append(terms, testTerm(g.Budget))
		instance := ""
		if g.IsTemplate() {
			instance = "kim"
		}
		for _, period := range []Instant{firstMinute, secondMinute} {
			k := UsageKey{Budget: g.Name, Instance: instance, Period: period, Class: General}
			l.Usage[k] = &Usage{
				UsageKey: k, Until: period + 60, Term: firstMinute, Template: g.IsTemplate(), Version: 1, Generation: 1,
				Granted: g.units, Target: g.units,
			}
		}
	}
	l.Catalogue = NewCatalogue("here").With(1, configured, terms, nil)
	return l
}

func request(op Op, id string, costs map[string]int64) Request {
	return Request{
		Op: op, Key: IDKey{Credential: "gateway", Tenant: "acme", ID: id}, Labels: Labels{"tenant": "acme", "caller": "kim"}, Costs: costs,
	}
}

func requests(n int64) map[string]int64 { return map[string]int64{"requests": n} }

// ask plans and decides one request.
func (l *Locked) ask(op Op, id string, costs map[string]int64) Decision {
	return l.put(request(op, id, costs))
}

func (l *Locked) put(r Request) Decision {
	out := l.Decide(l.Catalogue.Plan(r, l.now()))
	if out.Again {
		return Decision{Reason: "again"}
	}
	return out.Decision
}

// account is spent/reserved/overdraft of a budget's first period.
func (l *Locked) account(budget string) string {
	for k, u := range l.Usage {
		if k.Budget == budget && k.Period == firstMinute {
			return fmt.Sprintf("%d/%d/%d", u.Spent, u.Reserved, u.Overdraft)
		}
	}
	return "none"
}

// everything is all that a transaction would store, in words, to see that nothing changed.
func (l *Locked) everything() string {
	var lines []string
	for _, u := range l.Usage {
		lines = append(lines, fmt.Sprintf("%+v", *u))
	}
	for _, a := range l.IDs {
		lines = append(lines, fmt.Sprintf("%+v", *a))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func termOf(budget string, periods Periods) Term {
	return Term{Budget: budget, Policy: Policy{Policy: PolicyFixed}, Regions: []string{"here", "there"}, Periods: periods}
}

// A catalogue is shared by requests in flight, so With must not change the one it starts from. If this fails a request is
// decided on half of a change.
func TestWithLeavesTheOldCatalogue(t *testing.T) {
	a, b := testBudget("a", "requests", 1), testBudget("b", "requests", 2)
	one := NewCatalogue("here").With(1, []ConfiguredBudget{{Budget: a, Version: 1}}, []Term{testTerm(a)}, nil)
	raised := a
	raised.Limit = units(9)
	second := testTerm(a)
	second.Periods.First += 180
	two := one.With(2, []ConfiguredBudget{{Budget: raised, Version: 2}, {Budget: b, Version: 1}}, []Term{second, testTerm(b)}, nil)
	three := two.With(3, []ConfiguredBudget{{Budget: raised, Version: 3, Deleted: true}}, nil, []ShareRef{{"a", firstMinute}, {"z", 5}})

	for i, c := range []struct {
		*Catalogue
		budgets, hits, terms int
		most                 int64
		number               int64
	}{{one, 1, 1, 1, 1, 1}, {two, 2, 2, 2, 9, 2}, {three, 2, 1, 1, 0, 3}} {
		plan := c.Plan(request(Spend, "x", requests(1)), firstMinute)
		if len(c.Budgets()) != c.budgets || len(plan.Lines) != c.hits || len(c.Terms("a")) != c.terms || c.limit(UsageKey{Budget: "a"}) != c.most || c.Number != c.number || c.Region != "here" {
			t.Errorf("catalogue %d: %d budgets, %d hit, %d terms of a, limit %d", i+1, len(c.Budgets()), len(plan.Lines), len(c.Terms("a")), c.limit(UsageKey{Budget: "a"}))
		}
	}
	for c, want := range map[*Catalogue][]Instant{one: {firstMinute}, two: {firstMinute, firstMinute + 180}, three: {firstMinute + 180}} {
		var starts []Instant
		for _, t := range c.Terms("a") {
			starts = append(starts, t.Periods.Start())
		}
		if !slices.Equal(starts, want) {
			t.Errorf("catalogue %d has terms of a from %v, want %v", c.Number, starts, want)
		}
	}
	if got, ok := three.Budget("a"); !ok || !got.Deleted || got.Version != 3 {
		t.Errorf("the deleted budget is remembered as %+v", got)
	}
	if empty := NewCatalogue("here").With(0, nil, nil, []ShareRef{{"a", 0}}); empty.limit(UsageKey{Budget: "a"}) != 0 || len(empty.Terms("a")) != 0 {
		t.Error("an empty catalogue is not empty")
	}
	// A term that is sent again takes the place of the one with its start.
	if again := two.With(4, nil, []Term{second}, nil); len(again.Terms("a")) != 2 || len(two.Terms("a")) != 2 {
		t.Errorf("sent again there are %d terms", len(again.Terms("a")))
	}
}

// The period is searched in the terms that were opened, whatever order they came in, and nowhere else. If this fails a
// request is charged to a period that the ledger never granted, or refused in one that it did.
func TestPeriodAcrossTerms(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var periods []Period
		var terms []Term
		at := Instant(rapid.Int64Range(-500, 500).Draw(t, "start"))
		for range rapid.IntRange(0, 4).Draw(t, "terms") {
			at += Instant(rapid.SampledFrom([]int64{0, 0, 0, 7}).Draw(t, "gap"))
			p := Periods{Instants: []Instant{at}}
			for range rapid.IntRange(1, 3).Draw(t, "periods") {
				next := at + Instant(rapid.Int64Range(1, 30).Draw(t, "length"))
				periods = append(periods, Period{at, next})
				p.Instants = append(p.Instants, next)
				at = next
			}
			terms = append(terms, termOf("a", p))
		}
		if len(terms) > 0 {
			terms = rapid.Permutation(terms).Draw(t, "order")
		}
		c := NewCatalogue("here").With(1, nil, terms, nil)
		for now := Instant(-510); now < at+10; now++ {
			i := slices.IndexFunc(periods, func(p Period) bool { return p.Contains(now) })
			term, period, ok := c.period("a", now)
			var covered Instant
			if i >= 0 {
				if period != periods[i] || !slices.ContainsFunc(terms, func(t Term) bool { return t.Periods.Start() == term.Periods.Start() }) {
					t.Fatalf("%d lies in %v, found in %v", now, periods[i], period)
				}
				covered = periods[i].End
				for _, p := range periods[i+1:] {
					if p.Start != covered {
						break
					}
					covered = p.End
				}
			}
			if ok != (i >= 0) || c.CoveredUntil("a", now) != covered {
				t.Fatalf("at %d: found %v, covered until %d, want %d of %v", now, ok, c.CoveredUntil("a", now), covered, periods)
			}
		}
	})
}

// A budget without end is covered for ever.
func TestCoveredForEver(t *testing.T) {
	c := NewCatalogue("here").With(1, nil, []Term{termOf("a", Periods{Instants: []Instant{10, Never}})}, nil)
	if got := c.CoveredUntil("a", 11); got != Never {
		t.Errorf("covered until %s", got)
	}
	if c.CoveredUntil("a", 9) != 0 || c.CoveredUntil("b", 11) != 0 {
		t.Error("covered before the term began, or without one")
	}
}

// An instance's home is that of its term: by the regions and the policy at its opening. If this fails two regions that
// know different versions of the budget both spend the whole limit of one instance.
func TestHomeIsTheTerms(t *testing.T) {
	b := testBudget("a/{caller}", "requests", 10)
	b.Allocation = Policy{Policy: PolicyHome, HashOf: "caller"}
	term := testTerm(b)
	changed := b
	changed.Allocation = Policy{Policy: PolicyHome, Region: "nowhere"}
	catalogues := map[string]*Catalogue{}
	for _, region := range []string{"here", "there", "late"} {
		catalogues[region] = NewCatalogue(region).With(1, []ConfiguredBudget{{Budget: b, Version: 1}}, []Term{term}, nil)
		if region == "there" {
			catalogues[region] = catalogues[region].With(2, []ConfiguredBudget{{Budget: changed, Version: 2}}, nil, nil)
		}
	}
	seen := map[string]int{}
	for i := range 40 {
		r := request(Spend, "x", requests(1))
		r.Labels["caller"] = fmt.Sprint("kim", i)
		home, _ := b.Home("", r.Labels, term.Regions)
		seen[home]++
		for region, c := range catalogues {
			line := c.Plan(r, firstMinute).Lines[0]
			if (line.Problem == "") != (region == home) || line.Problem == NotHome && line.Home != home {
				t.Fatalf("%s is at home in %s; %s says %q, home %q", line.Key(), home, region, line.Problem, line.Home)
			}
		}
	}
	if len(seen) != 2 {
		t.Errorf("homes are %v", seen)
	}
	// Where no term says it, the newest policy may name another region, but never makes this one the home.
	r := request(Spend, "x", requests(1))
	if line := catalogues["there"].Plan(r, firstMinute+1000).Lines[0]; line.Problem != NotHome || line.Home != "nowhere" {
		t.Errorf("without a term: %q, home %q", line.Problem, line.Home)
	}
	if line := catalogues["here"].Plan(r, firstMinute+1000).Lines[0]; line.Problem != NoAllocation {
		t.Errorf("without a term, by hash: %q", line.Problem)
	}
}

// A label that names no region of the term leads nowhere: what a caller sent is never told as a place to go to, and no
// region sends callers to itself.
func TestHomeFromLabel(t *testing.T) {
	b := testBudget("a/{caller}", "requests", 10)
	b.Allocation = Policy{Policy: PolicyHome, RegionFrom: "caller"}
	for _, c := range []struct {
		region, label string
		problem       Reason
		home          string
	}{
		{"here", "here", "", ""},
		{"here", "there", NotHome, "there"},
		{"here", "evil.example", NotHome, ""},
		{"late", "late", NotHome, ""}, // registered after the term was opened
	} {
		catalogue := NewCatalogue(c.region).With(1, []ConfiguredBudget{{Budget: b, Version: 1}}, []Term{testTerm(b)}, nil)
		r := request(Spend, "x", requests(1))
		r.Labels["caller"] = c.label
		l := newOwner()
		l.Catalogue = catalogue
		line := catalogue.Plan(r, firstMinute).Lines[0]
		if line.Problem != c.problem || line.Home != c.home {
			t.Errorf("label %q in region %s: %q, home %q", c.label, c.region, line.Problem, line.Home)
		}
		if d := l.put(r); c.problem != "" && (d.Reason != c.problem || d.Home != c.home || d.Detail == "") {
			t.Errorf("label %q in region %s: %s, home %q, %q", c.label, c.region, d.Reason, d.Home, d.Detail)
		}
		if line := catalogue.Plan(r, firstMinute+1000).Lines[0]; line.Problem != NoAllocation {
			t.Errorf("label %q without a term: %q, home %q", c.label, line.Problem, line.Home)
		}
	}
}

// What is wrong with a request is found before any counter. If this fails a request is charged to fewer budgets than
// apply to it.
func TestPlan(t *testing.T) {
	plain, tokens, template := testBudget("a", "requests", 10), testBudget("b", "tokens", 10), testBudget("c/{user}", "requests", 10)
	tokens.Match = map[string]string{"route": "llm"}
	template.Match = map[string]string{"route": "app"}
	unchecked := testBudget("d/{user}", "requests", 10)
	unchecked.MissingLabel = MissingLabelUnchecked
	unchecked.Match = map[string]string{"route": "free"}
	var all []ConfiguredBudget
	var terms []Term
	for _, b := range []Budget{plain, tokens, template, unchecked} {
		all = append(all, ConfiguredBudget{Budget: b, Version: 3})
		terms = append(terms, testTerm(b))
	}
	c := NewCatalogue("here").With(1, all, terms, nil)
	for _, w := range []struct {
		labels  Labels
		costs   map[string]int64
		refusal Reason
		blames  string
		lines   map[string]int64
	}{
		{Labels{}, nil, "", "", map[string]int64{"a": 1}},
		{Labels{}, requests(4), "", "", map[string]int64{"a": 4}},
		{Labels{"route": "llm"}, nil, CostUnknown, "b", nil},
		{Labels{"route": "llm"}, map[string]int64{"tokens": -1}, CostUnknown, "b", nil},
		{Labels{"route": "llm"}, map[string]int64{"tokens": 0}, "", "", map[string]int64{"a": 1, "b": 0}},
		{Labels{"route": "app"}, nil, LabelMissing, "c/{user}", nil},
		{Labels{"route": "app", "user": "kim"}, nil, "", "", map[string]int64{"a": 1, "c/{user} [kim]": 1}},
		{Labels{"route": "free"}, nil, "", "", map[string]int64{"a": 1}},
		{Labels{"route": "free", "user": "k/m"}, nil, "", "", map[string]int64{"a": 1, "d/{user} [k%2Fm]": 1}},
	} {
		p := c.Plan(Request{Op: Spend, Labels: w.labels, Costs: w.costs}, firstMinute+59)
		lines := map[string]int64{}
		for _, l := range p.Lines {
			lines[l.Key()] = l.Cost
			if l.Period != firstMinute || l.Until != secondMinute || l.Term != firstMinute || l.Version != 3 || l.Class != General {
				t.Errorf("%v: line %+v", w.labels, l)
			}
		}
		if p.Refusal != w.refusal || p.Blames != w.blames || !maps.Equal(lines, w.lines) || len(p.Keys()) != len(lines) || w.refusal != "" && p.Detail == "" {
			t.Errorf("%v %v: %q of %q, %v; want %q of %q, %v", w.labels, w.costs, p.Refusal, p.Blames, lines, w.refusal, w.blames, w.lines)
		}
	}
	if p := NewCatalogue("here").Plan(Request{Op: Spend}, firstMinute); p.Refusal != NoBudget {
		t.Errorf("no budgets at all: %q", p.Refusal)
	}
	if p := c.Plan(Request{Op: Spend}, firstMinute-1); p.Lines[0].Problem != NoAllocation || len(p.Keys()) != 0 {
		t.Errorf("before the first term: %+v", p.Lines[0])
	}
	for _, op := range []Op{Settle, Release, Extend, Lapse} {
		if p := c.Plan(Request{Op: op}, firstMinute); len(p.Lines) != 0 || p.Refusal != "" {
			t.Errorf("%s: lines %v, %q", op, p.Lines, p.Refusal)
		}
	}
}

// Exactly 8 budgets may be hit; one more is refused, whatever else is wrong with its cost.
func TestPlanBoundsBudgets(t *testing.T) {
	var all []ConfiguredBudget
	for i := range 9 {
		all = append(all, ConfiguredBudget{Budget: testBudget(fmt.Sprint("z", i), "requests", 1)})
		c := NewCatalogue("here").With(1, all, nil, nil)
		p := c.Plan(Request{Op: Spend}, firstMinute)
		if (p.Refusal == TooManyBudgets) != (i == 8) || i < 8 && len(p.Lines) != i+1 {
			t.Errorf("%d budgets: %q, %d lines", i+1, p.Refusal, len(p.Lines))
		}
	}
}
