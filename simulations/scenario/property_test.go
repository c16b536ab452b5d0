package scenario

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"tranche/allocation"
)

// drawn is a scenario of one or two hours with whatever may happen in one.
func drawn(t *rapid.T) Scenario {
	text := fmt.Sprintf(`start: 2026-03-02T22:30:00Z
duration: %s
step: 1m
tick: %s
on_refusal: %s
regions:
  - {name: a, round_trip: 10ms, utc_offset: "-05:00"}
  - {name: b, round_trip: 400ms, nodes: 1}
  - {name: c, round_trip: 3s}
budgets:
  - budget: x
    unit: tokens
    limit: %d
    window: %s
    allocation: {policy: fixed, weights: {a: 3, b: 1, c: 2}}
    runs_alone_for: %s
demand:
  - budget: x
    rate: %d
    noise: 0.5
    daily: {peak: 14:00, hours: 10, low: 0.3}
    cost: %s
    bursts: [{at: 10m, until: 20m, times: 5, regions: [b]}]
events:
`,
		rapid.SampledFrom([]string{"1h", "80m"}).Draw(t, "duration"), rapid.SampledFrom([]string{"5s", "10s", "1m"}).Draw(t, "tick"),
		rapid.SampledFrom([]string{GiveUp, RetryOnce}).Draw(t, "on refusal"), rapid.SampledFrom([]int{0, 7, 900, 20_000}).Draw(t, "limit"),
		rapid.SampledFrom([]string{"{every: 1m}", "{every: 10m}", "{calendar: day}", "{once: {from: 2026-03-02T23:00:00Z}}"}).Draw(t, "window"),
		rapid.SampledFrom([]string{"5m", "1h", "6h"}).Draw(t, "alone"), rapid.IntRange(1, 40).Draw(t, "rate"),
		rapid.SampledFrom([]string{"1", "{uniform: [0, 9]}", "{median: 20, p99: 200}", "{choices: {1: 9, 5000: 1}}"}).Draw(t, "cost"))
	region := rapid.SampledFrom([]string{"a", "b", "c"})
	at := func() (int, int) {
		from := rapid.IntRange(0, 50).Draw(t, "at")
		return from, from + rapid.IntRange(1, 9).Draw(t, "for")
	}
	for range rapid.IntRange(0, 8).Draw(t, "events") {
		from, until := at()
		r := region.Draw(t, "region")
		line := rapid.SampledFrom([]string{
			fmt.Sprintf("event: partition, region: %s, at: %dm, until: %dm", r, from, until),
			fmt.Sprintf("event: partition, region: %s, at: %dm, until: %dm, direction: incoming", r, from, until),
			fmt.Sprintf("event: partition, region: %s, at: %dm, until: %dm, direction: outgoing, from: coordinator", r, from, until),
			fmt.Sprintf("event: partition, region: %s, at: %dm, until: %dm, down: 3s, up: 9s", r, from, until),
			fmt.Sprintf("event: coordinator_loss, at: %dm, until: %dm", from, until),
			fmt.Sprintf("event: database_loss, region: %s, at: %dm, until: %dm", r, from, until),
			fmt.Sprintf("event: database_loss, region: %s, at: %dm, until: %dm, data: lost", r, from, until),
			fmt.Sprintf("event: node_crash, region: %s, at: %dm, until: %dm", r, from, until),
			fmt.Sprintf("event: change_budget, budget: x, at: %dm, limit: %d", from, until*20),
			fmt.Sprintf("event: change_budget, budget: x, at: %dm, weights: {%s: 1}", from, r),
			fmt.Sprintf("event: rebalance, budget: x, region: a, to: %s, units: %d, at: %dm", r, until, from),
			fmt.Sprintf("event: drain, region: %s, at: %dm", r, from),
		}).Draw(t, "event")
		// One that cannot be in this timeline is left out.
		if s, err := parse("drawn.yaml", []byte(text+"  - {"+line+"}\n")); err == nil && len(s.Events) > 0 {
			text += "  - {" + line + "}\n"
		}
	}
	if text[len(text)-len("events:\n"):] == "events:\n" {
		text = text[:len(text)-len("events:\n")]
	}
	s, err := parse("drawn.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// Whatever happens, nothing is admitted above what was promised, every request is accounted for, and the engine finds its
// own ledgers in order.
func TestNeverAbove(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		series, err := Protocol{}.Run(t.Context(), s, rapid.Uint64().Draw(t, "seed"), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range series.Budgets {
			if n := sum(b.Over); n != 0 {
				t.Errorf("%d above the limit", n)
			}
			for _, x := range b.Regions {
				of := x.totals(0, s.Steps())
				if of.Demanded != of.Admitted+of.Refused {
					t.Errorf("%s: %d demanded, %d admitted, %d refused", x.Region, of.Demanded, of.Admitted, of.Refused)
				}
			}
		}
	})
}

// A recorder that never saw anything above a limit would prove nothing.
func TestRecorderSeesWhatIsAbove(t *testing.T) {
	s := parsed(t, small)
	r := NewRecorder("broken", s)
	r.Admitted(0, 0, 0, 1, 2900, 0, s.Start, 3000)
	r.Admitted(10, 0, 1, 1, 150, 0, s.Start, 3000)
	r.Admitted(70, 0, 1, 1, 3000, 0, s.Start+60, 3000)
	if over := r.Series().Budgets[0].Over; sum(over) != 50 || over[1] != 50 {
		t.Errorf("%v", over[:8])
	}
}

// The demand is what the file says: its mean, its day, and its burst.
func TestArrivals(t *testing.T) {
	const day = `start: 2026-03-02T00:00:00Z
duration: 24h
step: 1h
tick: 1m
regions:
  - {name: a, round_trip: 0s, utc_offset: "-05:00"}
  - {name: b, round_trip: 0s, utc_offset: "+05:30"}
budgets:
  - {budget: x, unit: requests, limit: 1, window: {every: 1h}, allocation: {policy: home, region: a}}
demand:
  - {budget: x, rate: 10, skew: {a: 3, b: 1}, daily: {peak: 14:00, hours: 12, low: 0.2}, noise: 0.2}
`
	s := parsed(t, day)
	var hours [2][24]float64
	var sums [2]float64
	a := NewArrivals(s, 3)
	for k := range s.Ticks() {
		a.Tick(k, func(b Batch) {
			hours[b.Region][k/60] += float64(b.N)
			sums[b.Region] += float64(b.N)
		})
	}
	for i, want := range []float64{648_000, 216_000} {
		if math.Abs(sums[i]/want-1) > 0.03 {
			t.Errorf("region %d made %.0f requests, not %.0f", i, sums[i], want)
		}
	}
	for i, peak := range []int{19, 8} { // 14:00 there, in UTC
		if at := slices.Index(hours[i][:], slices.Max(hours[i][:])); at < peak-1 || at > peak {
			t.Errorf("region %d is busiest at %d", i, at)
		}
	}
	if d := (Daily{Peak: 14 * 3600, Hours: 12, Low: 0.2}); math.Abs(d.at(s.Start+14*3600, 0)/d.at(s.Start, 0)-5) > 1e-9 {
		t.Error("the floor is not a fifth of the peak")
	}
}

// A flapping link, one direction, and what crashes are as the timeline says.
func TestTimeline(t *testing.T) {
	s := parsed(t, small+`  - {event: partition, region: a, at: 1m, until: 3m, direction: incoming, down: 10s, up: 20s}
  - {event: node_crash, region: a, at: 12m, until: 13m}
  - {event: node_crash, region: b, nodes: 2, at: 12m, until: 13m}
`)
	line := NewTimeline(s)
	for at, want := range map[allocation.Duration][2]bool{59: {true, true}, 60: {true, false}, 69: {true, false}, 70: {true, true}, 90: {true, false}, 180: {true, true}} {
		if calls, answers := line.Reaches(0, at); [2]bool{calls, answers} != want {
			t.Errorf("at %d: %v %v", at, calls, answers)
		}
	}
	if line.Connected(0, 1, 65) || !line.Connected(0, 1, 75) || line.Connected(0, 1, 400) || !line.Connected(1, 1, 400) {
		t.Error("connections are not as the partitions say")
	}
	if !line.Hears(0, 1, 65) || line.Hears(1, 0, 65) {
		t.Error("what a sends is heard, and what is sent to a is not")
	}
	if p, q := line.NodesLost(0, 720), line.NodesLost(0, 721); p != 0.5 || q != 0 {
		t.Errorf("of two nodes one crashed: %f, then %f", p, q)
	}
	if line.NodesLost(1, 750) != 1 {
		t.Error("no node is left in b")
	}
}
