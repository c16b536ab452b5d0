package fleet

import (
	"math/rand/v2"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/world"
)

// If the versions agreed about all midnights, or if nobody's midnight came while a run is on its way, two versions of the
// time-zone data would be no fault.
func TestZoneVersions(t *testing.T) {
	start := world.DefaultStart
	w := allocation.Window{Calendar: "day", Zone: zoneName}
	differ, soon := 0, 0
	for seed := range uint64(50) {
		z := newZonesPlan(rand.New(rand.NewPCG(seed, 1)), 3, start)
		var ends []allocation.Instant
		for _, v := range z.versions {
			p, ok := w.With(func(string) (*time.Location, error) { return v.zone, nil }).PeriodAt(allocation.At(start))
			if !ok {
				t.Fatalf("seed %d: %s names no period", seed, v.name)
			}
			ends = append(ends, p.End)
			if left := p.End - allocation.At(start); left > 0 && left <= zoneLasts+40 {
				soon++
			}
		}
		for _, e := range ends {
			if e != ends[0] {
				differ++
				break
			}
		}
		for _, v := range z.first {
			if v < zoneUnknown || v >= len(z.versions) {
				t.Errorf("seed %d: version %d", seed, v)
			}
		}
	}
	if differ < 30 || soon < 80 {
		t.Errorf("in %d of 50 worlds the versions differ, and %d midnights come soon", differ, soon)
	}
	real, ok := w.PeriodAt(allocation.At(start))
	if made, known := w.With(nil).PeriodAt(allocation.At(start)); !ok || !known || made != real {
		t.Errorf("%v, %v: without a source the process's own data counts", made, real)
	}
	if _, known := w.With(func(string) (*time.Location, error) { return nil, errNoZone }).PeriodAt(0); known {
		t.Error("a period of a zone that is not known")
	}
}
