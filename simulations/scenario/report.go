package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
)

// ReportFormat is the format number of a report's JSON.
const ReportFormat = 1

// Options of a run.
type Options struct {
	Seed   uint64
	Engine Engine // nil: Protocol
	// Progress, if not nil, is called from time to time: what is being run, and how much of all is done, 0 to 1.
	Progress func(what string, done float64)
}

// Report is what a scenario came to: for Tranche, and for the same demand under each alternative. As JSON it is the file
// report.json. The same scenario, seed and engine make the same bytes.
type Report struct {
	Format    int                 `json:"format"`
	Scenario  string              `json:"scenario"`
	LookFor   string              `json:"look_for,omitempty"`
	Seed      uint64              `json:"seed"`
	Engine    string              `json:"engine"`
	Start     allocation.Instant  `json:"start"`
	Duration  allocation.Duration `json:"duration"`
	Step      allocation.Duration `json:"step"` // of the lists in series
	Tick      allocation.Duration `json:"tick"` // arrivals within one tick are taken together
	OnRefusal string              `json:"on_refusal"`
	Regions   []ReportRegion      `json:"regions"`
	Declared  []allocation.Budget `json:"budgets"`
	Events    []ReportEvent       `json:"events"`
	Designs   []Design            `json:"designs"`   // tranche first, the yardstick last
	Summaries []Summary           `json:"summaries"` // by budget, then design
	Incidents []Incident          `json:"incidents"`
	Series    []Series            `json:"series"` // one for each design, in their order
}

// ReportRegion is a region of the scenario.
type ReportRegion struct {
	Name            string           `json:"region"`
	RoundTripMicros int64            `json:"round_trip_us"` // to the coordinator
	To              map[string]int64 `json:"to_us"`         // to each other region
}

// ReportEvent is an event of the timeline; times are since the start, like 1h15m.
type ReportEvent struct {
	Event  string              `json:"event"`
	Region string              `json:"region,omitempty"`
	Budget string              `json:"budget,omitempty"`
	At     allocation.Duration `json:"at"`
	Until  allocation.Duration `json:"until,omitempty"`
	Says   string              `json:"says"` // in words
}

// Design is one way to enforce the budgets, and what its model takes for granted.
type Design struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Assumes string `json:"assumes"`
}

// protocolAssumes says what the protocol engine leaves out, for the report.
const protocolAssumes = "The real protocol: ledgers, shares, usage rows and decisions are those of the product, and every step is checked against its invariants. " +
	"A commit in the region takes no time here, and etcd and Postgres themselves are not simulated. Calls to the coordinator are made every second and take half a round trip each way."

// Run runs a scenario and all alternatives.
func Run(ctx context.Context, s Scenario, o Options) (Report, error) {
	engine := o.Engine
	if engine == nil {
		engine = Protocol{}
	}
	// The engine takes most of the time.
	const share = 0.75
	ours, err := engine.Run(ctx, s, o.Seed, part(o.Progress, "tranche", 0, share))
	if err != nil {
		return Report{}, fmt.Errorf("run %s with engine %s: %w", s.Name, engine.Name(), err)
	}
	ours.Name = NameTranche
	others, assumptions, err := runAlternatives(ctx, s, o.Seed, part(o.Progress, "alternatives", share, 1))
	if err != nil {
		return Report{}, fmt.Errorf("run the alternatives of %s: %w", s.Name, err)
	}
	if o.Progress != nil {
		o.Progress("done", 1)
	}
	r := Report{
		Format: ReportFormat, Scenario: s.Name, LookFor: s.LookFor, Seed: o.Seed, Engine: engine.Name(), Start: s.Start,
		Duration: s.Duration, Step: s.Step, Tick: s.Tick, OnRefusal: s.Refused, Declared: s.Budgets,
		Events: []ReportEvent{}, Incidents: []Incident{},
		Series: append([]Series{ours}, others...),
	}
	r.Designs = []Design{{NameTranche, titleOf(s, NameTranche), protocolAssumes}}
	for i, x := range others {
		r.Designs = append(r.Designs, Design{x.Name, titleOf(s, x.Name), assumptions[i]})
	}
	r.describe(s)
	for b := range s.Budgets {
		for d := range r.Series {
			r.Summaries = append(r.Summaries, r.summarize(d, b))
		}
	}
	r.Incidents = append(r.Incidents, r.incidents(s)...)
	return r, nil
}

func part(progress func(string, float64), what string, from, to float64) func(float64) {
	if progress == nil {
		return nil
	}
	return func(done float64) { progress(what, from+done*(to-from)) }
}

func titleOf(s Scenario, name string) string {
	switch name {
	case NameTranche:
		return "Tranche"
	case NameStatic:
		return "static split"
	case NameHome:
		return "single home (" + s.Alternatives.Home + ")"
	case NameRow:
		return "one global row"
	case NameLater:
		return "counters that sync later"
	}
	return "possible"
}

func (r *Report) describe(s Scenario) {
	for _, region := range s.Regions {
		x := ReportRegion{Name: region.Name, RoundTripMicros: region.RoundTrip.Microseconds(), To: map[string]int64{}}
		for name, d := range region.To {
			x.To[name] = d.Microseconds()
		}
		r.Regions = append(r.Regions, x)
	}
	for _, e := range s.Events {
		r.Events = append(r.Events, ReportEvent{Event: e.Kind, Region: e.Region, Budget: e.Budget, At: e.At, Until: e.Until, Says: e.says()})
	}
}

// says tells an event in words.
func (e Event) says() string {
	switch e.Kind {
	case Partition:
		text := e.Region + " is cut off"
		if e.From == FromCoordinatorOnly {
			text += " from the coordinator"
		}
		switch e.Direction {
		case ToCoordinator:
			text += ": what it sends is lost"
		case FromCoordinator:
			text += ": what is sent to it is lost"
		}
		if e.Down > 0 {
			text += fmt.Sprintf(", %s down and %s up in turns", e.Down, e.Up)
		}
		return text
	case CoordinatorLoss:
		return "the coordinator is lost"
	case DatabaseLoss:
		if e.Data == DataLost {
			return "the database of " + e.Region + " is lost, and its data with it"
		}
		return "the database of " + e.Region + " is lost"
	case NodeCrash:
		if e.Nodes == 1 {
			return "a node of " + e.Region + " crashes"
		}
		return fmt.Sprintf("%d nodes of %s crash", e.Nodes, e.Region)
	case ChangeBudget:
		var parts []string
		if e.Limit != nil {
			parts = append(parts, fmt.Sprintf("limit %d", *e.Limit))
		}
		for _, region := range slices.Sorted(maps.Keys(e.Weights)) {
			parts = append(parts, fmt.Sprintf("%s %d", region, e.Weights[region]))
		}
		return e.Budget + " changes: " + strings.Join(parts, ", ")
	case Rebalance:
		return fmt.Sprintf("%d of %s move from %s to %s", e.Units, e.Budget, e.Region, e.To)
	case Drain:
		return e.Region + " is drained"
	}
	return e.Region + " takes permits again"
}

// series finds a design's series of a budget.
func (r *Report) series(design string, budget int) *BudgetSeries {
	i := slices.IndexFunc(r.Series, func(s Series) bool { return s.Name == design })
	return &r.Series[i].Budgets[budget]
}

// Summary finds the summary of a design and a budget.
func (r *Report) Summary(design, budget string) (Summary, bool) {
	i := slices.IndexFunc(r.Summaries, func(s Summary) bool { return s.Design == design && s.Budget == budget })
	if i < 0 {
		return Summary{}, false
	}
	return r.Summaries[i], true
}
