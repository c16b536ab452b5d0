package bench

import (
	"slices"
	"time"
)

// Report is what `tranche bench --json` prints.
type Report struct {
	Format  int       `json:"format"`
	At      time.Time `json:"at"`
	Version string    `json:"version"`
	Machine Machine   `json:"machine"`
	Each    string    `json:"each"`   // how long an arm was measured in one round
	Rounds  int       `json:"rounds"` // how often the arms of a case took turns
	Cases   []Case    `json:"cases"`
}

// Machine is what was measured on.
type Machine struct {
	CPUs     int               `json:"cpus"`
	OS       string            `json:"os"`
	Go       string            `json:"go"`
	Postgres string            `json:"postgres"`
	Settings map[string]string `json:"postgres_settings"`
}

// Case is one case with its arms.
type Case struct {
	Name     string     `json:"name"`
	What     string     `json:"what"`
	Measured []Measured `json:"measured"`
	Figures  []Figure   `json:"figures"`
	Books    []Books    `json:"books"`
	Notes    []string   `json:"notes,omitempty"`
}

// Measured is what came of one arm.
type Measured struct {
	Arm         string    `json:"arm"`
	What        string    `json:"what"`
	Rate        float64   `json:"rate_per_s"`   // decisions a second, the median of the rounds
	Rounds      []float64 `json:"rounds_per_s"` // of each round
	Admitted    int64     `json:"admitted"`
	Replayed    int64     `json:"replayed"`
	Refused     int64     `json:"refused"`
	Unavailable int64     `json:"unavailable"` // 503, nothing charged
	Unknown     int64     `json:"unknown"`     // without the truth until the end
	P50         float64   `json:"p50_ms"`
	P99         float64   `json:"p99_ms"`
	P999        float64   `json:"p999_ms"`
	Max         float64   `json:"max_ms"`
	Batch       float64   `json:"batch,omitempty"` // requests a transaction, where that is known
	// CPU is microseconds of the processor for each answer, of Postgres and of this process, clients included. It says what a
	// rate says on a machine that has nothing else to do, and is disturbed less by one that has. 0: not known on this system.
	CPU float64 `json:"cpu_us,omitempty"`
}

// Figure is a ratio or a bound that was measured, and what it should be.
type Figure struct {
	Name    string   `json:"name"`
	Value   float64  `json:"value"`
	Unit    string   `json:"unit"` // empty for a plain ratio
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
	Reached *bool    `json:"reached,omitempty"` // absent for a figure that is only shown
}

// Books compare what clients were told with what the database holds.
type Books struct {
	Of       string `json:"of"`
	Told     int64  `json:"told"`  // units of the admissions that clients were told of
	Spent    int64  `json:"spent"` // of the counters
	IDs      int64  `json:"ids"`   // admission ids in the database
	Agree    bool   `json:"agree"`
	Unknowns int64  `json:"unknowns,omitempty"` // requests whose truth was never told: so many may be charged beyond Told
}

// Agree says whether the books of all cases do.
func (r *Report) Agree() bool {
	for _, c := range r.Cases {
		for _, b := range c.Books {
			if !b.Agree {
				return false
			}
		}
	}
	return true
}

func (c *Case) atLeast(name string, value, bound float64) {
	reached := value >= bound
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, AtLeast: &bound, Reached: &reached})
}

func (c *Case) atMost(name string, value float64, unit string, bound float64) {
	reached := value <= bound
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, Unit: unit, AtMost: &bound, Reached: &reached})
}

func (c *Case) shown(name string, value float64, unit string) {
	c.Figures = append(c.Figures, Figure{Name: name, Value: value, Unit: unit})
}

// series is the rounds of one arm.
type series struct {
	arm    arm
	rounds []tally
}

func (s *series) sum() (t tally) {
	for i := range s.rounds {
		t.merge(&s.rounds[i])
	}
	return t
}

func (s *series) rates() (rates []float64) {
	for i := range s.rounds {
		rates = append(rates, s.rounds[i].rate())
	}
	return rates
}

// processor shows how the processor's time for each answer of one arm compares with that of another, which a busy machine
// disturbs less than rates.
func (c *Case) processor(name string, of, by *series) {
	if f := ratio(by.perProcessor(nil), of.perProcessor(nil)); f > 0 {
		c.shown(name, f, "")
	}
}

// perProcessor is decisions for each second of the processor's time, without what the load of another arm took to be made,
// request by request; nil where that time is not known.
func (s *series) perProcessor(load *series) (list []float64) {
	each := 0.0
	if load != nil {
		t := load.sum()
		each = t.cpu / float64(max(1, t.latency.n))
	}
	for i := range s.rounds {
		t := &s.rounds[i]
		if t.cpu <= 0 {
			return nil
		}
		if left := t.cpu - each*float64(t.latency.n); left > 0 {
			list = append(list, float64(t.decided())/left)
		}
	}
	return list
}

func (s *series) medians() []float64 { return s.quantiles(0.5) }

func (s *series) tails() []float64 { return s.quantiles(0.99) }

func (s *series) quantiles(q float64) (list []float64) {
	for i := range s.rounds {
		list = append(list, float64(s.rounds[i].latency.quantile(q)))
	}
	return list
}

func (s *series) measured() Measured {
	t := s.sum()
	var batches []float64
	for i := range s.rounds {
		batches = append(batches, s.rounds[i].batch)
	}
	return Measured{
		Arm: s.arm.name, What: s.arm.what, Rate: median(s.rates()), Rounds: s.rates(),
		Admitted: t.counts[admitted], Replayed: t.counts[replayed], Refused: t.counts[refused],
		Unavailable: t.counts[unavailable], Unknown: t.counts[unknown] + t.counts[failed],
		P50: millis(t.latency.quantile(0.5)), P99: millis(t.latency.quantile(0.99)), P999: millis(t.latency.quantile(0.999)),
		Max: millis(t.latency.most()), Batch: median(batches),
		CPU: 1e6 * t.cpu / float64(max(1, t.decided()+t.counts[unavailable])),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}

// ratio is the median over the rounds of one arm's value by the other's.
func ratio(of, by []float64) float64 {
	var all []float64
	for i := range min(len(of), len(by)) {
		if by[i] > 0 {
			all = append(all, of[i]/by[i])
		}
	}
	return median(all)
}
