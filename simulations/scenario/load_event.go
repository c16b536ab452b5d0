package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/simulations/scenario/internal/tree"
)

// eventFields are what each kind of event has, besides event and at: those that it needs, and those that it may have.
var eventFields = map[string]struct{ needs, may []string }{
	Partition:       {[]string{"region", "until"}, []string{"direction", "from", "down", "up"}},
	CoordinatorLoss: {[]string{"until"}, nil},
	DatabaseLoss:    {[]string{"region", "until"}, []string{"data"}},
	NodeCrash:       {[]string{"region", "until"}, []string{"nodes"}},
	ChangeBudget:    {[]string{"budget"}, []string{"limit", "weights"}},
	Rebalance:       {[]string{"budget", "region", "to", "units"}, nil},
	Drain:           {[]string{"region"}, nil},
	Resume:          {[]string{"region"}, nil},
}

func (l *loader) event(v *tree.Value) {
	e := Event{Direction: BothWays, From: FromEverything, Data: DataKept, Nodes: 1, Line: v.Line}
	kinds := slices.Sorted(maps.Keys(eventFields))
	if kind := v.Fields["event"]; kind == nil || eventFields[kind.Text].needs == nil {
		l.Wrong(v, "names no known event", "begin it with event: and one of "+strings.Join(kinds, ", "))
		return
	} else {
		e.Kind = kind.Text
	}
	before := len(l.Faults)
	l.Object(l.readsOf(&e))(v)
	if len(l.Faults) > before {
		return
	}
	for _, name := range append([]string{"at"}, eventFields[e.Kind].needs...) {
		if v.Fields[name] == nil {
			l.Wrong(v, e.Kind+" has no "+name, "add "+name)
		}
	}
	if len(l.Faults) == before && e.lasts() {
		l.spans(v, e.At, e.Until)
	}
	if (e.Down == 0) != (e.Up == 0) {
		l.Wrong(v, "has one of down and up", "give both for a flapping link, like {down: 20s, up: 40s}, or none")
	}
	l.s.Events, l.events = append(l.s.Events, e), append(l.events, v)
}

// readsOf are the readers of the fields that the event may have.
func (l *loader) readsOf(e *Event) map[string]tree.Read {
	region := func(to *string) tree.Read {
		return func(v *tree.Value) {
			l.Text(to)(v)
			l.declared(v, *to)
		}
	}
	all := map[string]tree.Read{
		"region":    region(&e.Region),
		"to":        region(&e.To),
		"budget":    l.Text(&e.Budget),
		"until":     l.Parsed(&e.Until),
		"direction": l.Choice(&e.Direction, BothWays, ToCoordinator, FromCoordinator),
		"from":      l.Choice(&e.From, FromEverything, FromCoordinatorOnly),
		"down":      l.Parsed(&e.Down),
		"up":        l.Parsed(&e.Up),
		"data":      l.Choice(&e.Data, DataKept, DataLost),
		"limit": func(v *tree.Value) {
			e.Limit = new(int64)
			l.Whole(e.Limit, 0, allocation.MaxUnits)(v)
		},
		"weights": l.weights(&e.Weights),
		"units":   l.Whole(&e.Units, 1, allocation.MaxUnits),
		"nodes":   l.Whole(&e.Nodes, 1, 1000),
	}
	var kind string
	reads := map[string]tree.Read{"event": l.Text(&kind), "at": l.Parsed(&e.At)}
	fields := eventFields[e.Kind]
	for _, name := range slices.Concat(fields.needs, fields.may) {
		reads[name] = all[name]
	}
	return reads
}

// spans checks the two ends of what lasts.
func (l *loader) spans(v *tree.Value, at, until allocation.Duration) {
	end := v.Fields["until"]
	switch {
	case end == nil:
		l.Wrong(v, "has no until", "say when it ends, since the start, like 14h30m")
	case until < at:
		l.Wrong(end, fmt.Sprintf("is %s, before it starts at %s", until, at), "give a later until")
	case until == at:
		l.Wrong(end, fmt.Sprintf("is %s, when it starts: it lasts no time", until), "give a later until")
	}
}
