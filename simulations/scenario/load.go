package scenario

import (
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/scenario/internal/tree"
)

const (
	maxFile      = 1 << 20
	maxRoundTrip = 10 * time.Second
	maxDuration  = 400 * allocation.Day
	defaultNodes = 2
	defaultRow   = 2500
)

// Load reads a scenario file. All that is wrong with it is told at once, one line each: file, line, field, and the fix.
func Load(path string) (Scenario, error) {
	file, err := os.Open(path)
	if err != nil {
		return Scenario{}, fmt.Errorf("read the scenario: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Scenario{}, fmt.Errorf("read the scenario %s: %w", path, err)
	}
	if len(text) > maxFile {
		return Scenario{}, fmt.Errorf("%s has more than %d bytes; put demand into a trace", path, maxFile)
	}
	return parse(path, text)
}

// parse reads the text of a scenario; a trace is looked for beside the file.
func parse(path string, text []byte) (Scenario, error) {
	root, faults := tree.Parse(path, text)
	if len(faults) > 0 {
		return Scenario{}, faults
	}
	l := &loader{Reader: tree.Reader{File: path}, root: root, s: Scenario{
		Name:    strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)),
		Refused: GiveUp,
		Alternatives: Alternatives{
			RowPerSecond: defaultRow, RowTimeout: allocation.Second, SyncEvery: 30 * allocation.Second,
		},
	}}
	l.read()
	if len(l.Faults) == 0 {
		l.check()
	}
	if len(l.Faults) > 0 {
		slices.SortStableFunc(l.Faults, func(a, b tree.Fault) int { return a.Line - b.Line })
		return Scenario{}, l.Faults
	}
	l.complete()
	return l.s, nil
}

// loader fills a scenario from a tree, and remembers where what it will check stands.
type loader struct {
	tree.Reader
	root    *tree.Value
	s       Scenario
	regions []*tree.Value
	budgets []*tree.Value
	demand  []*tree.Value
	events  []*tree.Value
}

func (l *loader) read() {
	s := &l.s
	l.Object(map[string]tree.Read{
		"look_for":     l.Text(&s.LookFor),
		"start":        l.Parsed(&s.Start),
		"duration":     l.Parsed(&s.Duration),
		"step":         l.Parsed(&s.Step),
		"tick":         l.Parsed(&s.Tick),
		"on_refusal":   l.Choice(&s.Refused, GiveUp, RetryOnce),
		"regions":      l.List(l.region),
		"budgets":      l.List(l.budget),
		"demand":       l.List(l.stream),
		"events":       l.List(l.event),
		"alternatives": l.alternatives,
	})(l.root)
}

func (l *loader) region(v *tree.Value) {
	r := Region{Nodes: defaultNodes, To: map[string]time.Duration{}}
	l.Object(map[string]tree.Read{
		"name":       l.Text(&r.Name),
		"round_trip": l.Span(&r.RoundTrip, maxRoundTrip),
		"nodes":      l.Whole(&r.Nodes, 1, 1000),
		"utc_offset": l.offset(&r.UTCOffset),
		"to": l.Entries(func(name string, v *tree.Value) {
			var d time.Duration
			l.Span(&d, maxRoundTrip)(v)
			r.To[name] = d
		}),
	})(v)
	l.s.Regions, l.regions = append(l.s.Regions, r), append(l.regions, v)
}

// offset reads how far local time is ahead of UTC, like "+05:30" or "-08:00".
func (l *loader) offset(to *allocation.Duration) tree.Read {
	return func(v *tree.Value) {
		t, err := time.Parse("-07:00", v.Text)
		if err != nil {
			l.Wrong(v, fmt.Sprintf("is %.20q", v.Text), `write it like "+05:30" or "-08:00"`)
			return
		}
		_, seconds := t.Zone()
		*to = allocation.Duration(seconds)
	}
}

// budget reads one by the rules of all budgets: allocation.ParseBudget.
func (l *loader) budget(v *tree.Value) {
	b, err := allocation.ParseBudget(v.JSON())
	problems, many := err.(allocation.Problems)
	switch {
	case many:
		for _, p := range problems {
			at := v.Below(p.Field)
			l.Faults = append(l.Faults, tree.Fault{File: l.File, Line: at.Line, Field: v.Path + "." + p.Field, Problem: p.Problem, Fix: p.Fix})
		}
	case err != nil:
		l.Wrong(v, err.Error(), "see the documentation of budgets")
	}
	l.s.Budgets, l.budgets = append(l.s.Budgets, b), append(l.budgets, v)
}

func (l *loader) stream(v *tree.Value) {
	d := Demand{Cost: Cost{Fixed: 1}}
	l.Object(map[string]tree.Read{
		"budget": l.Text(&d.Budget),
		"rate":   l.Real(&d.Rate, 0, maxRate),
		"skew":   l.parts(&d.Skew),
		"daily": l.Object(map[string]tree.Read{
			"peak":  l.timeOfDay(&d.Daily.Peak),
			"hours": l.Real(&d.Daily.Hours, 1, 24),
			"low":   l.Real(&d.Daily.Low, 0, 1),
		}),
		"growth_per_day": l.Real(&d.Growth, -1, 10),
		"noise":          l.Real(&d.Noise, 0, 2),
		"cost":           l.cost(&d.Cost),
		"bursts": l.List(func(v *tree.Value) {
			var b Burst
			l.burst(&b, v)
			d.Bursts = append(d.Bursts, b)
		}),
		"trace": func(v *tree.Value) {
			d.Trace = &Trace{Every: allocation.Second}
			l.Object(map[string]tree.Read{"file": l.Text(&d.Trace.File), "every": l.Parsed(&d.Trace.Every)})(v)
		},
	})(v)
	l.s.Demand, l.demand = append(l.s.Demand, d), append(l.demand, v)
}

