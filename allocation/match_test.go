package allocation

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func namedBudget(name string, match map[string]string) Budget {
	return Budget{Name: name, Match: match}
}

func drawMatches(t *rapid.T, most int) []Budget {
	var budgets []Budget
	for i := range rapid.IntRange(0, most).Draw(t, "budgets") {
		b := namedBudget(fmt.Sprintf("b%d", (i*7)%most), rapid.MapOfN(
			rapid.StringMatching(`[a-c]`), rapid.StringMatching(`[xyz]`), 0, 3).Draw(t, "match"))
		if rapid.IntRange(0, 4).Draw(t, "template") == 0 {
			b.Name += "/{" + rapid.StringMatching(`[a-d]`).Draw(t, "label") + "}"
			b.MissingLabel = rapid.SampledFrom([]string{"", MissingLabelUnchecked}).Draw(t, "missing")
		}
		budgets = append(budgets, b)
	}
	return budgets
}

// The index must never miss a budget that a look at all of them finds: a missed one is not enforced.
func TestMatchIndexFindsWhatAScanFinds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budgets := drawMatches(t, 20)
		labels := Labels(rapid.MapOf(rapid.StringMatching(`[a-e]`), rapid.StringMatching(`[xyz]`)).Draw(t, "labels"))
		wantHits, wantMissing := MatchBudgets(budgets, labels)
		hits, missing := NewMatchIndex(budgets).Match(labels)
		if !reflect.DeepEqual(hits, wantHits) || !reflect.DeepEqual(missing, wantMissing) {
			t.Fatalf("the index finds %v, %v; a scan %v, %v", hits, missing, wantHits, wantMissing)
		}
		if !slices.IsSortedFunc(hits, func(a, b Hit) int { return cmpNames(*a.Budget, *b.Budget) }) {
			t.Fatal("not in the order of names")
		}
	})
}

func cmpNames(a, b Budget) int {
	if a.Name < b.Name {
		return -1
	}
	return 1
}

// With a hundred thousand budgets a request must look at its own few only, also
// when all share a label.
func TestMatchIndexLooksAtFew(t *testing.T) {
	var budgets []Budget
	for i := range 100_000 {
		budgets = append(budgets, namedBudget(fmt.Sprintf("b%06d", i),
			map[string]string{"env": "prod", "tenant": fmt.Sprintf("t%d", i/2)}))
	}
	x := NewMatchIndex(budgets)
	for p, list := range x.byPair.all() {
		if len(list) > 2 {
			t.Errorf("%d budgets under %v", len(list), p)
		}
	}
	hits, _ := x.Match(Labels{"env": "prod", "tenant": "t77"})
	if len(hits) != 2 || hits[0].Budget.Name != "b000154" {
		t.Errorf("%d hits", len(hits))
	}
}

// A missing label is reported with the first budget by name, whatever the order
// of the list, so that every node gives one answer.
func TestMissingLabelIsTheFirst(t *testing.T) {
	budgets := []Budget{namedBudget("z/{a}", nil), namedBudget("m/{b}", nil), namedBudget("c", nil)}
	hits, missing := MatchBudgets(budgets, Labels{"x": "y"})
	if len(hits) != 1 || missing == nil || *missing != (MissingLabel{Budget: "m/{b}", Label: "b"}) {
		t.Errorf("%v, %v", hits, missing)
	}
	tooLong := Labels{"a": "1", "b": string(make([]byte, 200))}
	if _, missing = MatchBudgets(budgets, tooLong); missing == nil || !missing.TooLong {
		t.Errorf("too long: %v", missing)
	}
	if missing.String() == (MissingLabel{Budget: "m/{b}", Label: "b"}).String() {
		t.Error("absent and too long are told alike")
	}
}

// mostByTrying tries all values that any match asks for.
func mostByTrying(budgets []Budget) int {
	most := 0
	values := []string{"x", "y", "z"}
	for _, a := range values {
		for _, b := range values {
			for _, c := range values {
				n := 0
				for _, budget := range budgets {
					if hitBy(budget, Labels{"a": a, "b": b, "c": c}) {
						n++
					}
				}
				most = max(most, n)
			}
		}
	}
	return most
}

// A search that finds too few would let apply take budgets that requests then
// cannot pass; one that finds too many would refuse good ones.
func TestMostBudgetsHitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		budgets := drawMatches(t, 12)
		want := mostByTrying(budgets)
		most, example, names, decided := MostBudgetsHit(budgets, 100, 1_000_000)
		if most != want || !decided || len(names) != most || !slices.IsSorted(names) {
			t.Fatalf("%d (%v, %v), want %d", most, names, decided, want)
		}
		hits, missing := MatchBudgets(budgets, example)
		if len(hits) != most || missing != nil {
			t.Fatalf("the example %v hits %d, %v; want %d", example, len(hits), missing, most)
		}
		enough := rapid.IntRange(0, 12).Draw(t, "enough")
		most, _, _, decided = MostBudgetsHit(budgets, enough, 1_000_000)
		if !decided || (most > enough) != (want > enough) {
			t.Fatalf("more than %d: %d, %v; want %d", enough, most, decided, want)
		}
	})
}

// The usual shape, many tenants with a few budgets each, must be decided with
// about a look per budget, and the bound must hold where it is not.
func TestMostBudgetsHitIsBounded(t *testing.T) {
	var tenants []Budget
	for i := range 100_000 {
		tenants = append(tenants, namedBudget(fmt.Sprintf("b%d", i), map[string]string{"tenant": fmt.Sprintf("t%d", i/3)}))
	}
	tenants = append(tenants, namedBudget("all", nil))
	if most, _, names, decided := MostBudgetsHit(tenants, MaxBudgetsPerRequest, 1_000_000); most != 4 || len(names) != 4 || !decided {
		t.Errorf("tenants: %d, %v, %v", most, names, decided)
	}
	var hard []Budget
	for i := range 60 {
		for j := range 20 {
			hard = append(hard, namedBudget(fmt.Sprintf("b%d-%d", i, j), map[string]string{
				fmt.Sprintf("l%d", i): fmt.Sprint(j), fmt.Sprintf("l%d", (i*7+j)%60): fmt.Sprint(i % 20), fmt.Sprintf("l%d", (i+j*3)%60): fmt.Sprint(j),
			}))
		}
	}
	if most, _, _, decided := MostBudgetsHit(hard, 1000, 20_000); decided || most < 1 {
		t.Errorf("a hard case: %d, %v", most, decided)
	}
}

// Labels stand in messages for people, who cannot read map[a:b].
func TestLabelsInWords(t *testing.T) {
	if text := fmt.Sprintf("%v; %v", Labels{"tenant": "acme", "caller": "any"}, Labels{}); text != "caller=any, tenant=acme; none" {
		t.Error(text)
	}
}
