package scenario

import (
	"context"
	"maps"
	"slices"
	"time"

	"tranche/allocation"
)

// Engine runs a scenario's demand through some way of enforcing its budgets. The same scenario and seed give the same
// series. Arrivals make the demand; Timeline says what is broken when; Callers try again; a Recorder makes the series.
type Engine interface {
	// Name is how reports name it.
	Name() string
	// Run returns ctx's error when it ends early, and an error when a promise of the protocol was broken.
	// progress, if not nil, is called from time to time with the part that is done, 0 to 1.
	Run(ctx context.Context, s Scenario, seed uint64, progress func(done float64)) (Series, error)
}

// The reasons of refusals that are not the protocol's own. Callers of the alternatives meet them, and those whose
// region has no node left.
const (
	Unreachable = "unreachable" // the home region, or the global row, cannot be reached
	NodeDown    = "node_down"   // no node admitted
)

// Series is what happened, by budget, region and step. All numbers are units of the budget unless they say otherwise.
type Series struct {
	Name    string         `json:"name"`
	Budgets []BudgetSeries `json:"budgets"`
}

// BudgetSeries is one budget. Lists have one number per step.
type BudgetSeries struct {
	Budget      string              `json:"budget"`
	Unit        string              `json:"unit"`
	Limit       []int64             `json:"limit"`         // of a period, at the step's end
	Unallocated []int64             `json:"unallocated"`   // in the running period, at the step's end
	Overcommit  []int64             `json:"overcommitted"` // how far a lowered limit lies below what is already out
	Over        []int64             `json:"over_admitted"` // admitted above the highest limit that the period had
	Lowered     []int64             `json:"above_lowered"` // admitted above a lowered limit, within what was promised before
	Capacity    int64               `json:"capacity"`      // the limits of all periods that the run touches
	Regions     []RegionSeries      `json:"regions"`
	periods     map[int64]*spending // of each period, while it may still be spent from
}

// RegionSeries is one region's part of it.
type RegionSeries struct {
	Region   string             `json:"region"`
	Demanded []int64            `json:"demanded"`
	Granted  []int64            `json:"granted"` // of the running period, less what was returned, at the step's end
	Held     []int64            `json:"held"`    // what of it is neither spent nor reserved
	Spent    []int64            `json:"spent"`   // admitted in the step
	Refused  map[string][]int64 `json:"refused"` // by reason, in the step
	Stranded []int64            `json:"stranded"`
	Latency  []int64            `json:"added_latency_us"` // mean over the step's admitted requests: wide-area round trips in their path

	Requests         int64   `json:"requests"` // that were made; a second try is the same request
	Admitted         int64   `json:"admitted_requests"`
	Retried          int64   `json:"retried_requests"`
	StrandedSeconds  int64   `json:"stranded_permit_seconds"`
	LatencyHistogram []Delay `json:"added_latency_histogram"`

	admitted  []int64 // requests of each step
	latencies map[time.Duration]int64
}

// Delay is how many requests were delayed so long.
type Delay struct {
	Micros   int64 `json:"us"`
	Requests int64 `json:"requests"`
}

// spending is what was admitted in one period, by everybody.
type spending struct {
	allocation.Period
	spent, highest, over, lowered int64
}

// Recorder makes a Series. Times are seconds since the start.
type Recorder struct {
	s      Scenario
	series Series
	tick   allocation.Duration
}

// NewRecorder starts a series.
func NewRecorder(name string, s Scenario) *Recorder {
	r := &Recorder{s: s, tick: s.Tick, series: Series{Name: name}}
	n := s.Steps()
	for _, b := range s.Budgets {
		bs := BudgetSeries{
			Budget: b.Name, Unit: b.Unit, Limit: make([]int64, n), Unallocated: make([]int64, n), Overcommit: make([]int64, n), Over: make([]int64, n), Lowered: make([]int64, n),
			Capacity: s.capacity(b), periods: map[int64]*spending{},
		}
		for _, region := range s.Regions {
			bs.Regions = append(bs.Regions, RegionSeries{
				Region: region.Name, Demanded: make([]int64, n), Granted: make([]int64, n), Held: make([]int64, n), Spent: make([]int64, n),
				Refused: map[string][]int64{}, Stranded: make([]int64, n), Latency: make([]int64, n),
				admitted: make([]int64, n), latencies: map[time.Duration]int64{},
			})
		}
		r.series.Budgets = append(r.series.Budgets, bs)
	}
	return r
}

