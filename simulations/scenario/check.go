package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/scenario/internal/tree"
)

// check finds what is wrong between fields that are each well formed.
func (l *loader) check() {
	l.checkTimes()
	l.checkRegions()
	l.checkBudgets()
	for i := range l.s.Demand {
		l.checkDemand(i)
	}
	if len(l.s.Demand) == 0 {
		l.Wrong(l.root, "has no demand", "add demand: with a budget and a rate")
	}
	l.checkEvents()
}

// at is the value of a field, or the whole if it is missing.
func at(v *tree.Value, field string) *tree.Value {
	if f := v.Fields[field]; f != nil {
		return f
	}
	return v
}

func (l *loader) checkTimes() {
	s := &l.s
	if s.Start <= 0 {
		l.Wrong(at(l.root, "start"), "start is missing or not after 1970", "give an instant like 2026-03-02T00:00:00Z")
	}
	if s.Duration == 0 {
		l.Wrong(at(l.root, "duration"), "the duration is empty", "give one like 24h")
		return
	}
	if s.Duration > maxDuration {
		l.Wrong(at(l.root, "duration"), fmt.Sprintf("is %s", s.Duration), fmt.Sprintf("use at most %s", maxDuration))
		return
	}
	if s.Step == 0 {
		s.Step = stepFor(s.Duration)
	}
	switch {
	case s.Step > s.Duration || s.Duration%s.Step != 0:
		l.Wrong(at(l.root, "step"), fmt.Sprintf("%s does not divide the duration of %s", s.Step, s.Duration), "use one that does, like 1m for 24h")
	case s.Duration/s.Step > MaxSteps:
		l.Wrong(at(l.root, "step"), fmt.Sprintf("%s makes %d steps", s.Step, s.Duration/s.Step), fmt.Sprintf("use a longer one: at most %d steps", MaxSteps))
	}
	if s.Tick == 0 {
		s.Tick = s.tickFor()
	}
	switch {
	case s.Step%s.Tick != 0:
		l.Wrong(at(l.root, "tick"), fmt.Sprintf("%s does not divide the step of %s", s.Tick, s.Step), "use one that does, like 1s, or leave it out")
	case s.Duration/s.Tick > MaxTicks:
		l.Wrong(at(l.root, "tick"), fmt.Sprintf("%s makes %d ticks", s.Tick, s.Duration/s.Tick), fmt.Sprintf("use a longer one: at most %d ticks", MaxTicks))
	}
}

// stepFor is a step that gives a picture some hundred points.
func stepFor(d allocation.Duration) allocation.Duration {
	for _, step := range []allocation.Duration{1, 5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 86400} {
		if d%step == 0 && d/step <= 720 {
			return step
		}
	}
	return d
}

func (l *loader) checkRegions() {
	s := &l.s
	if n := len(s.Regions); n == 0 || n > MaxRegions {
		l.Wrong(at(l.root, "regions"), fmt.Sprintf("there are %d regions", n), fmt.Sprintf("declare 1 to %d, like - {name: us-east, round_trip: 20ms}", MaxRegions))
	}
	for i, r := range s.Regions {
		v := l.regions[i]
		if !allocation.ValidRegion(r.Name) {
			l.Wrong(at(v, "name"), fmt.Sprintf("%.70q is not a region's name", r.Name), "use 1 to 63 of a-z 0-9 -")
		}
		if s.region(r.Name) != i {
			l.Wrong(at(v, "name"), fmt.Sprintf("region %s is declared twice", r.Name), "declare it once")
		}
		if v.Fields["round_trip"] == nil {
			l.Wrong(v, "has no round_trip", "say how long a round trip to the coordinator takes, like 80ms")
		}
		for _, name := range slices.Sorted(maps.Keys(r.To)) {
			j := s.region(name)
			if to := v.Fields["to"].Fields[name]; j < 0 {
				l.declared(to, name)
			} else if back, ok := s.Regions[j].To[r.Name]; ok && back != r.To[name] {
				l.Wrong(to, fmt.Sprintf("is %s, and %s says %s of the way back", r.To[name], name, back), "give one round trip for both")
			}
		}
	}
}

