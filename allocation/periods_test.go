package allocation

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// drawPeriods returns valid periods of either form, some without end.
func drawPeriods(t *rapid.T) Periods {
	first := rapid.Int64Range(-1e10, 1e10).Draw(t, "first")
	if rapid.Bool().Draw(t, "even") {
		return Periods{
			First: Instant(first),
			Step:  rapid.Int64Range(1, 50_000).Draw(t, "step"),
			Count: rapid.IntRange(1, 100_000).Draw(t, "count"),
		}
	}
	list := []Instant{Instant(first)}
	for range rapid.IntRange(1, MaxInstants-1).Draw(t, "periods") {
		list = append(list, list[len(list)-1]+Instant(rapid.Int64Range(1, 1e6).Draw(t, "length")))
	}
	if rapid.Bool().Draw(t, "endless") {
		list[len(list)-1] = Never
	}
	return Periods{Instants: list}
}

// An instant in two periods would be sold twice, one in none not at all.
func TestPeriodsPartitionTheTerm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawPeriods(t)
		if err := p.Validate(); err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, p.Len() - 1, rapid.IntRange(0, p.Len()-1).Draw(t, "i")} {
			at := p.At(i)
			if at.Start >= at.End {
				t.Fatalf("period %d is empty: %v", i, at)
			}
			if i > 0 && p.At(i-1).End != at.Start {
				t.Fatalf("gap before period %d", i)
			}
			for _, now := range []Instant{at.Start, min(at.Start+1, at.End-1), at.End - 1} {
				if found, ok := p.Find(now); !ok || found != i {
					t.Fatalf("%d lies in period %d, not %d (%v)", now, i, found, ok)
				}
			}
			if found, ok := p.Index(at.Start); !ok || found != i {
				t.Fatalf("period %d is not found by its start", i)
			}
			if _, ok := p.Index(at.Start + 1); ok && at.End > at.Start+1 {
				t.Fatal("an instant within a period names one")
			}
		}
		if p.Start() != p.At(0).Start || p.End() != p.At(p.Len()-1).End {
			t.Fatal("start or end are not those of the first and last period")
		}
		for _, outside := range []Instant{p.Start() - 1, p.End(), Never, math.MinInt64} {
			if i, ok := p.Find(outside); ok {
				t.Fatalf("%d lies outside, not in period %d", outside, i)
			}
		}
	})
}

// A broken document must be refused, not read as some other term.
func TestPeriodsValidateRefuses(t *testing.T) {
	long := make([]Instant, MaxInstants+1)
	for i := range long {
		long[i] = Instant(i)
	}
	for name, p := range map[string]Periods{
		"empty":         {},
		"both forms":    {First: 60, Step: 60, Count: 1, Instants: []Instant{60, 120}},
		"no count":      {First: 60, Step: 60},
		"step back":     {First: 60, Step: -60, Count: 1},
		"one instant":   {Instants: []Instant{60}},
		"equal":         {Instants: []Instant{60, 60}},
		"falling":       {Instants: []Instant{60, 120, 119}},
		"never inside":  {Instants: []Instant{60, Never, Never}},
		"too long":      {Instants: long},
		"overflow":      {First: 60, Step: math.MaxInt64, Count: math.MaxInt64},
		"far future":    {First: maxInstant, Step: 1, Count: 1},
		"far past":      {First: minInstant - 1, Step: 1, Count: 1},
		"past in list":  {Instants: []Instant{minInstant - 1, 0}},
		"after year 9k": {Instants: []Instant{0, maxInstant + 1}},
	} {
		if p.Validate() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// A hostile document that was not validated must not make a look-up panic or
// wrap round to a period long ago.
func TestPeriodsNeverPanic(t *testing.T) {
	values := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
	var all []Periods
	for _, first := range values {
		for _, step := range values {
			for _, count := range values {
				all = append(all, Periods{First: Instant(first), Step: step, Count: int(count)})
			}
		}
		all = append(all, Periods{Instants: []Instant{Instant(first)}}, Periods{Instants: []Instant{Instant(first), 0}})
	}
	for _, p := range all {
		if p.Start() > p.End() && len(p.Instants) == 0 {
			t.Errorf("%+v ends at %d", p, int64(p.End()))
		}
		for _, v := range values {
			at := p.At(int(v))
			if i, ok := p.Find(Instant(v)); ok && len(p.Instants) == 0 && (i < 0 || i >= p.Len()) {
				t.Errorf("%+v finds period %d for %d", p, i, v)
			}
			_, _ = p.Index(at.Start)
		}
	}
}

// Index must not take a start of the right remainder outside the term.
func TestPeriodsIndex(t *testing.T) {
	p := Periods{First: 60, Step: 60, Count: 3}
	var found []Instant
	for i := Instant(-600); i < 600; i++ {
		if _, ok := p.Index(i); ok {
			found = append(found, i)
		}
	}
	if !slices.Equal(found, []Instant{60, 120, 180}) {
		t.Errorf("starts are %v", found)
	}
	if p.At(3) != (Period{}) || p.At(-1) != (Period{}) {
		t.Error("a period that is none")
	}
}