func (l *loader) parts(to *map[string]float64) tree.Read {
	return l.Entries(func(key string, v *tree.Value) {
		var n float64
		l.Real(&n, 0, 1e9)(v)
		if *to == nil {
			*to = map[string]float64{}
		}
		(*to)[key] = n
	})
}

func (l *loader) weights(to *map[string]int64) tree.Read {
	return l.Entries(func(key string, v *tree.Value) {
		var n int64
		l.Whole(&n, 0, allocation.MaxWeightSum)(v)
		if *to == nil {
			*to = map[string]int64{}
		}
		(*to)[key] = n
	})
}

func (l *loader) timeOfDay(to *allocation.Duration) tree.Read {
	return func(v *tree.Value) {
		t, err := time.Parse("15:04", v.Text)
		if err != nil {
			l.Wrong(v, fmt.Sprintf("is %.20q", v.Text), "write a local time of day, like 14:00")
			return
		}
		*to = allocation.Duration(t.Hour()*3600 + t.Minute()*60)
	}
}

func (l *loader) cost(c *Cost) tree.Read {
	return func(v *tree.Value) {
		if v.Kind == tree.Number {
			l.Whole(&c.Fixed, 0, allocation.MaxUnits)(v)
			return
		}
		*c = Cost{}
		l.Object(map[string]tree.Read{
			"uniform": l.pair(&c.Uniform),
			"median":  l.Whole(&c.Median, 1, allocation.MaxUnits),
			"p99":     l.Whole(&c.P99, 1, allocation.MaxUnits),
			"choices": l.Entries(func(key string, v *tree.Value) {
				var weight float64
				var units int64
				l.Real(&weight, 0, 1e9)(v)
				l.Whole(&units, 0, allocation.MaxUnits)(&tree.Value{Path: v.Path, Line: v.Line, Kind: tree.Number, Text: key})
				c.Choices, c.Weights = append(c.Choices, units), append(c.Weights, weight)
			}),
		})(v)
		forms := 0
		for _, used := range []bool{c.Uniform != [2]int64{}, c.Median != 0 || c.P99 != 0, len(c.Choices) > 0} {
			if used {
				forms++
			}
		}
		if forms != 1 || (c.Median == 0) != (c.P99 == 0) || c.P99 < c.Median {
			l.Wrong(v, "is none of the forms of a cost", "write a number, {uniform: [1, 9]}, {median: 300, p99: 4000} or {choices: {100: 8, 1000: 2}}")
		}
	}
}

func (l *loader) pair(to *[2]int64) tree.Read {
	return func(v *tree.Value) {
		if len(v.Items) != 2 {
			l.Wrong(v, fmt.Sprintf("has %d numbers", len(v.Items)), "give the least and the most, like [1, 9]")
			return
		}
		for i, item := range v.Items {
			l.Whole(&to[i], 0, allocation.MaxUnits)(item)
		}
		if to[0] > to[1] {
			l.Wrong(v, "ends before it begins", "give the least first")
		}
	}
}

func (l *loader) burst(b *Burst, v *tree.Value) {
	b.Times = 1
	l.Object(map[string]tree.Read{
		"at":    l.Parsed(&b.At),
		"until": l.Parsed(&b.Until),
		"times": l.Real(&b.Times, 0, 1e6),
		"regions": l.List(func(v *tree.Value) {
			var name string
			l.Text(&name)(v)
			b.Regions = append(b.Regions, name)
			l.declared(v, name)
		}),
	})(v)
	l.spans(v, b.At, b.Until)
}

// declared checks that a name is one of the file's regions, wherever in the file they stand.
func (l *loader) declared(v *tree.Value, name string) {
	var names []string
	if list := l.root.Fields["regions"]; list != nil {
		for _, item := range list.Items {
			if n := item.Fields["name"]; n != nil {
				names = append(names, n.Text)
			}
		}
	}
	if !slices.Contains(names, name) {
		l.Wrong(v, fmt.Sprintf("region %.70q is not declared", name), "use "+strings.Join(names, ", ")+", or add it to regions")
	}
}

func (l *loader) alternatives(v *tree.Value) {
	a := &l.s.Alternatives
	l.Object(map[string]tree.Read{
		"static_weights": func(v *tree.Value) {
			l.weights(&a.StaticWeights)(v)
			for _, name := range slices.Sorted(maps.Keys(a.StaticWeights)) {
				l.declared(v.Fields[name], name)
			}
		},
		"home": func(v *tree.Value) {
			l.Text(&a.Home)(v)
			l.declared(v, a.Home)
		},
		"row_per_second": l.Whole(&a.RowPerSecond, 1, 1e9),
		"row_timeout":    l.Parsed(&a.RowTimeout),
		"sync_every":     l.Parsed(&a.SyncEvery),
	})(v)
}
