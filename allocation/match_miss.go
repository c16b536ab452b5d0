package allocation

import (
	"cmp"
	"maps"
	"slices"
)

// Miss is a budget that does not apply to some labels, and what keeps it from doing so.
type Miss struct {
	Budget string       `json:"budget"`
	Lacks  []LabelWants `json:"lacks"` // by label
}

// LabelWants is one label of a budget's match, and what a request has instead.
type LabelWants struct {
	Label string `json:"label"`
	Want  string `json:"want"`
	Has   string `json:"has,omitempty"` // empty: the request has no such label
}

// NearestMisses are the budgets that would apply if the fewest labels were different, by how many and then by name, at
// most so many. Those that apply are not among them.
func NearestMisses(budgets []Budget, l Labels, most int) []Miss {
	var misses []Miss
	for _, b := range budgets {
		var lacks []LabelWants
		for _, name := range slices.Sorted(maps.Keys(b.Match)) {
			if want := b.Match[name]; l[name] != want {
				lacks = append(lacks, LabelWants{Label: name, Want: want, Has: l[name]})
			}
		}
		if len(lacks) > 0 {
			misses = append(misses, Miss{Budget: b.Name, Lacks: lacks})
		}
	}
	slices.SortFunc(misses, func(a, b Miss) int {
		return cmp.Or(cmp.Compare(len(a.Lacks), len(b.Lacks)), cmp.Compare(a.Budget, b.Budget))
	})
	return misses[:min(most, len(misses))]
}
