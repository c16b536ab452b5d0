package scenario

import (
	"math"
	"math/rand/v2"
	"slices"

	"tranche/allocation"
)

// Batch is the requests for one budget that reach one region within one tick, in their order.
type Batch struct {
	Budget, Region int // indexes into the scenario
	N              int64
	Cost           int64   // of each, where Costs is nil
	Costs          []int64 // of each, else; valid until the next batch
}

// Units is what the whole batch costs.
func (b Batch) Units() int64 {
	if b.Costs == nil {
		return b.N * b.Cost
	}
	var sum int64
	for _, c := range b.Costs {
		sum += c
	}
	return sum
}

// Arrivals makes the demand of a scenario from a seed. The same scenario and seed make the same requests, in whatever
// engine: each cell of stream, region and tick has a random number generator of its own.
type Arrivals struct {
	s       Scenario
	seed    uint64
	tick    allocation.Duration
	streams []stream
	costs   []int64
	pcg     rand.PCG
	rng     *rand.Rand
}

// stream is a Demand with what is worked out once.
type stream struct {
	Demand
	budget   int
	rates    []float64 // by region
	factors  []float64 // of the running minute, by region
	minute   int64
	cumulate []float64 // of Cost.Weights
	rows     [][]TraceRow
}

// NewArrivals prepares the demand.
func NewArrivals(s Scenario, seed uint64) *Arrivals {
	a := &Arrivals{s: s, seed: seed, tick: s.Tick}
	a.rng = rand.New(&a.pcg)
	for _, d := range s.Demand {
		st := stream{Demand: d, budget: s.budget(d.Budget), minute: -1}
		st.rates, st.factors = make([]float64, len(s.Regions)), make([]float64, len(s.Regions))
		var sum float64
		for i, r := range s.Regions {
			st.rates[i] = 1
			if d.Skew != nil {
				st.rates[i] = d.Skew[r.Name]
			}
			sum += st.rates[i]
		}
		for i := range st.rates {
			st.rates[i] *= d.Rate / sum
		}
		var w float64
		for _, weight := range d.Cost.Weights {
			w += weight
			st.cumulate = append(st.cumulate, w)
		}
		if d.Trace != nil {
			st.rows = make([][]TraceRow, len(s.Regions))
			for _, row := range d.Trace.Rows {
				st.rows[row.Region] = append(st.rows[row.Region], row)
			}
		}
		a.streams = append(a.streams, st)
	}
	return a
}

// Tick calls yield with each batch of tick k that is not empty. Ticks are asked for in their order, each once.
func (a *Arrivals) Tick(k int, yield func(Batch)) {
	from := allocation.Duration(k) * a.tick
	for i := range a.streams {
		st := &a.streams[i]
		for region := range a.s.Regions {
			if st.Trace != nil {
				a.traced(i, region, k, from, yield)
				continue
			}
			mean := st.rates[region] * float64(a.tick) * a.factor(i, region, from)
			a.seedCell(i, region, k, 1)
			if n := a.poisson(mean); n > 0 {
				yield(a.batch(st, region, n))
			}
		}
	}
}

// batch draws the costs of n requests.
func (a *Arrivals) batch(st *stream, region int, n int64) Batch {
	b := Batch{Budget: st.budget, Region: region, N: n}
	c := st.Cost
	if c.Uniform == [2]int64{} && c.Median == 0 && len(c.Choices) == 0 {
		b.Cost = c.Fixed
		return b
	}
	a.costs = a.costs[:0]
	for range n {
		a.costs = append(a.costs, a.cost(st))
	}
	b.Costs = a.costs
	return b
}

// z99 is the 99th percentile of the normal distribution.
const z99 = 2.3263478740408408

func (a *Arrivals) cost(st *stream) int64 {
	c := st.Cost
	switch {
	case c.Median > 0:
		sigma := math.Log(float64(c.P99)/float64(c.Median)) / z99
		units := float64(c.Median) * math.Exp(sigma*a.rng.NormFloat64())
		return min(max(1, int64(math.Round(units))), c.MostUnits)
	case len(c.Choices) > 0:
		at := a.rng.Float64() * st.cumulate[len(st.cumulate)-1]
		i, _ := slices.BinarySearch(st.cumulate, at)
		return c.Choices[min(i, len(c.Choices)-1)]
	case c.Uniform != [2]int64{}:
		return c.Uniform[0] + a.rng.Int64N(c.Uniform[1]-c.Uniform[0]+1)
	}
	return c.Fixed
}

