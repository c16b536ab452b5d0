package allocation

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// ErrContradicted says that an owner states a generation that this ledger never had: one of the two lost its history.
var ErrContradicted = errors.New("the owner states a generation that this ledger never gave out")

// Contradicts says whether an owner that states g knows a state that this ledger never was in. A generation older than
// the stamps that the document remembers is taken as known: it changes nothing (invariant 8).
func (l Ledger) Contradicts(g Generation) bool {
	switch {
	case g.Number == 0:
		return false
	case g.Number == l.Generation.Number:
		return g.Stamp != l.Generation.Stamp
	case g.Number > l.Generation.Number:
		return true
	}
	// Two lines of descent can have used one number: then both stamps are known.
	known := func(s Generation) bool { return s.Number == g.Number }
	return slices.ContainsFunc(l.Stamps, known) && !slices.Contains(l.Stamps, g)
}

// Count enters what the incarnation h states to have returned, and grants what became free to those below their target.
// Returned only rises, so a late or repeated statement changes nothing. It reports whether the ledger changed; gen is used
// only then. Returns of single instances of a template are not counted: their split is fixed within a term.
//
// It fails with ErrContradicted, or when the owner states more returned than it was granted.
func (l Ledger) Count(h Holder, s ShareStatement, gen Generation) (Ledger, bool, error) {
	l, changed, err := l.countAll(h, s)
	if err != nil || !changed {
		return l, false, err
	}
	return l.counted(gen)
}

// CountDrained is Count for an incarnation that takes no more, since its region drains: in periods before those that followed
// the drain its target stands at what it held, and what it states to have returned of them since is not granted to it again.
func (l Ledger) CountDrained(h Holder, s ShareStatement, gen Generation) (Ledger, bool, error) {
	l, changed, err := l.countAll(h, s)
	if err != nil || !changed {
		return l, false, err
	}
	for i := range l.Entries {
		l.Entries[i].promiseNoMore(func(a Holder) bool { return a == h })
	}
	return l.counted(gen)
}

// counted grants what became free.
func (l Ledger) counted(gen Generation) (Ledger, bool, error) {
	l = l.grant(gen)
	if len(l.Entries) > MaxEntries {
		return l, false, ErrTooManyEntries
	}
	return l, true, nil
}

// countAll enters all returns of a statement.
func (l Ledger) countAll(h Holder, s ShareStatement) (Ledger, bool, error) {
	if l.Contradicts(s.Generation) {
		return l, false, fmt.Errorf("%s, term of %s: generation %s: %w", l.Budget, l.Periods.Start(), s.Generation, ErrContradicted)
	}
	if l.Template {
		return l, false, nil
	}
	changed := false
	if r, ok := overlap(s.Returned); ok {
		return l, false, fmt.Errorf("%s, term of %s: two runs of returns speak of the period of %s", l.Budget, l.Periods.Start(), r.From)
	}
	for _, r := range s.Returned {
		from, ok := l.Periods.Index(r.From)
		if !ok {
			return l, false, fmt.Errorf("%s, term of %s: no period starts at %s", l.Budget, l.Periods.Start(), r.From)
		}
		next := l.Periods.Len()
		if r.Until < l.Periods.End() {
			if next, ok = l.Periods.Index(r.Until); !ok || next <= from {
				return l, false, fmt.Errorf("%s, term of %s: no period ends at %s", l.Budget, l.Periods.Start(), r.Until)
			}
		}
		var c bool
		var err error
		if l, c, err = l.count(h, r, from, next); err != nil {
			return l, false, err
		}
		changed = changed || c
	}
	return l, changed, nil
}

// overlap finds a run that speaks of a period of which another run of its class speaks too. Counting both could count a
// permit as returned that was spent.
func overlap(runs []ReturnedStatement) (ReturnedStatement, bool) {
	sorted := slices.SortedFunc(slices.Values(runs), func(a, b ReturnedStatement) int {
		return cmp.Or(compare(a.Class, b.Class), compare(a.From, b.From))
	})
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Class == sorted[i-1].Class && sorted[i].From < sorted[i-1].Until {
			return sorted[i], true
		}
	}
	return ReturnedStatement{}, false
}

// count raises what h has returned in the periods [from, next).
func (l Ledger) count(h Holder, r ReturnedStatement, from, next int) (Ledger, bool, error) {
	rises := func(e Entry, end int) bool {
		a := e.find(h, r.Class)
		return e.From < next && end > from && a != nil && r.Returned > a.Returned
	}
	any := false
	for i, e := range l.Entries {
		any = any || rises(e, l.endOf(i))
	}
	if !any {
		return l, false, nil
	}
	l = l.cut(from)
	if next < l.Periods.Len() {
		l = l.cut(next)
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		if !rises(*e, l.endOf(i)) {
			continue
		}
		a := e.find(h, r.Class)
		if r.Returned > a.Granted {
			return l, false, fmt.Errorf("%s, period %s: %s states %d returned, but was granted %d: %w",
				l.Budget, l.Periods.At(e.From).Start, h.Region, r.Returned, a.Granted, ErrContradicted)
		}
		a.Returned = r.Returned
	}
	return l, true, nil
}

