package coordinator

import (
	"slices"

	"tranche/allocation"
)

// A grant goes to the present incarnations. One that was replaced a moment ago, as a replica does not know yet whose picture is
// late, could not spend what it is given: it would be stranded to the period's end. So a grant rests on the members, and a ledger
// that is behind them follows first.

// onMembers makes a change rest on the members; once is enough.
func (s *state) onMembers(c *Change) {
	if s.deployment != nil && !slices.ContainsFunc(c.Reads, func(i Item) bool { return i.Key == deploymentKey }) {
		c.Reads = append(c.Reads, s.deployment.item)
	}
}

// grants says whether anybody is granted more by a write, of any period.
func (w ledgerWrite) grants() bool {
	before := allocation.Ledger{Entries: []allocation.Entry{{}}}
	if w.before != nil {
		before = w.before.value
	}
	more := func(from int) bool {
		was := before.EntryAt(from)
		return slices.ContainsFunc(w.after.EntryAt(from).Allocations, func(a allocation.Allocation) bool {
			i := slices.IndexFunc(was.Allocations, func(b allocation.Allocation) bool { return b.Holder == a.Holder && b.Class == a.Class })
			return i < 0 && a.Granted > 0 || i >= 0 && a.Granted > was.Allocations[i].Granted
		})
	}
	for _, l := range []allocation.Ledger{before, w.after} {
		if slices.ContainsFunc(l.Entries, func(e allocation.Entry) bool { return more(e.From) }) {
			return true
		}
	}
	return false
}
