package coordinator

import (
	"maps"
	"slices"
	"strings"
)

// hits finds the budgets that can apply to one request together with another, without a look at all that there are: whoever
// declares the budget of one more tenant looks at that tenant's only.
//
// Budgets that ask for the same labels, whatever their values, are one group; there are few groups. Of a group whose labels
// are all asked for by the other budget too, one value of each can apply.
type hits map[string]*hitGroup

type hitGroup struct {
	labels []string                   // sorted
	values map[string]map[string]bool // the names of budgets, by the values of these labels
}

// hitSeparator stands in no label's name or value.
const hitSeparator = "\x00"

// put enters a budget.
func (h hits) put(budget string, match map[string]string) {
	labels := slices.Sorted(maps.Keys(match))
	key := strings.Join(labels, hitSeparator)
	g := h[key]
	if g == nil {
		g = &hitGroup{labels: labels, values: map[string]map[string]bool{}}
		h[key] = g
	}
	values := g.of(match)
	if g.values[values] == nil {
		g.values[values] = map[string]bool{}
	}
	g.values[values][budget] = true
}

// drop removes a budget that was put with this match; one that was not changes nothing.
func (h hits) drop(budget string, match map[string]string) {
	key := strings.Join(slices.Sorted(maps.Keys(match)), hitSeparator)
	g := h[key]
	if g == nil {
		return
	}
	values := g.of(match)
	if delete(g.values[values], budget); len(g.values[values]) == 0 {
		delete(g.values, values)
	}
	if len(g.values) == 0 {
		delete(h, key)
	}
}

// with are the budgets that one request can hit together with one that has this match, sorted.
func (h hits) with(match map[string]string) (budgets []string) {
	take := func(names map[string]bool) { budgets = slices.AppendSeq(budgets, maps.Keys(names)) }
	for _, g := range h {
		if g.askedBy(match) {
			take(g.values[g.of(match)])
			continue
		}
		for values, names := range g.values {
			if g.compatible(values, match) {
				take(names)
			}
		}
	}
	slices.Sort(budgets)
	return budgets
}

// of is the key of the group's labels' values in a match.
func (g *hitGroup) of(match map[string]string) string {
	values := make([]string, len(g.labels))
	for i, label := range g.labels {
		values[i] = match[label]
	}
	return strings.Join(values, hitSeparator)
}

func (g *hitGroup) askedBy(match map[string]string) bool {
	for _, label := range g.labels {
		if _, asked := match[label]; !asked {
			return false
		}
	}
	return true
}

// compatible says whether one request can carry both sets of labels.
func (g *hitGroup) compatible(values string, match map[string]string) bool {
	for i, value := range strings.Split(values, hitSeparator) {
		if i >= len(g.labels) {
			break // a group without labels: it applies to all requests
		}
		if other, asked := match[g.labels[i]]; asked && other != value {
			return false
		}
	}
	return true
}
