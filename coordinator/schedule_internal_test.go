package coordinator

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
)

// What a schedule left out would never be opened or closed.
func TestScheduleAgainstALookAtAll(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 1))
	s, all := newSchedule[int](), map[int]int64{}
	for step := range 5000 {
		key, at := r.IntN(200), r.Int64N(100)
		switch r.IntN(4) {
		case 0:
			s.drop(key)
			delete(all, key)
		case 1:
			s.add(key, at)
			if _, known := all[key]; !known {
				all[key] = at
			}
		default:
			s.set(key, at)
			all[key] = at
		}
		now := r.Int64N(110) - 5
		var want []int
		for key, at := range all {
			if at <= now {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		if got := s.due(now, cmp.Compare); !slices.Equal(got, want) {
			t.Fatalf("seed %d, step %d: due by %d are %v, want %v", seed, step, now, got, want)
		}
	}
}

// If the schedule said a later time than nextTerm, a region that is cut off would run out of terms too early; if it said
// one for a budget that has all its terms, the background would look at it for ever.
func TestTermsAreDueAsNextTermHasThem(t *testing.T) {
	now := allocation.At(time.Date(2026, 12, 31, 23, 59, 7, 0, time.UTC))
	s := New(Config{})
	limit := int64(10)
	for name, w := range map[string]allocation.Window{
		"minute": {Every: allocation.Minute}, "hour": {Every: 3600}, "day": {Calendar: "day", Zone: "UTC"},
		"once": {Once: &allocation.Once{From: now + 600, Until: now + 900}}, "for good": {Once: &allocation.Once{From: now - 600}},
	} {
		d := BudgetDocument{Budget: allocation.Budget{Name: name, Unit: "requests", Limit: &limit, Window: w}}
		for opened := 0; opened < 40; {
			at, never := opensAt(d)
			periods, due := s.nextTerm(d, max(at, now))
			switch {
			case never && due:
				t.Fatalf("%s: a term is due at %s, and the schedule knows none", name, periods.Start())
			case never:
				opened = 40
				continue
			case !due:
				t.Fatalf("%s: scheduled for %s, and not due then", name, at)
			case at > now:
				if _, early := s.nextTerm(d, at-1); early {
					t.Fatalf("%s: due before %s", name, at)
				}
			}
			d.OpenedThrough = periods.End()
			opened++
		}
	}
}