// endOf is the index after the last period of entry i.
func (l Ledger) endOf(i int) int {
	if i+1 < len(l.Entries) {
		return l.Entries[i+1].From
	}
	return l.Periods.Len()
}

// Move sets the targets of a manual rebalance: n permits of every period from `from` on go from giver to taker, once the
// giver has returned them. It is refused where the giver's target is below n, and for templates and homes, whose split is
// fixed.
func (l Ledger) Move(giver, taker Holder, n int64, from int, gen Generation) (Ledger, error) {
	switch {
	case l.Template:
		return l, fmt.Errorf("%s is a template: the split of its instances is fixed within a term; change its weights", l.Budget)
	case l.Policy.Policy == "home":
		return l, fmt.Errorf("%s has policy home: all of it is in one region; change its region", l.Budget)
	case l.Policy.Policy == PolicyDemand:
		return l, fmt.Errorf("%s has policy demand, which moves permits by itself: set min for the region that is to have more, or max for the one that is to have less", l.Budget)
	case n <= 0:
		return l, fmt.Errorf("units %d: move at least one permit", n)
	}
	l = l.cut(from)
	for i := range l.Entries {
		e := &l.Entries[i]
		if e.From < from {
			continue
		}
		a := e.allocation(giver, General)
		if a.Target < n {
			return l, fmt.Errorf("%s holds %d permits of %s in the period of %s; it cannot give %d",
				giver.Region, a.Target, l.Budget, l.Periods.At(e.From).Start, n)
		}
		a.Target, a.Moved = a.Target-n, a.Moved-n
		a = e.allocation(taker, General)
		a.Target, a.Moved = a.Target+n, a.Moved+n
	}
	l = l.grant(gen)
	if len(l.Entries) > MaxEntries {
		return l, ErrTooManyEntries
	}
	return l, nil
}

// Conserved checks invariant 1 inside the ledger, for every period: every counter within its bounds, and what is out
// within the highest limit that the period ever had, so that limit + overcommitted = unallocated + Σ(granted − returned) + opening spent
// with an overcommitted that only a lowered limit explains. It returns the first violation in words.
func (l Ledger) Conserved() error {
	if len(l.Entries) == 0 || l.Entries[0].From != 0 {
		return fmt.Errorf("%s: no entry begins at the term's first period", l.Budget)
	}
	for i, e := range l.Entries {
		if i > 0 && e.From <= l.Entries[i-1].From || e.From >= l.Periods.Len() {
			return fmt.Errorf("%s: entry %d begins at period %d of %d", l.Budget, i, e.From, l.Periods.Len())
		}
		start := l.Periods.At(e.From).Start
		if err := l.openingConserved(i); err != nil {
			return err
		}
		for _, a := range e.Allocations {
			if a.Granted < 0 || a.Returned < 0 || a.Returned > a.Granted || a.Target < 0 {
				return fmt.Errorf("%s, period %s: %s granted %d, returned %d, target %d",
					l.Budget, start, a.Region, a.Granted, a.Returned, a.Target)
			}
		}
		if err := l.protectedConserved(e, start); err != nil {
			return err
		}
		if out := l.out(e); out > max(e.Highest, e.Limit) {
			return fmt.Errorf("%s, period %s: %d permits are out, and the limit was never above %d",
				l.Budget, start, out, max(e.Highest, e.Limit))
		}
	}
	return nil
}

// Lowered says whether some incarnation has yet to return permits in the period of index i or later.
func (l Ledger) Lowered(i int) bool {
	for n, e := range l.Entries {
		over := slices.ContainsFunc(e.Allocations, func(a Allocation) bool { return a.Held() > a.Target })
		if over && l.endOf(n) > i {
			return true
		}
	}
	return false
}

// GrantTo is the part of the ledger that the incarnation h needs to know.
func (l Ledger) GrantTo(h Holder) ShareGrant {
	g := ShareGrant{
		Budget: l.Budget, Version: l.Version, Policy: l.Policy, Regions: l.Regions, Template: l.Template,
		Periods: l.Periods, Generation: l.Generation, OpeningSpent: l.EntryAt(0).OpeningSpent,
	}
	for i, e := range l.Entries {
		for _, a := range e.Allocations {
			if a.Holder == h {
				g.Entries = append(g.Entries, GrantEntry{
					From: l.Periods.At(e.From).Start, Until: l.Periods.At(l.endOf(i) - 1).End, Class: a.Class,
					Limit: e.Limit, Granted: a.Granted, Returned: a.Returned, Target: a.Target, Protected: a.Protected,
				})
			}
		}
	}
	return g
}
