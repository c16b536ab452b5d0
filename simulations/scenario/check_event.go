package scenario

import (
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
)

func (l *loader) checkEvents() {
	if n := len(l.s.Events); n > MaxEvents {
		l.Wrong(at(l.root, "events"), fmt.Sprintf("there are %d", n), fmt.Sprintf("use at most %d", MaxEvents))
		return
	}
	for i, e := range l.s.Events {
		v := l.events[i]
		if e.At >= l.s.Duration || e.Until > l.s.Duration {
			l.Wrong(v, fmt.Sprintf("%s lies outside the run of %s", e.Kind, l.s.Duration), "move it, or make the duration longer")
		}
		l.checkEvent(i)
		for j, other := range l.s.Events[:i] {
			if why := impossible(other, e); why != "" {
				l.Wrong(v, fmt.Sprintf("%s, which begins on line %d", why, l.events[j].Line), "let one end before the other begins")
			}
		}
	}
	l.checkDrains()
}

func (l *loader) checkEvent(i int) {
	s, e, v := &l.s, l.s.Events[i], l.events[i]
	switch e.Kind {
	case NodeCrash:
		if n := s.Regions[s.region(e.Region)].Nodes; e.Nodes > n {
			l.Wrong(at(v, "nodes"), fmt.Sprintf("%d nodes of %s crash, and it has %d", e.Nodes, e.Region, n), "crash fewer, or give the region more nodes")
		}
	case Rebalance, ChangeBudget:
		b := s.budget(e.Budget)
		if b < 0 {
			l.Wrong(at(v, "budget"), fmt.Sprintf("budget %.80q is not declared", e.Budget), "use one of budgets, or add it there")
			return
		}
		if e.Kind == Rebalance {
			l.checkMove(i, s.Budgets[b])
		} else {
			l.checkChange(i, s.Budgets[b])
		}
	}
}

func (l *loader) checkMove(i int, b allocation.Budget) {
	e, v := l.s.Events[i], l.events[i]
	switch {
	case e.Region == e.To:
		l.Wrong(at(v, "to"), "is the region that gives", "name two regions")
	case b.Allocation.Policy == allocation.PolicyHome:
		l.Wrong(at(v, "budget"), b.Name+" has policy home: all of it is in one region", "use policy fixed")
	}
}

func (l *loader) checkChange(i int, b allocation.Budget) {
	e, v := l.s.Events[i], l.events[i]
	if e.Limit == nil && e.Weights == nil {
		l.Wrong(v, "changes nothing", "give a limit or weights")
		return
	}
	for _, name := range slices.Sorted(maps.Keys(e.Weights)) {
		l.declared(at(at(v, "weights"), name), name)
	}
	if err := e.changed(b).Validate(); err != nil {
		l.Wrong(v, "leaves "+b.Name+" a budget that is not valid: "+err.Error(), "change it otherwise")
	}
}

// changed is the budget after a change_budget event.
func (e Event) changed(b allocation.Budget) allocation.Budget {
	if e.Limit != nil {
		b.Limit = e.Limit
	}
	if e.Weights != nil {
		b.Allocation.Weights = e.Weights
	}
	return b
}

// impossible says why two events cannot be in one timeline, or nothing.
func impossible(a, b Event) string {
	if !a.lasts() {
		a, b = b, a
	}
	kinds := []string{a.Kind, b.Kind}
	switch {
	case !overlap(a, b):
		return ""
	case slices.Contains(kinds, CoordinatorLoss) && !b.lasts():
		return "nobody can make a " + b.Kind + " during the coordinator_loss"
	case a.Kind == b.Kind && a.Region == b.Region:
		return fmt.Sprintf("it overlaps another %s of %s", a.Kind, orCoordinator(a.Region))
	case slices.Contains(kinds, DatabaseLoss) && slices.Contains(kinds, NodeCrash) && a.Region == b.Region:
		return "a node cannot crash in " + a.Region + " while its database is lost: it admits nothing already"
	}
	return ""
}

// overlap says whether b begins or lasts while a does.
func overlap(a, b Event) bool {
	if !b.lasts() {
		return a.lasts() && a.At <= b.At && b.At < a.Until
	}
	return a.lasts() && a.At < b.Until && b.At < a.Until
}

func orCoordinator(region string) string {
	if region == "" {
		return "the coordinator"
	}
	return region
}

// checkDrains holds drain and resume of a region to their turns.
func (l *loader) checkDrains() {
	order := make([]int, len(l.s.Events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(l.s.Events[a].At - l.s.Events[b].At) })
	draining := map[string]bool{}
	for _, i := range order {
		e, v := l.s.Events[i], l.events[i]
		switch {
		case e.Kind == Drain && draining[e.Region]:
			l.Wrong(v, e.Region+" is draining already", "resume it first")
		case e.Kind == Resume && !draining[e.Region]:
			l.Wrong(v, e.Region+" is not draining", "drain it first")
		case e.Kind == Rebalance && draining[e.To]:
			l.Wrong(v, e.To+" is draining and takes no permits", "resume it first, or choose another")
		}
		if e.Kind == Drain || e.Kind == Resume {
			draining[e.Region] = e.Kind == Drain
		}
	}
}
