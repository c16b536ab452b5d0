package fleet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"tranche/allocation"
)

// zoneName is the zone of the budgets by whose midnights two versions of the time-zone data differ.
const zoneName = "Europe/Berlin"

const (
	oneDay      = int64(24 * time.Hour / time.Second)
	zoneLasts   = 120 // seconds of a run in which its midnight, or the change of its clocks, may be
	zoneUnknown = -1
)

// zoneData is one version of the rules of a zone: how far its clocks are ahead of UTC, and when that changes. Its offsets
// are not those of any real zone, so that it is midnight there while a run is on its way.
type zoneData struct {
	name          string
	before, after int64 // seconds ahead of UTC
	at            int64 // the instant of the change; 0: there is none, and before holds for ever
	zone          *time.Location
}

// zonesPlan is what the seed makes of the time-zone data: the versions, and which of them each replica begins with.
type zonesPlan struct {
	versions []zoneData
	first    []int // by replica; zoneUnknown: its data lacks the zone
}

// newZonesPlan draws the rules, and what other versions make of them.
func newZonesPlan(r *rand.Rand, replicas int, start time.Time) (z zonesPlan) {
	began := start.Unix()
	midnight := began + 5 + r.Int64N(zoneLasts)
	first := zoneData{name: "first", before: -(midnight % oneDay), at: began + r.Int64N(zoneLasts)}
	first.after = first.before + oneOf[int64](r, -7200, -3600, -1800, -20, 20, 1800, 3600)
	week := first
	week.name, week.at = "the change a week later", first.at+7*oneDay
	never := zoneData{name: "the change abolished", before: first.before}
	early := first
	early.name, early.at = "the change long ago", first.at-7*oneDay
	other := zoneData{name: "another offset", before: first.before + oneOf[int64](r, -3600, -30, -3, 3, 30, 3600)}
	z.versions = []zoneData{first, week, never, early, other}
	for i := range z.versions {
		z.versions[i].load()
	}
	for range replicas {
		v := r.IntN(len(z.versions))
		if r.IntN(8) == 0 {
			v = zoneUnknown
		}
		z.first = append(z.first, v)
	}
	return z
}

// of is the version that a replica begins with; 0 in a plan without versions.
func (z zonesPlan) of(replica int) int {
	if len(z.first) == 0 {
		return 0
	}
	return z.first[replica%len(z.first)]
}

// load makes the zone from data of the form that real time-zone data has (RFC 9636, version 1).
func (d *zoneData) load() {
	times, kinds, offsets := []int32{math.MinInt32}, []byte{0}, []int64{d.before}
	if d.at != 0 {
		times, kinds, offsets = append(times, int32(d.at)), append(kinds, 1), append(offsets, d.after)
	}
	var out bytes.Buffer
	out.WriteString("TZif")
	out.Write(make([]byte, 16))
	put := func(v any) { _ = binary.Write(&out, binary.BigEndian, v) } // to memory: never fails
	put([]int32{0, 0, 0, int32(len(times)), int32(len(offsets)), 4})
	put(times)
	out.Write(kinds)
	for _, offset := range offsets {
		put(int32(offset))
		out.Write([]byte{0, 0})
	}
	out.WriteString("SIM\x00")
	zone, err := time.LoadLocationFromTZData(zoneName, out.Bytes())
	if err != nil {
		panic(fmt.Sprint("fleet: time-zone data of our own making: ", err))
	}
	d.zone = zone
}

var errNoZone = errors.New("this version of the time-zone data does not know the zone")

// zones is the time-zone data of a replica's machine, as it is now.
func (r *replica) zones(name string) (*time.Location, error) {
	switch {
	case name != zoneName || len(r.fleet.plan.zones.versions) == 0:
		return time.LoadLocation(name)
	case r.zoneData == zoneUnknown:
		return nil, errNoZone
	}
	return r.fleet.plan.zones.versions[r.zoneData].zone, nil
}

// setZones gives a replica's machine another version of the data, while it runs.
func (r *replica) setZones(version int) {
	if len(r.fleet.plan.zones.versions) == 0 {
		return
	}
	name := "without " + zoneName
	if version != zoneUnknown {
		name = r.fleet.plan.zones.versions[version].name
	}
	r.zoneData = version
	r.fleet.w.Trace("zones", r.process.Name()+" has "+name)
}

// upgradeZones gives one replica another version, an older one now and then.
func (x *faults) upgradeZones() {
	v := x.random.IntN(len(x.fleet.plan.zones.versions)+1) - 1
	x.replica().setZones(v)
}

// drawZoned adds a budget whose periods end at the midnights of that zone, in some runs.
func (p *plan) drawZoned(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	limit := int64(40 + r.IntN(200))
	b := allocation.Budget{
		Name: "zoned", Unit: "requests", Limit: &limit, Match: map[string]string{"tenant": tenantOnce}, Allocation: p.even(),
		Window: allocation.Window{Calendar: oneOf(r, "day", "day", "week", "month"), Zone: zoneName}, LongestReservation: allocation.Duration(2 + r.IntN(15)),
		OnLapse: oneOf(r, allocation.OnLapseSpend, allocation.OnLapseRelease), RunsAloneFor: 60,
	}
	p.budgets = append(p.budgets, budgetPlan{Budget: b})
}

// drawPlaces adds a template whose instances name their home, in some runs.
func (p *plan) drawPlaces(r *rand.Rand) {
	if r.IntN(2) == 0 {
		return
	}
	limit := int64(3 + r.IntN(12))
	b := allocation.Budget{
		Name: "in/{place}", Unit: "requests", Limit: &limit, Match: map[string]string{"tenant": tenantPlaced},
		Allocation: allocation.Policy{Policy: allocation.PolicyHome, RegionFrom: "place"}, MaxInstances: int64(len(p.regions)),
		Window: allocation.Window{Every: allocation.Duration(oneOf(r, 10, 15, 30))}, LongestReservation: allocation.Duration(2 + r.IntN(15)),
		OnLapse: oneOf(r, allocation.OnLapseSpend, allocation.OnLapseRelease), RunsAloneFor: 60,
	}
	p.budgets = append(p.budgets, budgetPlan{Budget: b})
}
