package allocation

import (
	"cmp"
	"math"
)

// A reservation holds an estimate, and its settlement tells the true cost. How far the two lie apart is counted by the
// capability that the request was for and by unit, so that a person can choose a better estimate:
//
//	ratio = true cost / estimate      1000 estimated, 1300 used: 1.3
//
//	settled   ratio at most   0.5   0.71   1   1.41   2   …  16   more
//	    200                     4     10  20    150  12      4      0
//
// 90 of 100 settled within 1.41 times their estimate, so 1.41 times the estimate is suggested. Nothing changes by itself. A
// suggestion is at most a doubling or a halving, is made only of enough settlements, and goes by their ranks: one strange
// request, however large, counts as one of them.
const (
	// RatioBuckets is how many buckets ratios are counted in.
	RatioBuckets = 18
	ratioSteps   = 2  // buckets for each doubling
	ratioLowest  = -8 // the first bucket holds ratios up to 2 to this, in steps

	// MinSettled is how many settlements a suggestion needs.
	MinSettled = 100
	// SuggestedPercent of the settlements would have been within a suggested estimate, as far as the cap lets it.
	SuggestedPercent = 90
	// LargestChange caps a suggestion: at most so many times the estimate, and not less than one so-manieth.
	LargestChange = 2

	// MaxEstimates bounds the pairs of capability and unit that are told apart.
	MaxEstimates = 100
)

// EstimateCount is what settlements of one capability, in one unit, came to. Sums stay at the end of int64.
type EstimateCount struct {
	Capability string              `json:"capability"`
	Unit       string              `json:"unit"`
	Settled    int64               `json:"settled"`
	Estimated  int64               `json:"estimated"` // the sum of what was first asked for
	True       int64               `json:"true"`      // the sum of what it cost
	Overdraft  int64               `json:"overdraft"` // of that, what fitted nowhere
	Ratios     [RatioBuckets]int64 `json:"ratios"`
	Worst      int64               `json:"worst_percent"` // the highest ratio of all, in percent, rounded up
}

// RatioBound is the highest ratio that a bucket holds; the last one has no end.
func RatioBound(bucket int) float64 {
	if bucket >= RatioBuckets-1 {
		return math.Inf(1)
	}
	return math.Exp2(float64(ratioLowest+bucket) / ratioSteps)
}

// ratioBucket is where a ratio is counted. Above an estimate of nothing everything is in the last.
func ratioBucket(estimate, cost int64) int {
	switch {
	case cost <= estimate && float64(cost) <= float64(estimate)*RatioBound(0):
		return 0
	case estimate == 0:
		return RatioBuckets - 1
	}
	for i := range RatioBuckets - 1 {
		if float64(cost) <= float64(estimate)*RatioBound(i) {
			return i
		}
	}
	return RatioBuckets - 1
}

// Add counts one settlement. What is below 0 is none.
func (c *EstimateCount) Add(estimate, cost, overdraft int64) {
	if estimate < 0 || cost < 0 || overdraft < 0 || estimate == 0 && cost == 0 {
		return
	}
	c.Settled = saturated(c.Settled, 1)
	c.Estimated, c.True, c.Overdraft = saturated(c.Estimated, estimate), saturated(c.True, cost), saturated(c.Overdraft, overdraft)
	i := ratioBucket(estimate, cost)
	c.Ratios[i] = saturated(c.Ratios[i], 1)
	c.Worst = max(c.Worst, percentUp(cost, estimate))
}

func percentUp(cost, estimate int64) int64 {
	p := math.Ceil(100 * float64(cost) / float64(max(1, estimate)))
	if p >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(p)
}

// Merge adds up what two counted; the names are the first's.
func (c EstimateCount) Merge(o EstimateCount) EstimateCount {
	c.Settled, c.Estimated, c.True = saturated(c.Settled, o.Settled), saturated(c.Estimated, o.Estimated), saturated(c.True, o.True)
	c.Overdraft, c.Worst = saturated(c.Overdraft, o.Overdraft), max(c.Worst, o.Worst)
	for i := range c.Ratios {
		c.Ratios[i] = saturated(c.Ratios[i], o.Ratios[i])
	}
	return c
}

// Valid says whether the count can be one: nothing is below 0, and every settlement is in one bucket.
func (c EstimateCount) Valid() bool {
	sum := int64(0)
	for _, n := range c.Ratios {
		if n < 0 {
			return false
		}
		sum = saturated(sum, n)
	}
	return c.Settled >= 0 && c.Estimated >= 0 && c.True >= 0 && c.Overdraft >= 0 && c.Worst >= 0 && sum == c.Settled
}

// Within is the bound of the bucket that the given percentage of the settlements lies within; infinite: the last bucket.
func (c EstimateCount) Within(percent int64) float64 {
	need, sum := proportionUp(c.Settled, percent, 100), int64(0)
	for i, n := range c.Ratios {
		if sum += n; sum >= need && sum > 0 {
			return RatioBound(i)
		}
	}
	return math.Inf(1)
}

// Bias is by how much true costs were above estimates in all, in percent; below 0: they were lower. It is 0 where nothing
// was estimated.
func (c EstimateCount) Bias() float64 {
	if c.Estimated == 0 {
		return 0
	}
	return 100 * (float64(c.True) - float64(c.Estimated)) / float64(c.Estimated)
}

// Suggestion is a better estimate: Factor times what callers estimate now. It is for a person to apply.
type Suggestion struct {
	Factor float64 `json:"factor"` // rounded to hundredths; 1: keep it
	Capped bool    `json:"capped"` // the settlements ask for more than LargestChange
	From   int64   `json:"from"`   // the mean estimate
	To     int64   `json:"to"`
}

// Suggest is the estimate that SuggestedPercent of the settlements would have been within; false: they are too few to say.
func (c EstimateCount) Suggest() (Suggestion, bool) {
	if c.Settled < MinSettled || c.Estimated == 0 {
		return Suggestion{}, false
	}
	want := c.Within(SuggestedPercent)
	factor := min(max(want, 1.0/LargestChange), LargestChange)
	s := Suggestion{Factor: math.Round(100*factor) / 100, Capped: factor != want, From: (c.Estimated-1)/c.Settled + 1}
	if to := math.Ceil(float64(s.From) * s.Factor); to < float64(MaxUnits) {
		s.To = max(1, int64(to))
	} else {
		s.To = MaxUnits
	}
	return s, true
}

// Compare orders counts by capability, then by unit.
func (c EstimateCount) Compare(o EstimateCount) int {
	return cmp.Or(cmp.Compare(c.Capability, o.Capability), cmp.Compare(c.Unit, o.Unit))
}
