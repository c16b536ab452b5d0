package allocation

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The cap itself: parts that add up to more than the limit oversell it, to less
// waste it; a part off by more than one is not by weight.
func TestSplitFixedSumsToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(0, math.MaxInt64)).Draw(t, "limit")
		weights := rapid.MapOfN(rapid.StringMatching(`[a-f]{1,2}`),
			rapid.OneOf(rapid.Int64Range(0, 10), rapid.Int64Range(0, MaxWeightSum)), 1, 20).Draw(t, "weights")
		var total, sum int64
		for _, weight := range weights {
			total += weight
		}
		split := SplitFixed(limit, weights)
		for region, share := range split {
			if share < 0 || (weights[region] == 0 && share != 0) || sum > math.MaxInt64-share {
				t.Fatalf("%s with weight %d gets %d", region, weights[region], share)
			}
			sum += share
			if total > 0 {
				exact := float64(limit) * (float64(weights[region]) / float64(total))
				if math.Abs(float64(share)-exact) > 1+exact*1e-12 {
					t.Fatalf("%s gets %d, not about %f", region, share, exact)
				}
			}
		}
		if want := limit * min(1, total); sum != want || len(split) != len(weights) {
			t.Fatalf("parts add up to %d of %d: %v", sum, limit, split)
		}
	})
}

// Known splits, ties by name; the second coordinator must get the same.
func TestSplitFixedKnown(t *testing.T) {
	for _, c := range []struct {
		limit         int64
		weights, want map[string]int64
	}{
		{100, map[string]int64{"us-east": 3, "eu-west": 2}, map[string]int64{"us-east": 60, "eu-west": 40}},
		{10, map[string]int64{"a": 1, "b": 1, "c": 1}, map[string]int64{"a": 4, "b": 3, "c": 3}},
		{2, map[string]int64{"c": 1, "b": 1, "a": 1}, map[string]int64{"a": 1, "b": 1, "c": 0}},
		{1, map[string]int64{"a": 1, "b": 2}, map[string]int64{"a": 0, "b": 1}},
		{0, map[string]int64{"a": 1}, map[string]int64{"a": 0}},
		{-5, map[string]int64{"a": 1}, map[string]int64{"a": 0}},
		{5, map[string]int64{"a": 0}, map[string]int64{"a": 0}},
		{5, map[string]int64{"a": -7, "b": 1}, map[string]int64{"a": 0, "b": 5}},
		{math.MaxInt64, map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64}, map[string]int64{"a": 1 << 62, "b": 1<<62 - 1}},
		{5, nil, map[string]int64{}},
	} {
		if got := SplitFixed(c.limit, c.weights); !maps.Equal(got, c.want) {
			t.Errorf("%d by %v is %v, want %v", c.limit, c.weights, got, c.want)
		}
	}
}

