package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
)

// What a rota passed over would never be looked at again, and what it kept though it is gone would be for ever.
func TestARotaComesToEachInItsTurn(t *testing.T) {
	r := newRota[int]()
	for k := range 10 {
		r.add(k, k/2) // most of them twice
	}
	all := func(int) bool { return true }
	seen := map[int]int{}
	for range 10 { // each of ten four times
		taken := r.next(4, all, cmp.Compare)
		if len(taken) != 4 || !slices.IsSorted(taken) {
			t.Fatalf("taken are %v", taken)
		}
		for _, k := range taken {
			seen[k]++
		}
	}
	for k := range 10 {
		if seen[k] != 4 {
			t.Errorf("%d was looked at %d times of 4", k, seen[k])
		}
	}
	odd := func(k int) bool { return k%2 == 1 }
	r.next(10, odd, cmp.Compare)
	if got := r.next(100, all, cmp.Compare); !slices.Equal(got, []int{1, 3, 5, 7, 9}) || len(r.in) != 5 {
		t.Errorf("left are %v, of which %d are known", got, len(r.in))
	}
	r.add(2, 3)
	if got := r.next(100, all, cmp.Compare); !slices.Equal(got, []int{1, 2, 3, 5, 7, 9}) {
		t.Errorf("left are %v after one came back", got)
	}
}

// setClock is a runtime whose clock a test sets.
type setClock struct {
	Real
	now *time.Time
}

func (c setClock) Now() time.Time { return *c.now }

// While a region is cut off, ledgers pile up that cannot be closed. If each round looked at all of them, with the lock held, an
// outage would make the coordinator slow for everybody: with 100,000 minute budgets it took a third of a processor.
func TestARoundLooksAtSomeOfWhatCannotBeClosed(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	s := New(Config{Runtime: setClock{Real{}, &now}})
	s.state.deployment = &doc[Deployment]{}
	const many = 2*maxPerTick + 7
	start := allocation.At(now) - 3600
	for i := range many {
		l := &doc[allocation.Ledger]{value: allocation.Ledger{
			Budget: fmt.Sprintf("b-%06d", i), Periods: allocation.Periods{First: start, Step: 60, Count: 2},
			Entries: []allocation.Entry{{Allocations: []allocation.Allocation{{Holder: allocation.Holder{Region: "eu", Incarnation: "one"}, Class: allocation.General, Granted: 1}}}},
		}}
		ref := refOf(l.value)
		s.state.ledgers[ref] = l
		s.state.ends.set(ref, int64(l.value.Periods.End()))
	}
	s.state.region("eu").doc = &doc[RegionDocument]{value: RegionDocument{Incarnation: "one"}}
	for range 3 {
		now = now.Add(backgroundTick)
		if due := s.termsOver(); len(due) > 0 {
			t.Fatalf("%d can be closed while their region was not heard of", len(due))
		}
	}
	if waiting := len(s.state.over.waiting); waiting != many || len(s.state.ends.heap) != 0 {
		t.Fatalf("%d wait, and %d are not over, of %d", waiting, len(s.state.ends.heap), many)
	}
	contact := &s.state.region("eu").contact
	contact.Incarnation, contact.StatedThrough = "one", start+120
	closed := map[allocation.ShareRef]bool{}
	for round := range 3 {
		if now = now.Add(backgroundTick / 2); len(s.termsOver()) > 0 {
			t.Fatal("many are looked at again at once")
		}
		now = now.Add(backgroundTick / 2)
		due := s.termsOver()
		if len(due) == 0 || len(due) > maxPerTick {
			t.Fatalf("round %d closes %d", round, len(due))
		}
		for _, ref := range due {
			closed[ref] = true
		}
	}
	if len(closed) != many {
		t.Errorf("%d of %d are closed after three rounds", len(closed), many)
	}
}
