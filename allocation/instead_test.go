package allocation

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// An override takes the place of what it stands in for and of nothing else, and never leaves a request without both. If this fails
// a tenant's larger budget is capped by the default, or a typing error makes a caller unlimited.
func TestInsteadOf(t *testing.T) {
	budget := func(name string, match map[string]string, instead string) Budget {
		b := testBudget(name, "requests", 100)
		b.Match, b.InsteadOf = match, instead
		return b
	}
	acme, acmeTool := map[string]string{"tenant": "acme"}, map[string]string{"tenant": "acme", "tool": "search"}
	base := []Budget{budget("calls/{caller}", nil, ""), budget("all", nil, "")}
	for name, c := range map[string]struct {
		more   []Budget
		labels Labels
		want   string // the budgets that are charged, or the label that is missing
	}{
		"the default":                     {nil, Labels{"caller": "kim"}, "all calls/{caller}"},
		"an override":                     {[]Budget{budget("acme/{caller}", acme, "calls/{caller}")}, Labels{"caller": "kim", "tenant": "acme"}, "acme/{caller} all"},
		"of another tenant":               {[]Budget{budget("acme/{caller}", acme, "calls/{caller}")}, Labels{"caller": "kim", "tenant": "b"}, "all calls/{caller}"},
		"an override of overrides":        {[]Budget{budget("acme/{caller}", acme, "calls/{caller}"), budget("acme/search", acmeTool, "acme/{caller}")}, Labels{"caller": "kim", "tenant": "acme", "tool": "search"}, "acme/search all"},
		"both of one default":             {[]Budget{budget("x", acme, "calls/{caller}"), budget("y", acmeTool, "calls/{caller}")}, Labels{"caller": "kim", "tenant": "acme", "tool": "search"}, "all x y"},
		"each of the other":               {[]Budget{budget("x", acme, "y"), budget("y", acme, "x")}, Labels{"caller": "kim", "tenant": "acme"}, "all calls/{caller} x y"},
		"no narrower match":               {[]Budget{budget("x", acme, "y"), budget("y", map[string]string{"tool": "search"}, "")}, Labels{"caller": "kim", "tenant": "acme", "tool": "search"}, "all calls/{caller} x y"},
		"of one that is not there":        {[]Budget{budget("x", acme, "gone")}, Labels{"caller": "kim", "tenant": "acme"}, "all calls/{caller} x"},
		"the default's label is missing":  {nil, Labels{}, "missing caller"},
		"the override needs none":         {[]Budget{budget("acme", acme, "calls/{caller}")}, Labels{"tenant": "acme"}, "acme all"},
		"the override's label is missing": {[]Budget{budget("acme/{user}", acme, "calls/{caller}")}, Labels{"tenant": "acme", "caller": "kim"}, "missing user"},
	} {
		all := append(append([]Budget{}, base...), c.more...)
		say := func(hits []Hit, missing *MissingLabel) string {
			if missing != nil {
				return "missing " + missing.Label
			}
			var names []string
			for _, h := range hits {
				names = append(names, h.Budget.Name)
			}
			return strings.Join(names, " ")
		}
		if got := say(MatchBudgets(all, c.labels)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := say(NewMatchIndex(all).Match(c.labels)); got != c.want {
			t.Errorf("%s, by the index: %s, want %s", name, got, c.want)
		}
	}
	for field, change := range map[string]func(*Budget){
		"another unit": func(b *Budget) { b.Unit = "tokens" },
		"in shadow":    func(b *Budget) { b.Enforcement = Shadow },
		"metered":      func(b *Budget) { b.Enforcement = Meter },
	} {
		b := budget("acme/{caller}", acme, "calls/{caller}")
		change(&b)
		if hits, _ := MatchBudgets(append(base, b), Labels{"caller": "kim", "tenant": "acme"}); len(hits) != 3 {
			t.Errorf("%s: %d budgets are charged, not 3", field, len(hits))
		}
	}
}

// However overrides name each other, what one of two budgets would refuse is refused: a request that hits any enforced budget is
// left with one. If this fails a circle of overrides is no limit at all.
func TestInsteadOfLeavesOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := []string{"a", "b", "c"}
		var all []Budget
		for i := range rapid.IntRange(1, 6).Draw(t, "budgets") {
			b := testBudget(fmt.Sprint("n", i), "requests", 10)
			b.InsteadOf = fmt.Sprint("n", rapid.IntRange(0, 5).Draw(t, "of"))
			b.Match = map[string]string{}
			for _, l := range labels {
				if rapid.Bool().Draw(t, l) {
					b.Match[l] = "x"
				}
			}
			all = append(all, b)
		}
		plain := make([]Budget, len(all))
		for i, b := range all {
			b.InsteadOf, b.Match = "", maps.Clone(b.Match)
			plain[i] = b
		}
		sent := Labels{"z": "z"}
		for _, l := range labels {
			if rapid.Bool().Draw(t, "sent "+l) {
				sent[l] = "x"
			}
		}
		before, _ := MatchBudgets(plain, sent)
		after, _ := MatchBudgets(all, sent)
		if len(before) > 0 && len(after) == 0 {
			t.Fatalf("of %d budgets none is charged", len(before))
		}
	})
}

// Nobody sizes what is shared as what each caller has. If this fails a file may say one and mean the other.
func TestCounted(t *testing.T) {
	for name, want := range map[string]string{"a": "shared", "a/{caller}": "each caller", "a/{tenant}/{caller}": "each tenant and caller"} {
		b := testBudget(name, "requests", 100)
		if b.CountedBy() != want {
			t.Errorf("%s is counted by %s", name, b.CountedBy())
		}
		for _, counted := range []string{"shared", "each caller", "each tenant and caller", "mine"} {
			b.Counted = counted
			err := b.Validate()
			if (err == nil) != (counted == want) || err != nil && !strings.HasPrefix(err.Error(), "counted: ") {
				t.Errorf("%s, counted %s: %v", name, counted, err)
			}
		}
	}
	for _, b := range []Budget{{Name: "a", InsteadOf: "a", Match: map[string]string{"x": "y"}}, {Name: "a", InsteadOf: "b"}, {Name: "a", InsteadOf: "b c", Match: map[string]string{"x": "y"}}} {
		full := testBudget(b.Name, "requests", 100)
		full.InsteadOf, full.Match = b.InsteadOf, b.Match
		if err := full.Validate(); err == nil || !strings.HasPrefix(err.Error(), "instead_of: ") {
			t.Errorf("%+v: %v", b, err)
		}
	}
}

// A drill spends what is marked. If this fails, a mark on a budget that everybody shares lets one exhaust it.
func TestSynthetic(t *testing.T) {
	b := testBudget("drill/exports", "requests", 100)
	for _, c := range []struct {
		match map[string]string
		fits  bool
	}{{nil, false}, {map[string]string{"capability": "export"}, false}, {map[string]string{"tenant": "drill"}, true}} {
		b.Synthetic, b.Match = true, c.match
		if err := b.Validate(); (err == nil) != c.fits || err != nil && !strings.Contains(err.Error(), "synthetic: needs a tenant") {
			t.Errorf("%v: %v", c.match, err)
		}
	}
	parsed, err := ParseBudget([]byte(`{"budget":"drill/exports","unit":"requests","limit":1,"window":{"every":"1m"},"match":{"tenant":"drill"},"synthetic":true,"allocation":{"policy":"demand"}}`))
	if err != nil || !parsed.Synthetic {
		t.Errorf("%+v %v", parsed, err)
	}
}