// capacity is what a budget's limit allows in all periods that the run touches, with its changes.
func (s Scenario) capacity(b allocation.Budget) int64 {
	var sum int64
	p, ok := b.Window.PeriodAt(s.Start)
	if !ok && b.Window.Once != nil {
		p, ok = b.Window.PeriodAt(b.Window.Once.From)
	}
	for ok && p.Start < s.End() {
		sum += s.highest(b, p, s.End())
		p, ok = b.Window.Next(p)
	}
	return sum
}

// highest is the highest limit that a budget has within a period, until some instant.
func (s Scenario) highest(b allocation.Budget, p allocation.Period, until allocation.Instant) int64 {
	now, most := b.LimitOrZero(), int64(0)
	for _, e := range s.Events {
		if e.Kind != ChangeBudget || e.Budget != b.Name || e.Limit == nil {
			continue
		}
		at := s.Start + allocation.Instant(e.At)
		if at > until || at >= p.End {
			break
		}
		if at > p.Start {
			most = max(most, now)
		}
		now = *e.Limit
	}
	return max(most, now)
}

func (r *Recorder) step(at allocation.Duration) int {
	return min(int(at/r.s.Step), r.s.Steps()-1)
}

// Offered enters requests as they are first made.
func (r *Recorder) Offered(at allocation.Duration, budget, region int, requests, units int64) {
	x := &r.series.Budgets[budget].Regions[region]
	x.Demanded[r.step(at)] += units
	x.Requests += requests
}

// Retried enters requests that are made again.
func (r *Recorder) Retried(budget, region int, requests int64) {
	r.series.Budgets[budget].Regions[region].Retried += requests
}

// Admitted enters requests that were admitted, and by how much a wide-area round trip in their path delayed each. Promised
// is the highest limit that anybody still held the period to: after a limit was lowered, what had been handed out before
// may be spent, and only what goes beyond it is over-admitted. At 0 the limits of the scenario alone count.
func (r *Recorder) Admitted(at allocation.Duration, budget, region int, requests, units int64, delay time.Duration, period allocation.Instant, promised int64) {
	b := &r.series.Budgets[budget]
	x, i := &b.Regions[region], r.step(at)
	x.Spent[i] += units
	x.Admitted += requests
	x.latencies[delay] += requests
	x.admitted[i] += requests
	x.Latency[i] += requests * delay.Microseconds()
	p := b.periods[int64(period)]
	if p == nil {
		p = &spending{}
		p.Period, _ = r.s.Budgets[budget].Window.PeriodAt(period)
		b.periods[int64(period)] = p
	}
	p.spent += units
	limit := r.s.highest(r.s.Budgets[budget], p.Period, r.s.Start+allocation.Instant(at))
	p.highest = max(p.highest, promised, limit)
	over := max(0, p.spent-p.highest)
	lowered := max(0, min(p.spent, p.highest)-limit)
	b.Over[i] += over - p.over
	b.Lowered[i] += lowered - p.lowered
	p.over, p.lowered = over, lowered
}

// Refused enters requests that were refused for good.
func (r *Recorder) Refused(at allocation.Duration, budget, region int, reason string, units int64) {
	x, i := &r.series.Budgets[budget].Regions[region], r.step(at)
	if x.Refused[reason] == nil {
		x.Refused[reason] = make([]int64, r.s.Steps())
	}
	x.Refused[reason][i] += units
}

// Standing enters how a region stands in the running period, once per tick.
func (r *Recorder) Standing(at allocation.Duration, budget, region int, granted, held, stranded int64) {
	x, i := &r.series.Budgets[budget].Regions[region], r.step(at)
	x.Granted[i], x.Held[i] = granted, held
	x.Stranded[i] = max(x.Stranded[i], stranded) // a picture must not miss a short one
	x.StrandedSeconds += stranded * int64(r.tick)
}

// Budget enters the limit, and what is unallocated or overcommitted, once per tick.
func (r *Recorder) Budget(at allocation.Duration, budget int, limit, unallocated, overcommitted int64) {
	b, i := &r.series.Budgets[budget], r.step(at)
	b.Limit[i], b.Unallocated[i], b.Overcommit[i] = limit, unallocated, overcommitted
}

// Series returns the series when the run is over.
func (r *Recorder) Series() Series {
	for bi := range r.series.Budgets {
		for ri := range r.series.Budgets[bi].Regions {
			x := &r.series.Budgets[bi].Regions[ri]
			for i, n := range x.admitted {
				if n > 0 {
					x.Latency[i] /= n
				}
			}
			x.LatencyHistogram = []Delay{}
			for _, d := range slices.Sorted(maps.Keys(x.latencies)) {
				x.LatencyHistogram = append(x.LatencyHistogram, Delay{d.Microseconds(), x.latencies[d]})
			}
		}
	}
	return r.series
}
