package scenario

import (
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of a scenario.
const (
	MaxRegions  = 16
	MaxBudgets  = 32
	MaxDemand   = 256
	MaxEvents   = 1000
	MaxSteps    = 5000
	MaxTicks    = 100_000
	MaxRequests = 30_000_000 // of demand whose costs differ; where they are all alike the number does not matter
	maxRate     = 10_000_000
)

// What a caller does when it is refused.
const (
	GiveUp    = "give_up"
	RetryOnce = "retry_once" // after the answer's Retry-After
)

// Scenario is a world, its demand, and what happens to it. Load makes one; it is valid by construction.
type Scenario struct {
	Name     string // of the file, without its folder and ending
	LookFor  string // what a reader should see in the result
	Start    allocation.Instant
	Duration allocation.Duration
	Step     allocation.Duration // of what is recorded; it divides Duration
	Tick     allocation.Duration // in which arrivals are taken together; it divides Step
	Regions  []Region
	Budgets  []allocation.Budget
	Demand   []Demand
	Events   []Event // by At
	Refused  string  // GiveUp or RetryOnce

	Alternatives Alternatives
}

// Region is one failure domain.
type Region struct {
	Name      string
	RoundTrip time.Duration            // to the coordinator
	To        map[string]time.Duration // the round trip to each other region
	UTCOffset allocation.Duration      // seconds east of UTC, may be negative: when its day is
	Nodes     int64                    // processes that answer callers
}

// Demand is one stream of requests for one budget, over some regions.
type Demand struct {
	Budget string
	Rate   float64 // requests per second, all regions together, the mean over a day
	Skew   map[string]float64
	Daily  Daily
	Growth float64 // per day, 0.1 is ten per cent
	Noise  float64 // the standard deviation of a minute's factor
	Cost   Cost
	Bursts []Burst
	Trace  *Trace // instead of Rate
}

// Daily is the shape of a region's day: a bump around Peak, Hours wide, over a floor of Low. Its mean is 1.
type Daily struct {
	Peak  allocation.Duration // local time of day
	Hours float64             // 0: no shape
	Low   float64             // the floor, as a part of the peak
}

// Cost is what a request costs in its budget's unit. Exactly one form is used.
type Cost struct {
	Fixed     int64
	Uniform   [2]int64
	Median    int64 // with P99: lognormal
	P99       int64
	Choices   []int64 // with Weights
	Weights   []float64
	MostUnits int64 // costs are cut off here: the budget's limit, so that none is impossible by accident
}

// Burst multiplies the rate for a while.
type Burst struct {
	At, Until allocation.Duration // since the start
	Times     float64
	Regions   []string // none: all
}

// Trace is demand from a file of lines time,region,units.
type Trace struct {
	File string
	// Every is how long a line holds: its units are demanded evenly from its time on.
	Every allocation.Duration
	Rows  []TraceRow // by region, then time
}

// TraceRow is one line of a trace.
type TraceRow struct {
	At     allocation.Duration // since the start
	Region int
	Units  int64
}

// The events.
const (
	Partition       = "partition"
	CoordinatorLoss = "coordinator_loss"
	DatabaseLoss    = "database_loss"
	NodeCrash       = "node_crash"
	ChangeBudget    = "change_budget"
	Rebalance       = "rebalance"
	Drain           = "drain"
	Resume          = "resume"
)

// Directions of a partition, and what it cuts a region off from.
const (
	BothWays        = "both"
	ToCoordinator   = "outgoing" // what the region sends is lost
	FromCoordinator = "incoming" // what is sent to the region is lost

	FromEverything      = "everything" // all of the wide-area network
	FromCoordinatorOnly = "coordinator"

	DataKept = "kept"
	DataLost = "lost"
)

// Event is one line of the timeline.
type Event struct {
	Kind      string
	Region    string
	Budget    string
	At        allocation.Duration // since the start
	Until     allocation.Duration // for those that last
	Direction string
	From      string
	Down, Up  allocation.Duration // of a flapping link: the cycle begins with Down; 0: it stays down
	Data      string              // of a lost database: kept or lost
	Limit     *int64
	Weights   map[string]int64
	To        string // of a rebalance
	Units     int64
	Nodes     int64 // that crash
	Line      int   // in its file
}

// lasts says whether the event has an end.
func (e Event) lasts() bool {
	switch e.Kind {
	case Partition, CoordinatorLoss, DatabaseLoss, NodeCrash:
		return true
	}
	return false
}

// Alternatives are the settings of what Tranche is compared with.
type Alternatives struct {
	StaticWeights map[string]int64    // none: equal parts
	Home          string              // the single home; the first region if it is not said
	RowPerSecond  int64               // what one hot row bears
	RowTimeout    allocation.Duration // how long a caller waits for it
	SyncEvery     allocation.Duration // of counters that synchronize later
}

// tickFor is the shortest tick of at least a second with which a run has at most MaxTicks.
func (s Scenario) tickFor() allocation.Duration {
	for _, tick := range []allocation.Duration{1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600} {
		if s.Step%tick == 0 && int64(s.Duration/tick) <= MaxTicks {
			return tick
		}
	}
	return s.Step
}

// Ticks is how many there are.
func (s Scenario) Ticks() int { return int(s.Duration / s.Tick) }

// Steps is how many are recorded.
func (s Scenario) Steps() int { return int(s.Duration / s.Step) }

// End is the instant at which the run is over.
func (s Scenario) End() allocation.Instant { return s.Start + allocation.Instant(s.Duration) }

// RegionNames are the names, in the order of the file.
func (s Scenario) RegionNames() []string {
	names := make([]string, len(s.Regions))
	for i, r := range s.Regions {
		names[i] = r.Name
	}
	return names
}

func (s Scenario) region(name string) int {
	return slices.IndexFunc(s.Regions, func(r Region) bool { return r.Name == name })
}

func (s Scenario) budget(name string) int {
	return slices.IndexFunc(s.Budgets, func(b allocation.Budget) bool { return b.Name == name })
}
