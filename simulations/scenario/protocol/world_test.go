package protocol

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"tranche/allocation"
)

func limit(n int64) *int64 { return &n }

func twoRegions(faults Faults) (*World, allocation.Labels) {
	return New(Config{
		Start:   1_000_000_020,
		Regions: []Region{{"a", 20 * time.Millisecond}, {"b", 200 * time.Millisecond}},
		Budgets: []allocation.Budget{{
			Name: "x", Unit: "requests", Limit: limit(100), Window: allocation.Window{Every: 60},
			Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"a": 1, "b": 1}},
		}},
		Faults: faults,
	}), nil
}

// cut cuts region b off from the coordinator, from 100 s to 200 s.
type cut struct{}

func (cut) Reaches(region int, at allocation.Duration) (bool, bool) {
	ok := region != 1 || at < 100 || at >= 200
	return ok, ok
}
func (cut) CoordinatorUp(allocation.Duration) bool { return true }
func (cut) DatabaseUp(int, allocation.Duration) (bool, allocation.Duration) {
	return true, 0
}

// The example of package allocation: the share of a region that is cut off is stranded, and it goes on with it.
func TestShareOfARegionThatIsCutOff(t *testing.T) {
	w, labels := twoRegions(cut{})
	start := w.instant()
	b := w.Owner(1)
	if out := b.Offer(labels, "requests", 10, 1); out.Admitted != 10 {
		t.Fatalf("%+v", out)
	}
	w.Advance(start + 130) // into the third period, which no statement of b speaks of
	if out := b.Offer(labels, "requests", 60, 1); out.Admitted != 50 || out.Refused[0].N != 10 {
		t.Fatalf("%+v", out)
	}
	if got := w.Stranded("x", 1); got != 50 {
		t.Errorf("%d are stranded, as last stated", got)
	}
	a := w.Owner(0).Offer(labels, "requests", 51, 1)
	if a.Admitted != 50 || a.Refused[0].Reason != allocation.RegionShareSpent {
		t.Errorf("%+v", a)
	}
	w.Advance(start + 135)
	if r := w.Owner(0).Offer(labels, "requests", 1, 1); r.Refused[0].Reason != allocation.CapacityStranded {
		t.Errorf("%+v", r)
	}
	w.Advance(start + 202)
	if got := w.Stranded("x", 1); got != 0 {
		t.Errorf("%d are stranded after the cut", got)
	}
	if w.Err() != nil {
		t.Error(w.Err())
	}
}

// A move waits for the giver's return, and never makes a permit spendable twice.
func TestMoveAndChange(t *testing.T) {
	w, labels := twoRegions(nil)
	start := w.instant()
	w.Move("x", 0, 1, 30)
	w.Advance(start + 5)
	if held, _ := w.Owner(1).Standing("x"); held != 80 {
		t.Errorf("b holds %d after the move", held)
	}
	w.Change(allocation.Budget{
		Name: "x", Unit: "requests", Limit: limit(10), Window: allocation.Window{Every: 60},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"a": 1, "b": 1}},
	})
	w.Advance(start + 10)
	var sum int64
	for i := range 2 {
		out := w.Owner(i).OfferEach(labels, "requests", []int64{3, 3, 1, 100})
		sum += out.Units
		if out.Units != 4 || len(out.Refused) == 0 {
			t.Errorf("region %d: %+v", i, out)
		}
	}
	w.Drain(0, true)
	w.Advance(start + 70)
	if held, _ := w.Owner(1).Standing("x"); held != 10 {
		t.Errorf("b holds %d while a drains", held)
	}
	if w.Err() != nil {
		t.Error(w.Err())
	}
}

// Requests that are decided together come to what they would one by one.
func TestOfferIsManyDecisions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		together, labels := twoRegions(nil)
		apart, _ := twoRegions(nil)
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			costs := rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 12).Draw(t, "costs")
			var out Outcome
			if rapid.Bool().Draw(t, "alike") {
				for i := range costs {
					costs[i] = costs[0]
				}
				out = together.Owner(0).Offer(labels, "requests", int64(len(costs)), costs[0])
			} else {
				out = together.Owner(0).OfferEach(labels, "requests", costs)
			}
			var n, units, refused int64
			for _, c := range costs {
				if apart.Owner(0).Decide(labels, map[string]int64{"requests": c}).Admitted() {
					n, units = n+1, units+c
				} else {
					refused++
				}
			}
			for _, r := range out.Refused {
				refused -= r.N
			}
			if out.Admitted != n || out.Units != units || refused != 0 {
				t.Fatalf("%+v, and one by one %d requests with %d units", out, n, units)
			}
		}
	})
}
