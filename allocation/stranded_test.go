package allocation

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Permit-seconds are billed against regions' availability: the short way over runs of periods must come to the same as
// looking at every second of every period.
func TestStrandedOverIsTheSumOverSeconds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := Holder{Region: "a", Incarnation: "a1"}
		l := Ledger{Periods: Periods{First: 100, Step: rapid.Int64Range(1, 7).Draw(t, "step"), Count: rapid.IntRange(1, 12).Draw(t, "count")}}
		if rapid.Bool().Draw(t, "uneven") {
			l.Periods = Periods{Instants: []Instant{100, 103, 104, 110, 111, 120}}
		}
		for from := 0; from < l.Periods.Len(); from += rapid.IntRange(1, 6).Draw(t, "run") {
			granted := rapid.Int64Range(0, 9).Draw(t, "granted")
			l.Entries = append(l.Entries, Entry{From: from, Allocations: []Allocation{
				{Holder: h, Class: General, Granted: granted, Returned: rapid.Int64Range(0, granted).Draw(t, "returned")},
				{Holder: Holder{Region: "b"}, Class: General, Granted: 5},
			}})
		}
		var st ShareStatement
		for i := range l.Periods.Len() {
			if rapid.Bool().Draw(t, fmt.Sprint("used", i)) {
				st.Usage = append(st.Usage, UsageStatement{
					Period: l.Periods.At(i).Start, Class: General, Spent: rapid.Int64Range(0, 9).Draw(t, "spent"), Reserved: rapid.Int64Range(0, 3).Draw(t, "reserved"),
				})
			}
		}
		from := Instant(rapid.Int64Range(90, 200).Draw(t, "from"))
		until := from + Instant(rapid.Int64Range(0, 110).Draw(t, "for"))
		var want Elapsed
		for i := range l.Periods.Len() {
			p, left := l.Periods.At(i), l.RemainderAt(h, i, st, 0).Stranded
			for at := max(from, p.Start); at < min(until, p.End); at++ {
				want.PermitSeconds += left
			}
			if from < p.End && p.End <= until && left > 0 {
				want.Periods, want.Expired = want.Periods+1, want.Expired+left
			}
		}
		if got := l.StrandedOver(h, st, from, until, 0); got != want {
			t.Fatalf("%+v, not %+v", got, want)
		}
		// It does not matter into how many looks a span is divided.
		mid := from + (until-from)/3
		if got := l.StrandedOver(h, st, from, mid, 0).Add(l.StrandedOver(h, st, mid, until, 0)); got != want {
			t.Fatalf("in two looks %+v, not %+v", got, want)
		}
	})
}

// A term of seconds has a million periods, and one that never ends has one.
func TestStrandedOverLargeTerms(t *testing.T) {
	h := Holder{Region: "a", Incarnation: "a1"}
	l := Ledger{Periods: Periods{First: 0, Step: 1, Count: 1_000_000}, Entries: []Entry{{Allocations: []Allocation{{Holder: h, Class: General, Granted: MaxUnits}}}}}
	if e := l.StrandedOver(h, ShareStatement{}, 0, 1_000_000, 0); e.PermitSeconds != math.MaxInt64 || e.Expired != math.MaxInt64 || e.Periods != 1_000_000 {
		t.Errorf("%+v", e)
	}
	l.Periods = Periods{Instants: []Instant{50, Never}}
	if e := l.StrandedOver(h, ShareStatement{}, 0, 53, 0); e != (Elapsed{PermitSeconds: 3 * MaxUnits}) {
		t.Errorf("%+v", e)
	}
}

// An operator decides by these figures whether to move traffic. None may promise more than there is.
func TestRateLasts(t *testing.T) {
	for _, c := range []struct {
		rate    Rate
		permits int64
		want    Duration
		ends    bool
	}{
		{Rate{Units: 3600, Over: Hour}, 60, 60, true},
		{Rate{Units: 7, Over: 10}, 8, 11, true},
		{Rate{Units: 7, Over: 10}, -3, 0, true},
		{Rate{Over: Hour}, 8, 0, false},
		{Rate{Units: 5}, 8, 0, false},
		{Rate{Units: 1, Over: Duration(math.MaxInt64)}, math.MaxInt64, math.MaxInt64, true},
	} {
		if got, ends := c.rate.Lasts(c.permits); got != c.want || ends != c.ends {
			t.Errorf("%+v of %d: %d %v", c.rate, c.permits, got, ends)
		}
	}
}

// The example of the trade, and its laws: nothing is counted twice, none beyond the limit is admitted, and nobody at home
// waits.
func TestSingleHome(t *testing.T) {
	demand := []RegionDemand{{Region: "us-east", Before: 10, During: 20}, {Region: "eu-west", During: 70}}
	for home, want := range map[string]HomeOutcome{
		"eu-west": {Home: "eu-west", Admitted: 80, Delayed: 10, Unreachable: 20},
		"us-east": {Home: "us-east", Admitted: 30, Unreachable: 70},
	} {
		if got := SingleHome(home, 100, demand, []string{"us-east"}); got != want {
			t.Errorf("%+v", got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var demand []RegionDemand
		var asked, local int64
		for _, r := range []string{"a", "b", "c"} {
			d := RegionDemand{Region: r, Before: rapid.Int64Range(0, 50).Draw(t, r), During: rapid.Int64Range(0, 50).Draw(t, r)}
			demand, asked = append(demand, d), asked+d.Before+d.During
			if r == "a" {
				local = d.Before + d.During
			}
		}
		limit := rapid.Int64Range(0, 200).Draw(t, "limit")
		cut := rapid.SampledFrom([][]string{nil, {"a"}, {"b"}, {"b", "c"}}).Draw(t, "cut")
		got := SingleHome("a", limit, demand, cut)
		if got.Admitted+got.Refused() != asked || got.Admitted > limit || got.Delayed > asked-local || got.Delayed > got.Admitted {
			t.Fatalf("%+v of %d", got, asked)
		}
		if cut == nil && got.Unreachable != 0 || limit >= asked && got.OverLimit != 0 {
			t.Fatalf("%+v refuses what it could admit", got)
		}
	})
}
