package coordinator

import (
	"maps"
	"slices"

	"tranche/allocation"
)

// What a decoder makes has every name once more, and slices with room to grow. A replica holds very many ledgers that say
// the same of their regions, and none of them ever changes: a document in the picture is replaced.

// compact makes a decoded ledger share what it has in common with the one before it, or with its budget, and drops the room
// in its slices.
func (s *state) compact(l allocation.Ledger) allocation.Ledger {
	l.Unit = s.word(l.Unit)
	l.History.Stamp = s.word(l.History.Stamp)
	if b := s.budgets[l.Budget]; b != nil {
		l.Budget = b.value.Budget.Name
		l.Policy = samePlan(l.Policy, b.value.Budget.Allocation)
	}
	if before := s.terms[l.Budget]; len(before) > 0 {
		last := before[len(before)-1].value
		l.Policy = samePlan(l.Policy, last.Policy)
		if slices.Equal(l.Regions, last.Regions) {
			l.Regions = last.Regions
		}
	}
	l.Regions, l.Stamps = exact(l.Regions), exact(l.Stamps)
	l.Entries = exact(l.Entries)
	for i := range l.Entries {
		list := exact(l.Entries[i].Allocations)
		for k := range list {
			list[k].Region, list[k].Incarnation = s.word(list[k].Region), s.word(list[k].Incarnation)
			list[k].Class = allocation.Class(s.word(string(list[k].Class)))
		}
		l.Entries[i].Allocations = list
	}
	return l
}

// compactStatement makes a statement share what it says of its ledger, and drops the room in its slices.
func compactStatement(st allocation.ShareStatement, l allocation.Ledger) allocation.ShareStatement {
	st.Budget = l.Budget
	if st.Generation == l.Generation {
		st.Generation = l.Generation // the same text, once
	}
	st.Returned, st.Usage = exact(st.Returned), exact(st.Usage)
	return st
}

// samePlan is a policy with the maps of another one where they are equal.
func samePlan(p, o allocation.Policy) allocation.Policy {
	for _, units := range []struct{ of, like *map[string]int64 }{{&p.Weights, &o.Weights}, {&p.Min, &o.Min}, {&p.Max, &o.Max}} {
		if len(*units.of) > 0 && maps.Equal(*units.of, *units.like) {
			*units.of = *units.like
		}
	}
	return p
}

// exact is the list without room to grow.
func exact[T any](list []T) []T {
	if cap(list) == len(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// maxWords bounds how many names are shared: those of regions, incarnations and units; more than that are no longer few.
const maxWords = 10_000

// word is one copy of a name that very many documents have.
func (s *state) word(text string) string {
	if one, known := s.words[text]; known {
		return one
	}
	if len(s.words) >= maxWords {
		clear(s.words)
	}
	s.words[text] = text
	return text
}
