package coordinator

import (
	"math/rand/v2"
	"slices"
	"testing"

	"tranche/allocation"
)

// Columns are shortened, so reading one must give back what was written, and a term with too many numbers keeps its sums.
func TestClosingColumns(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		want := make([]int64, 1+random.IntN(20))
		for i := range want {
			want[i] = random.Int64N(2)
		}
		short := column(len(want), func(i int) int64 { return want[i] })
		got := make([]int64, len(want))
		for i := range got {
			got[i] = columnAt(short, i)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%v is written as %v", want, short)
		}
	}
	for _, n := range []int{maxClosedNumbers - 2, maxClosedNumbers} {
		l := allocation.Ledger{Periods: allocation.Periods{First: 0, Step: 60, Count: n}, Entries: []allocation.Entry{{Limit: 5, Allocations: []allocation.Allocation{{Holder: allocation.Holder{Region: "eu"}, Granted: 5}}}}}
		var usage []allocation.UsageStatement
		for i := range n {
			usage = append(usage, allocation.UsageStatement{Period: allocation.Instant(60 * i), Spent: int64(1 + i%2)})
		}
		c := Closing{Periods: l.Periods, Limit: 5, Regions: []ClosedRegion{{Holder: allocation.Holder{Region: "eu"}}}}
		c.enterPeriods(l, [][]allocation.UsageStatement{usage})
		if fits := n < maxClosedNumbers; c.PeriodsLeftOut == fits || (c.ByPeriod() != nil) != fits || (c.Limits != nil) != fits {
			t.Errorf("%d periods: left out %v", n, c.PeriodsLeftOut)
		}
		if n := len(encode(c)); n > 12<<10 {
			t.Errorf("it has %d bytes", n)
		}
	}
}
