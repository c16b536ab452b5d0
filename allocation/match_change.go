package allocation

import (
	"cmp"
	"maps"
	"slices"
)

// byName is copies of budgets in the order of their names. Budgets are large: what is sorted is where they are.
func byName(budgets []Budget) []*Budget {
	copies := slices.Clone(budgets)
	sorted := make([]*Budget, len(copies))
	for i := range copies {
		sorted[i] = &copies[i]
	}
	slices.SortStableFunc(sorted, func(a, b *Budget) int { return cmp.Compare(a.Name, b.Name) })
	return sorted
}

// replaced is the index with newer declarations of budgets that it holds; false if one of them is not in it, or asks for other
// labels. Where a budget is filed follows from the labels alone, so nothing else changes.
func (x *MatchIndex) replaced(changed []ConfiguredBudget) (*MatchIndex, bool) {
	out := &MatchIndex{budgets: slices.Clone(x.budgets), byPair: x.byPair, always: x.always, templates: x.templates}
	for i := range changed {
		at, found := slices.BinarySearchFunc(out.budgets, changed[i].Budget.Name, func(b *Budget, name string) int { return cmp.Compare(b.Name, name) })
		if !found || changed[i].Deleted || !maps.Equal(out.budgets[at].Match, changed[i].Budget.Match) {
			return nil, false
		}
		newer := changed[i].Budget
		out.budgets[at] = &newer
	}
	return out, true
}

// reindexed is the index of all budgets after some changed: a new limit, the usual change, files nothing anew.
func (c *Catalogue) reindexed(changed []ConfiguredBudget, all map[string]*ConfiguredBudget) *MatchIndex {
	if c.index != nil {
		if x, ok := c.index.replaced(changed); ok {
			return x
		}
	}
	var live []Budget
	for _, b := range all {
		if !b.Deleted {
			live = append(live, b.Budget)
		}
	}
	return NewMatchIndex(live)
}