// factor is by how much a region's rate differs from its mean now: the day, growth, the minute's noise, bursts.
func (a *Arrivals) factor(i, region int, from allocation.Duration) float64 {
	st := &a.streams[i]
	if minute := int64(from / allocation.Minute); minute != st.minute {
		st.minute = minute
		for r := range a.s.Regions {
			f := st.Daily.at(a.s.Start+allocation.Instant(from), a.s.Regions[r].UTCOffset)
			f *= math.Pow(1+st.Growth, float64(from)/float64(allocation.Day))
			if st.Noise > 0 {
				a.seedCell(i, r, int(minute), 2)
				f *= math.Exp(st.Noise*a.rng.NormFloat64() - st.Noise*st.Noise/2)
			}
			st.factors[r] = f
		}
	}
	f := st.factors[region]
	for _, b := range st.Bursts {
		if b.At <= from && from < b.Until && (len(b.Regions) == 0 || slices.Contains(b.Regions, a.s.Regions[region].Name)) {
			f *= b.Times
		}
	}
	return f
}

// at is the factor of a local time of day: a raised cosine, Hours wide, over the floor.
func (d Daily) at(now allocation.Instant, offset allocation.Duration) float64 {
	if d.Hours == 0 {
		return 1
	}
	local := (int64(now) + int64(offset)) % int64(allocation.Day)
	away := math.Abs(float64(local-int64(d.Peak))) / float64(allocation.Hour)
	away = min(away, 24-away)
	bump := 0.0
	if away < d.Hours/2 {
		bump = (1 + math.Cos(2*math.Pi*away/d.Hours)) / 2
	}
	mean := d.Low + (1-d.Low)*d.Hours/24/2
	return (d.Low + (1-d.Low)*bump) / mean
}

// traced cuts the units of a trace that fall into a tick into requests.
func (a *Arrivals) traced(i, region, k int, from allocation.Duration, yield func(Batch)) {
	st := &a.streams[i]
	rows := st.rows[region]
	for len(rows) > 0 && rows[0].At+st.Trace.Every <= from {
		rows = rows[1:]
	}
	st.rows[region] = rows
	a.seedCell(i, region, k, 3)
	for _, row := range rows {
		if row.At >= from+a.tick {
			break
		}
		// What is due by an instant, rounded down, so that the parts of a row add up to it.
		due := func(at allocation.Duration) int64 {
			part := float64(min(max(0, at-row.At), st.Trace.Every)) / float64(st.Trace.Every)
			return int64(math.Floor(float64(row.Units) * part))
		}
		a.cut(st, region, due(from+a.tick)-due(from), yield)
	}
}

// cut makes requests that cost units together; the last one takes what is left.
func (a *Arrivals) cut(st *stream, region int, units int64, yield func(Batch)) {
	if c := st.Cost.Fixed; c > 0 {
		if n := units / c; n > 0 {
			yield(Batch{Budget: st.budget, Region: region, N: n, Cost: c})
		}
		if units%c > 0 {
			yield(Batch{Budget: st.budget, Region: region, N: 1, Cost: units % c})
		}
		return
	}
	a.costs = a.costs[:0]
	for units > 0 {
		c := min(max(1, a.cost(st)), units)
		a.costs, units = append(a.costs, c), units-c
	}
	if len(a.costs) > 0 {
		yield(Batch{Budget: st.budget, Region: region, N: int64(len(a.costs)), Costs: a.costs})
	}
}

func (a *Arrivals) seedCell(stream, region, k int, purpose uint64) {
	a.pcg.Seed(mix(a.seed+purpose), mix(uint64(stream)<<48|uint64(region)<<40|uint64(k)))
}

// mix is the finalizer of splitmix64: near seeds make generators that have nothing in common.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// poisson draws how many requests come when mean are expected; above 50 by the normal distribution.
func (a *Arrivals) poisson(mean float64) int64 {
	if mean <= 0 {
		return 0
	}
	if mean > 50 {
		return max(0, int64(math.Round(mean+math.Sqrt(mean)*a.rng.NormFloat64())))
	}
	limit, product := math.Exp(-mean), a.rng.Float64()
	n := int64(0)
	for product > limit {
		product *= a.rng.Float64()
		n++
	}
	return n
}
