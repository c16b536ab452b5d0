package allocation

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// drawEstimates is any number of settlements.
func drawEstimates(t *rapid.T, least int) EstimateCount {
	c := EstimateCount{Capability: "model", Unit: "tokens"}
	for range rapid.IntRange(least, 300).Draw(t, "settled") {
		cost := rapid.OneOf(rapid.Int64Range(0, 4000), rapid.Int64Range(0, MaxUnits))
		c.Add(rapid.OneOf(rapid.Int64Range(1, 2000), rapid.Int64Range(0, MaxUnits)).Draw(t, "estimate"), cost.Draw(t, "cost"), 0)
	}
	return c
}

// A settlement is in the bucket of its ratio: at most its bound, and above the one before.
func TestRatioBuckets(t *testing.T) {
	for _, c := range []struct {
		estimate, cost int64
		below          float64
	}{
		{1000, 1000, 1},
		{1000, 1001, math.Sqrt2},
		{1000, 2000, 2},
		{1000, 16_000, 16},
		{1000, 16_001, math.Inf(1)},
		{1000, 0, 1. / 16},
		{16, 1, 1. / 16},
		{1000, 500, .5},
		{0, 1, math.Inf(1)},
		{MaxUnits, MaxUnits, 1},
		{1, MaxUnits, math.Inf(1)},
	} {
		var e EstimateCount
		e.Add(c.estimate, c.cost, 0)
		if got := e.Within(100); math.Abs(got-c.below) > 1e-9 && got != c.below {
			t.Errorf("%d of %d lies within %v, want %v", c.cost, c.estimate, got, c.below)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		estimate, cost := rapid.Int64Range(1, MaxUnits).Draw(t, "estimate"), rapid.Int64Range(0, MaxUnits).Draw(t, "cost")
		i, ratio := ratioBucket(estimate, cost), float64(cost)/float64(estimate)
		if ratio > RatioBound(i)*(1+1e-9) || i > 0 && ratio < RatioBound(i-1)*(1-1e-9) {
			t.Fatalf("%d of %d is in bucket %d", cost, estimate, i)
		}
	})
}

// One strange request cannot rewrite policy: where all settle as estimated, nothing that one more request costs changes
// the suggestion.
func TestOneStrangeRequestChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c EstimateCount
		for range rapid.IntRange(MinSettled, 400).Draw(t, "settled") {
			c.Add(1000, 900, 0)
		}
		before, ok := c.Suggest()
		if !ok || before.Factor != 1 || before.Capped || before.From != 1000 || before.To != 1000 {
			t.Fatalf("%+v, %v", before, ok)
		}
		c.Add(rapid.Int64Range(0, 1000).Draw(t, "estimate"), rapid.Int64Range(0, MaxUnits).Draw(t, "cost"), 0)
		if after, _ := c.Suggest(); after.Factor != 1 {
			t.Fatalf("one request changed the suggestion to %+v", after)
		}
	})
}

// A suggestion is capped, whatever was settled, and made of enough settlements only.
func TestSuggestionsAreCapped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawEstimates(t, 0)
		if !c.Valid() {
			t.Fatalf("%+v", c)
		}
		s, ok := c.Suggest()
		if ok != (c.Settled >= MinSettled && c.Estimated > 0) {
			t.Fatalf("a suggestion of %d settlements: %v", c.Settled, ok)
		}
		if !ok {
			return
		}
		if s.Factor < .5 || s.Factor > 2 || s.To < 1 || s.To > MaxUnits || float64(s.To) > 2*float64(s.From)+1 {
			t.Fatalf("%+v", s)
		}
		if want := c.Within(SuggestedPercent); s.Capped != (want > 2 || want < .5) {
			t.Fatalf("%+v of %v", s, want)
		}
	})
}

// One more settlement moves a rank by at most one: the suggestion goes to a bucket that a settlement was in already, or to
// that of the new one.
func TestRanksMoveByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := drawEstimates(t, 1)
		more := c
		more.Add(rapid.Int64Range(1, MaxUnits).Draw(t, "estimate"), rapid.Int64Range(0, MaxUnits).Draw(t, "cost"), 0)
		low, high := c.Within(SuggestedPercent-2), math.Inf(1)
		if c.Settled > 1 {
			if n := proportionUp(c.Settled, SuggestedPercent, 100) + 1; n <= c.Settled {
				sum := int64(0)
				for i, k := range c.Ratios {
					if sum += k; sum >= n {
						high = RatioBound(i)
						break
					}
				}
			}
		}
		if got := more.Within(SuggestedPercent); c.Settled > 100 && (got < low || got > high) {
			t.Fatalf("it moved from %v to %v, out of %v to %v", c.Within(SuggestedPercent), got, low, high)
		}
	})
}

// Counts of several nodes add up to what one node would have counted.
func TestEstimatesMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a, b, both EstimateCount
		for range rapid.IntRange(0, 50).Draw(t, "settled") {
			estimate, cost := rapid.Int64Range(0, MaxUnits).Draw(t, "estimate"), rapid.Int64Range(0, MaxUnits).Draw(t, "cost")
			rapid.SampledFrom([]*EstimateCount{&a, &b}).Draw(t, "node").Add(estimate, cost, 1)
			both.Add(estimate, cost, 1)
		}
		if got := a.Merge(b); got != both || b.Merge(a) != both || !got.Valid() {
			t.Fatalf("%+v and %+v come to %+v, not %+v", a, b, got, both)
		}
	})
}

// What is reported: the bias, and how many lie within what.
func TestBias(t *testing.T) {
	var c EstimateCount
	for range 9 {
		c.Add(100, 100, 0)
	}
	c.Add(100, 600, 50)
	c.Add(0, 0, 0)
	c.Add(-1, 5, 0)
	if c.Settled != 10 || c.Bias() != 50 || c.Within(50) != 1 || c.Within(90) != 1 || c.Within(91) != 8 || c.Worst != 600 || c.Overdraft != 50 {
		t.Errorf("%+v, bias %v", c, c.Bias())
	}
}