// Each policy's split: shared ones add up, a home has all, a template's homes
// may each hold all of the instances that are theirs.
func TestSplit(t *testing.T) {
	regions := []string{"ap", "eu-west", "us-east"}
	for name, c := range map[string]struct {
		policy Policy
		want   map[string]int64
	}{
		"fixed":        {validBudget().Allocation, map[string]int64{"ap": 0, "eu-west": 40, "us-east": 60}},
		"unregistered": {Policy{Policy: PolicyFixed, Weights: map[string]int64{"ap": 1, "x": 1}}, map[string]int64{"ap": 50, "eu-west": 0, "us-east": 0, "x": 50}},
		"fixed, less":  {Policy{Policy: PolicyFixed, Weights: map[string]int64{"ap": 1, "eu-west": 1}, KeepPercent: 3}, map[string]int64{"ap": 49, "eu-west": 48, "us-east": 0}},
		"home":         {Policy{Policy: PolicyHome, Region: "ap"}, map[string]int64{"ap": 100, "eu-west": 0, "us-east": 0}},
		"by hash":      {Policy{Policy: PolicyHome, HashOf: "caller"}, map[string]int64{"ap": 100, "eu-west": 100, "us-east": 100}},
		"by label":     {Policy{Policy: PolicyHome, RegionFrom: "tier"}, map[string]int64{"ap": 100, "eu-west": 100, "us-east": 100}},
		"demand":       {Policy{Policy: PolicyDemand}, map[string]int64{"ap": 17, "eu-west": 17, "us-east": 16}},
		"not valid":    {Policy{Policy: "auction"}, map[string]int64{"ap": 0, "eu-west": 0, "us-east": 0}},
		"home nowhere": {Policy{Policy: PolicyHome}, map[string]int64{"ap": 0, "eu-west": 0, "us-east": 0}},
	} {
		if got := (Budget{Allocation: c.policy}).Split(100, regions); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// What is kept is never less than the percentage says, nor more than one unit above it, at any limit.
func TestKept(t *testing.T) {
	for _, limit := range []int64{0, 1, 3, 99, 100, 101, 12_345, MaxUnits} {
		for percent := range MaxKeepPercent + 1 {
			b := Budget{Allocation: Policy{Policy: PolicyFixed, KeepPercent: percent}}
			exact := new(big.Int).Mul(big.NewInt(limit), big.NewInt(percent)) // hundredths of a unit
			above := new(big.Int).Sub(new(big.Int).Mul(big.NewInt(b.Kept(limit)), big.NewInt(100)), exact)
			if above.Sign() < 0 || above.Cmp(big.NewInt(100)) >= 0 {
				t.Errorf("%d %% of %d keeps %d", percent, limit, b.Kept(limit))
			}
		}
	}
	if kept := (Budget{Allocation: Policy{Policy: PolicyHome, KeepPercent: 5}}).Kept(100); kept != 0 {
		t.Errorf("policy home keeps %d", kept)
	}
	kept := validBudget()
	kept.Allocation.KeepPercent = 5
	words := kept.SplitWarnings(kept.Split(100, nil))
	if len(words) != 1 || !strings.Contains(words[0], "5 of 100 requests stay unallocated") {
		t.Errorf("it is not said how much is kept: %v", words)
	}
}

// A region whose database lost its history starts with what was kept, and its former share stays out.
func TestANewIncarnationGetsWhatWasKept(t *testing.T) {
	b := validBudget()
	b.Allocation = Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu-west": 1, "us-east": 1}, KeepPercent: 10}
	members := func(incarnation string) Members {
		return Members{Regions: []string{"eu-west", "us-east"}, Holders: []Holder{{Region: "eu-west", Incarnation: "e"}, {Region: "us-east", Incarnation: incarnation}}}
	}
	l, err := OpenLedger(b, 1, tenMinutes, members("u"), genOf(1)).Follow(b, 1, 0, members("u2"), genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int64{}
	for _, a := range l.EntryAt(0).Allocations {
		held[a.Incarnation] = a.Held()
	}
	if want := map[string]int64{"e": 45, "u": 45, "u2": 10}; !maps.Equal(held, want) {
		t.Errorf("held are %v, want %v", held, want)
	}
}

// A region that is to have more waits for the giver's return: what is kept is for a region that begins anew, and for no move.
func TestWhatIsKeptIsNotMoved(t *testing.T) {
	policy := func(east, west int64) Policy {
		return Policy{Policy: PolicyFixed, Weights: map[string]int64{"eu-west": west, "us-east": east}, KeepPercent: 10}
	}
	east, west := Holder{Region: "us-east", Incarnation: "u"}, Holder{Region: "eu-west", Incarnation: "e"}
	members := func(u string) Members {
		return Members{Regions: []string{"eu-west", "us-east"}, Holders: []Holder{west, {Region: "us-east", Incarnation: u}}}
	}
	budget := func(p Policy) Budget {
		b := validBudget()
		b.Limit, b.Allocation = units(100), p
		return b
	}
	open := OpenLedger(budget(policy(1, 1)), 1, tenMinutes, members("u"), genOf(1))
	moved, err := open.Move(east, west, 15, 0, genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	weighted, err := open.Follow(budget(policy(1, 2)), 2, 0, members("u"), genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Ledger{"moved by hand": moved, "other weights": weighted} {
		held := func(l Ledger, h Holder) int64 { e := l.EntryAt(0); return e.find(h, General).Held() }
		if n, free := held(l, west), l.Unallocated(0); n != 45 || free != 10 {
			t.Errorf("%s: before the giver returned any, the taker holds %d and %d are kept, not 45 and 10", name, n, free)
		}
		back := ShareStatement{Budget: "acme/requests", Term: tenMinutes.Start(), Generation: l.Generation, Returned: []ReturnedStatement{{From: tenMinutes.Start(), Until: tenMinutes.End(), Class: General, Returned: 15}}}
		after, _, err := l.Count(east, back, genOf(3))
		if err != nil {
			t.Fatal(err)
		}
		if n, free := held(after, west), after.Unallocated(0); n != 60 || free != 10 {
			t.Errorf("%s: afterwards the taker holds %d and %d are kept, not 60 and 10", name, n, free)
		}
		if n := after.KeptAt(0); n != 10 {
			t.Errorf("%s: it is said that %d are kept", name, n)
		}
		// The giver loses its database in between: it begins with what was kept.
		anew, err := l.Follow(budget(l.Policy), l.Version, 0, members("u2"), genOf(3))
		if err != nil {
			t.Fatal(err)
		}
		if n := held(anew, Holder{Region: "us-east", Incarnation: "u2"}); n != 10 {
			t.Errorf("%s: the new incarnation begins with %d, not with the 10 that were kept", name, n)
		}
		if n := anew.KeptAt(0); n != 0 {
			t.Errorf("%s: it is said that %d are kept, after they were granted", name, n)
		}
	}
}

// apply must say where a split leaves a region with little or nothing: that region refuses, to its users' surprise.
func TestSplitWarnings(t *testing.T) {
	for name, c := range map[string]struct {
		limit   int64
		weights map[string]int64
		words   []string
	}{
		"none":           {100, map[string]int64{"a": 99, "b": 1}, nil},
		"limit 0":        {0, map[string]int64{"a": 1}, []string{"limit is 0"}},
		"nothing":        {1, map[string]int64{"a": 1, "b": 1}, []string{"region b has weight 1 but gets 0 of 1"}},
		"no weight":      {10, map[string]int64{"a": 1, "b": 0}, []string{"region b has no weight"}},
		"little":         {1000, map[string]int64{"a": 1, "b": 200}, []string{"region a gets only 5 of 1000"}},
		"little, by one": {199, map[string]int64{"a": 1, "b": 198}, []string{"region a gets only 1 of 199"}},
	} {
		b := validBudget()
		b.Limit, b.Allocation.Weights = units(c.limit), c.weights
		got := b.SplitWarnings(b.Split(c.limit, nil))
		if len(got) != len(c.words) {
			t.Errorf("%s: %v", name, got)
			continue
		}
		for i, words := range c.words {
			if !strings.Contains(got[i], words) {
				t.Errorf("%s: %s", name, got[i])
			}
		}
	}
	home := validTemplate()
	if got := home.SplitWarnings(home.Split(100, []string{"a", "b"})); got != nil {
		t.Errorf("home: %v", got)
	}
}

// The hash decides which region may spend an instance's whole limit. If it ever
// changed, two regions would each think an instance theirs.
func TestHomeNeverChanges(t *testing.T) {
	b, regions := validTemplate(), []string{"ap-south", "eu-west", "us-east"}
	var got []string
	for i := range 8 {
		region, ok := b.Home("", Labels{"caller": fmt.Sprintf("caller-%d", i)}, regions)
		if !ok {
			t.Fatal("no home")
		}
		got = append(got, region)
	}
	if want := "ap-south eu-west eu-west ap-south us-east us-east eu-west us-east"; strings.Join(got, " ") != want {
		t.Errorf("homes are %s", strings.Join(got, " "))
	}
}

// A region that comes or goes must move no other region's instances, and all carry about the same.
func TestHomeIsARendezvous(t *testing.T) {
	b, regions := validTemplate(), []string{"a", "b", "c", "d"}
	count := map[string]int{}
	for i := range 4000 {
		labels := Labels{"tier": "x", "caller": fmt.Sprint(i)}
		home, _ := b.Home("", labels, regions)
		count[home]++
		if fewer, _ := b.Home("", labels, regions[:3]); home != "d" && fewer != home {
			t.Fatalf("caller %d moved from %s to %s as d went", i, home, fewer)
		}
		if turned, _ := b.Home("", labels, []string{"d", "c", "b", "a"}); turned != home {
			t.Fatal("the order of regions shows")
		}
		if stored, _ := b.Home(fmt.Sprintf("x/%d", i), nil, regions); stored != home {
			t.Fatal("the home by instance is another than that by labels")
		}
	}
	for region, n := range count {
		if n < 850 || n > 1150 {
			t.Errorf("%s is home to %d of 4000", region, n)
		}
	}
}

// Where no home can be told, nobody may spend: a guess could be two regions' guess.
func TestHomeUnknown(t *testing.T) {
	regions := []string{"eu-west", "us-east"}
	for name, c := range map[string]struct {
		policy   Policy
		instance string
		labels   Labels
		region   string
		ok       bool
	}{
		"fixed":         {Policy{Policy: PolicyFixed}, "", nil, "", true},
		"single":        {Policy{Policy: PolicyHome, Region: "us-east"}, "", nil, "us-east", true},
		"by label":      {Policy{Policy: PolicyHome, RegionFrom: "tier"}, "", Labels{"tier": "eu-west"}, "eu-west", true},
		"by instance":   {Policy{Policy: PolicyHome, RegionFrom: "tier"}, "eu-west/7", nil, "eu-west", true},
		"not a region":  {Policy{Policy: PolicyHome, RegionFrom: "tier"}, "", Labels{"tier": "mars"}, "mars", false},
		"no label":      {Policy{Policy: PolicyHome, RegionFrom: "tier"}, "", nil, "", false},
		"hash of none":  {Policy{Policy: PolicyHome, HashOf: "caller"}, "", nil, "", false},
		"short":         {Policy{Policy: PolicyHome, HashOf: "caller"}, "gold", nil, "", false},
		"demand":        {Policy{Policy: PolicyDemand}, "", nil, "", true},
		"home of none":  {Policy{Policy: PolicyHome}, "", nil, "", false},
		"foreign label": {Policy{Policy: PolicyHome, HashOf: "tenant"}, "gold/7", nil, "", false},
	} {
		b := validTemplate()
		b.Allocation = c.policy
		if region, ok := b.Home(c.instance, c.labels, regions); region != c.region || ok != c.ok {
			t.Errorf("%s: %q, %v", name, region, ok)
		}
	}
	if region, ok := validTemplate().Home("gold/7", nil, nil); ok {
		t.Errorf("of no regions %s is the home", region)
	}
}
