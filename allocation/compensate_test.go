package allocation

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A raise that went to the region that is away would be stranded too, and one that lowered another region's part would take
// from callers who have done nothing.
func TestCompensateReachesTheOthersOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights, sum := map[string]int64{}, int64(0)
		for i := range rapid.IntRange(2, 6).Draw(t, "regions") {
			w := rapid.Int64Range(0, 9).Draw(t, "weight")
			weights[fmt.Sprint("r", i)], sum = w, sum+w
		}
		if sum == 0 {
			weights["r1"] = 1
		}
		most := rapid.SampledFrom([]int64{20, 1000, MaxUnits / 2}).Draw(t, "most")
		limit, units := rapid.Int64Range(0, most).Draw(t, "limit"), rapid.Int64Range(1, most).Draw(t, "units")
		before := Policy{Policy: PolicyFixed, Weights: weights}
		parts := SplitFixed(limit, weights)
		after, err := before.Compensate("r0", units, parts)
		if limit-parts["r0"] == 0 {
			if !errors.Is(err, ErrNotCompensated) {
				t.Fatalf("nobody else has a part, and %v", err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		next, total := SplitFixed(limit+units, after.Weights), int64(0)
		for region, n := range next {
			// Scaled weights are good to one part in 2^29.
			slack := (limit + units) >> 28
			if region == "r0" && (n > parts["r0"] || n < parts["r0"]-slack) || region != "r0" && n < parts[region]-slack {
				t.Fatalf("of %d+%d %s gets %d after %d", limit, units, region, n, parts[region])
			}
			total += n
		}
		if total != limit+units || len(after.Weights) != len(weights) {
			t.Fatalf("%v is %d of %d", next, total, limit+units)
		}
		b := Budget{Name: "b", Unit: "u", Limit: new(int64), Window: Window{Every: Minute}, Allocation: after}
		if err := b.Validate(); err != nil {
			t.Fatal(err)
		}
	})
	demand := Policy{Policy: PolicyDemand}
	if after, err := demand.Compensate("a", 5, nil); err != nil || after.Policy != PolicyDemand || after.Weights != nil {
		t.Errorf("%+v %v", after, err)
	}
	if _, err := (Policy{Policy: PolicyHome, Region: "a"}).Compensate("a", 5, map[string]int64{"a": 10}); !errors.Is(err, ErrNotCompensated) {
		t.Errorf("%v", err)
	}
}
