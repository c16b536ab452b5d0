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

// portion gathers what is due, budget by budget in order, from the cursor on and round, until it is enough for one round.
// The caller holds the lock.
func portion[T any](s *state, from *cursor, due func(budget string) []T) (list []T) {
	names := s.budgetNames()
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

// budgetNames are all budgets that have a document or a ledger, in order.
func (s *state) budgetNames() []string {
	if len(s.strange) == 0 {
		return s.names
	}
	// The document of a budget may be one of those that this version does not know.
	names := s.names[:len(s.names):len(s.names)]
	for name := range s.terms {
		if s.budgets[name] == nil {
			names = append(names, name)
		}
	}
	if len(names) > len(s.names) {
		slices.Sort(names)
	}
	return names
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
	slices.SortFunc(refs, func(a, b allocation.ShareRef) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Term, b.Term))
	})
	return refs
}

// dropBudget forgets a budget whose document is gone: etcd went back to before there was one.
func (s *state) dropBudget(key string) {
	for i, name := range s.names {
		if budgetKey(name) == key {
			s.names = slices.Delete(slices.Clone(s.names), i, i+1)
			s.changes = slices.DeleteFunc(s.changes, func(c configChange) bool { return c.budget == name })
			delete(s.budgets, name)
			return
		}
	}
}
