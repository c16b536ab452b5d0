package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"tranche/allocation"
)

// The order in which things are done must not come from a map: it would differ from run to run, and a failure that a
// simulation finds could not be shown again. What is done to all regions is done in the order of state.ordered, what is
// done to all ledgers in the order of budgets and terms.

// maxPerTick is how many ledgers one round of background work opens, brings on or closes, give or take the terms of one
// budget; the next round goes on.
const maxPerTick = 5000

// cursor is the budget behind which the next portion of a duty begins; empty: at the first. What cannot be done yet so
// holds up nothing that stands behind it.
type cursor string

// portion gathers what is due of these budgets, which are sorted, from the cursor on and round, until it is enough for one
// round of work. The caller holds the lock.
func portion[T any](names []string, from *cursor, due func(budget string) []T) (list []T) {
	first, found := slices.BinarySearch(names, string(*from))
	if found {
		first++
	}
	*from = ""
	for i := range names {
		name := names[(first+i)%len(names)]
		if list = append(list, due(name)...); len(list) >= maxPerTick {
			*from = cursor(name)
			break
		}
	}
	return list
}

// budgetsOf are the budgets of these shares, in order.
func budgetsOf(refs []allocation.ShareRef) (names []string) {
	for _, ref := range refs {
		names = append(names, ref.Budget)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func compareRefs(a, b allocation.ShareRef) int {
	return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Term, b.Term))
}

// lookAll looks at every ledger anew.
func (s *state) lookAll() {
	if s.resetting {
		return // once, at its end
	}
	for _, name := range slices.Sorted(maps.Keys(s.terms)) {
		for _, l := range s.terms[name] {
			s.look(refOf(l.value))
		}
	}
}

// sortedRefs are the keys of m that are not in less.
func sortedRefs[V any](m, less map[allocation.ShareRef]V) (refs []allocation.ShareRef) {
	for ref := range m {
		if _, left := less[ref]; !left {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, compareRefs)
	return refs
}

// dropBudget forgets a budget whose document is gone: etcd went back to before there was one.
func (s *state) dropBudget(key string) {
	for i, name := range s.names {
		if budgetKey(name) == key {
			s.names = slices.Delete(slices.Clone(s.names), i, i+1)
			s.changes = slices.DeleteFunc(s.changes, func(c configChange) bool { return c.budget == name })
			s.hits.drop(name, s.budgets[name].value.Budget.Match)
			s.openings.drop(name)
			s.bases.drop(name)
			delete(s.budgets, name)
			return
		}
	}
}