func (l *loader) checkBudgets() {
	s := &l.s
	if s.Duration == 0 {
		return // said already
	}
	if n := len(s.Budgets); n == 0 || n > MaxBudgets {
		l.Wrong(at(l.root, "budgets"), fmt.Sprintf("there are %d budgets", n), fmt.Sprintf("declare 1 to %d", MaxBudgets))
	}
	for i, b := range s.Budgets {
		v := l.budgets[i]
		switch {
		case s.budget(b.Name) != i:
			l.Wrong(at(v, "budget"), fmt.Sprintf("%s is declared twice", b.Name), "declare it once")
		case b.IsTemplate():
			l.Wrong(at(v, "budget"), "is a template, and a scenario has no labels to tell its instances apart",
				"name one instance, like acme/caller-7, or replay requests with --requests")
		case b.Window.Every != 0 && b.Window.Every < s.Tick:
			l.Wrong(at(v, "window"), fmt.Sprintf("periods of %s are shorter than a tick of this run, %s", b.Window.Every, s.Tick),
				"use a shorter duration, or a longer window")
		}
		policy := at(v, "allocation")
		for _, region := range slices.Sorted(maps.Keys(b.Allocation.Weights)) {
			l.declared(at(at(policy, "weights"), region), region)
		}
		if b.Allocation.Region != "" {
			l.declared(at(policy, "region"), b.Allocation.Region)
		}
	}
}

func (l *loader) checkDemand(i int) {
	s, d, v := &l.s, &l.s.Demand[i], l.demand[i]
	bi := s.budget(d.Budget)
	if bi < 0 {
		l.Wrong(at(v, "budget"), fmt.Sprintf("budget %.80q is not declared", d.Budget), "use one of budgets, or add it there")
		return
	}
	hits, _ := allocation.MatchBudgets(s.Budgets, allocation.Labels(s.Budgets[bi].Match))
	if len(hits) != 1 {
		var names []string
		for _, h := range hits {
			names = append(names, h.Budget.Name)
		}
		l.Wrong(at(v, "budget"), "requests of this budget also hit others: "+strings.Join(names, ", "), "give each budget a match of its own")
	}
	for _, name := range slices.Sorted(maps.Keys(d.Skew)) {
		l.declared(at(v.Fields["skew"], name), name)
	}
	if d.Skew != nil && !slices.ContainsFunc(slices.Collect(maps.Values(d.Skew)), func(w float64) bool { return w > 0 }) {
		l.Wrong(v.Fields["skew"], "has no part above 0", "give a region some of the demand")
	}
	switch {
	case d.Trace != nil && d.Rate > 0:
		l.Wrong(at(v, "trace"), "stands beside a rate", "give one of them")
	case d.Trace != nil:
		l.readTrace(d.Trace, v.Fields["trace"])
	case d.Rate == 0:
		l.Wrong(at(v, "rate"), "demand has no rate", "give requests per second above 0, or a trace")
	}
	for j, b := range d.Bursts {
		if b.Until > s.Duration {
			l.Wrong(v.Fields["bursts"].Items[j], fmt.Sprintf("ends at %s, after the run of %s", b.Until, s.Duration), "end it within the run")
		}
	}
	if n := l.most(*d); n > MaxRequests && d.Cost.Fixed == 0 {
		l.Wrong(at(v, "rate"), fmt.Sprintf("asks for about %.0f million requests whose costs differ", n/1e6),
			fmt.Sprintf("use a lower rate, a shorter duration or one fixed cost: at most %d million", MaxRequests/1_000_000))
	}
}

// most is about how many requests a stream makes.
func (l *loader) most(d Demand) float64 {
	n := d.Rate * float64(l.s.Duration)
	for _, b := range d.Bursts {
		n += d.Rate * max(0, b.Times-1) * float64(b.Until-b.At)
	}
	return n
}

// complete fills in what follows from the rest.
func (l *loader) complete() {
	s := &l.s
	for i, a := range s.Regions {
		for _, b := range s.Regions {
			if a.Name == b.Name {
				continue
			}
			// What is not said is the way over the coordinator.
			d := a.RoundTrip + b.RoundTrip
			if back, ok := b.To[a.Name]; ok {
				d = back
			}
			if _, ok := a.To[b.Name]; !ok {
				s.Regions[i].To[b.Name] = d
			}
		}
	}
	for i := range s.Demand {
		s.Demand[i].Cost.MostUnits = max(1, s.Budgets[s.budget(s.Demand[i].Budget)].LimitOrZero())
	}
	if s.Alternatives.Home == "" {
		s.Alternatives.Home = s.Regions[0].Name
	}
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
}

// roundTrip between two regions; none within one.
func (s Scenario) roundTrip(a, b int) time.Duration {
	if a == b {
		return 0
	}
	return s.Regions[a].To[s.Regions[b].Name]
}
