package allocation

import (
	"errors"
	"fmt"
	"slices"
)

// ErrFrozen says that a ledger may not be changed: its history is frozen, or was thawed and the ledger is not settled yet.
var ErrFrozen = errors.New("the ledger is frozen until every region has stated what it holds")

// Settled says whether the ledger may be granted from: nothing is frozen in its term, and what lost incarnations may hold
// of it is counted as out. A ledger that is not is brought there by Settle, one document at a time.
func (l Ledger) Settled(s Standing) bool {
	return !s.Frozen(l.Periods.Start()) && l.History == s.History
}

// Under is the ledger of a term that is opened now, under this history: nothing of it was out before. Terms that begin
// before some lost incarnation's horizon go through Settle instead.
func (l Ledger) Under(s Standing) Ledger {
	l.History = s.History
	return l
}

// Reconcile raises what the ledger knows of h to what h's owner states that it holds, under a history that is frozen.
// Both counters only rise along every line of descent and the owner's are its own, so the greater is right; what the
// ledger granted in a line that the owner never heard of stays out, which is safe. Nothing is granted by it.
//
// The generation goes above the owner's, so that later grants are newer to it, and the owner's stamp is remembered as
// known. It fails with ErrContradicted if the owner states less returned than the ledger counted, or other periods: then
// it is the owner that lost history.
func (l Ledger) Reconcile(h Holder, held Share, st ShareStatement, stamp string) (Ledger, bool, error) {
	if held.Periods.Start() != l.Periods.Start() || held.Periods.End() != l.Periods.End() || held.Budget != l.Budget {
		return l, false, fmt.Errorf("%s, term of %s: the owner holds a term %s–%s: %w",
			l.Budget, l.Periods.Start(), held.Periods.Start(), held.Periods.End(), ErrContradicted)
	}
	runs, err := l.runsOf(held, st)
	if err != nil {
		return l, false, err
	}
	if err := l.forgot(h, runs); err != nil {
		return l, false, err
	}
	changed := l.Contradicts(held.Generation) || l.Generation.Number < held.Generation.Number
	newer := held.Generation.Number > l.Generation.Number
	if newer {
		l.Members = 0 // the owner's targets may be by members that only the lost line had: it follows the present ones anew
	}
	if held.OpeningSpent > l.EntryAt(0).OpeningSpent {
		l, changed = l.openedWith(held.OpeningSpent), true
	}
	for _, r := range runs {
		l = l.cut(r.from)
		if r.next < l.Periods.Len() {
			l = l.cut(r.next)
		}
		for i := range l.Entries {
			e := &l.Entries[i]
			if e.From < r.from || e.From >= r.next {
				continue
			}
			a := e.allocation(h, r.class)
			changed = changed || a.Granted < r.granted || a.Returned < r.returned
			if a.Returned < r.returned {
				l.Members = 0 // who lacks what came back is granted it as the ledger follows: nothing is while all is frozen
			}
			a.Granted, a.Returned = max(a.Granted, r.granted), max(a.Returned, r.returned)
			if newer {
				a.Target, a.Protected = r.target, min(r.protected, r.target)
				e.Protected = max(e.Protected, a.protectedInAll(*e))
			}
			// In the line that was lost the limit may have been higher: what is out then is explained by it.
			e.Highest = max(e.Highest, r.limit, l.out(*e))
		}
	}
	if !changed {
		return l, false, nil
	}
	return l.restamp(held.Generation, stamp), true, nil
}

// restamp goes on to a generation above all that are known, and remembers the owner's as one that was given out.
func (l Ledger) restamp(stated Generation, stamp string) Ledger {
	l.Entries = merge(l.Entries)
	l.Stamps = slices.Clone(l.Stamps)
	for _, g := range []Generation{l.Generation, stated} {
		if g.Number > 0 && !slices.Contains(l.Stamps, g) {
			l.Stamps = append(l.Stamps, g)
		}
	}
	slices.SortStableFunc(l.Stamps, func(a, b Generation) int { return compare(a.Number, b.Number) })
	l.Stamps = l.Stamps[max(0, len(l.Stamps)-maxStamps):]
	l.Generation = Generation{Number: max(l.Generation.Number, stated.Number) + 1, Stamp: stamp}
	return l
}

// heldRun is what an owner holds of the periods [from, next) of one class.
type heldRun struct {
	from, next               int
	class                    Class
	granted, returned, limit int64
	target, protected        int64
}

// runsOf joins an owner's share with what it states to have returned of single periods.
func (l Ledger) runsOf(held Share, st ShareStatement) ([]heldRun, error) {
	if r, twice := overlap(st.Returned); twice {
		return nil, fmt.Errorf("%s: the period of %s is stated twice", l.Budget, r.From)
	}
	var runs []heldRun
	for _, e := range held.Entries {
		cuts := []Instant{e.From, e.Until}
		for _, r := range st.Returned {
			if r.Class == e.Class {
				cuts = append(cuts, max(e.From, min(r.From, e.Until)), max(e.From, min(r.Until, e.Until)))
			}
		}
		slices.Sort(cuts)
		cuts = slices.Compact(cuts)
		for i := 0; i+1 < len(cuts); i++ {
			from, ok := l.Periods.Index(cuts[i])
			next := l.Periods.Len()
			if ok && cuts[i+1] != l.Periods.End() {
				next, ok = l.Periods.Index(cuts[i+1])
			}
			if !ok {
				return nil, fmt.Errorf("%s: no period begins at %s or at %s: %w", l.Budget, cuts[i], cuts[i+1], ErrContradicted)
			}
			run := heldRun{from: from, next: next, class: e.Class, granted: e.Granted, limit: e.Limit, target: e.Target, protected: e.Protected}
			for _, r := range st.Returned {
				if r.Class == e.Class && r.From <= cuts[i] && cuts[i] < r.Until {
					run.returned = r.Returned
				}
			}
			runs = append(runs, run)
		}
	}
	return runs, nil
}

// forgot finds a return that the ledger counted and that the owner does not show: it would spend what others long have.
func (l Ledger) forgot(h Holder, runs []heldRun) error {
	for i, e := range l.Entries {
		for _, a := range e.Allocations {
			if a.Holder != h || a.Returned == 0 {
				continue
			}
			for p := e.From; p < l.endOf(i); {
				at := slices.IndexFunc(runs, func(r heldRun) bool { return r.class == a.Class && r.from <= p && p < r.next })
				if at < 0 || runs[at].returned < a.Returned {
					return fmt.Errorf("%s, period %s: the ledger counted %d returned by %s, whose owner states less: %w",
						l.Budget, l.Periods.At(p).Start, a.Returned, h.Region, ErrContradicted)
				}
				p = runs[at].next
			}
		}
	}
	return nil
}

// RebuildLedger makes the ledger of a term that etcd lost, from the share of an owner that holds some of it. It knows
// nobody's allocation yet: Reconcile enters this owner's and each other's. The generation is the owner's, so that what
// others state under lower numbers is not taken for news.
func RebuildLedger(held Share, unit string) Ledger {
	l := Ledger{
		Format: LedgerFormat, Budget: held.Budget, Unit: unit, Version: held.Version, Template: held.Template, Policy: held.Policy,
		Regions: held.Regions, Periods: held.Periods, Entries: []Entry{{}},
	}
	for _, e := range held.Entries {
		if i, ok := held.Periods.Index(e.From); ok {
			l = l.cut(i)
		}
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		if g, ok := held.EntryFor(l.Periods.At(e.From).Start, General); ok {
			e.Limit, e.Highest = g.Limit, g.Limit
		}
	}
	return l.openedWith(held.OpeningSpent)
}

// Settle makes a ledger of a thawed history fit to be granted from: in every period all that is not proven to be
// elsewhere is counted as granted to the incarnations that nobody can speak for, and stays stranded to the period's end.
// Nothing else changes. A term that is opened anew goes through it too, before anybody is granted anything of it: it may
// have been opened in the line that was lost.
//
// It fails with ErrFrozen while the term is frozen.
func (l Ledger) Settle(s Standing, stamp string) (Ledger, bool, error) {
	switch {
	case s.Frozen(l.Periods.Start()):
		return l, false, ErrFrozen
	case l.History == s.History:
		return l, false, nil
	}
	l = l.cut(0)
	stranded := false
	for _, h := range s.Lost {
		if l.Periods.Start() >= h.Through {
			continue
		}
		for i := range l.Entries {
			e := &l.Entries[i]
			if n := l.unproven(*e, h.Holder); n > 0 {
				e.allocation(h.Holder, General).Granted += n
				stranded = true
			}
		}
	}
	l.History = s.History
	if stranded {
		l = l.restamp(Generation{}, stamp)
	}
	return l, true, nil
}

// unproven is how many permits of a period a lost incarnation may hold beyond what the ledger knows: all that any limit of
// the period ever allowed and that is not out already.
func (l Ledger) unproven(e Entry, h Holder) int64 {
	e.Limit = max(e.Limit, e.Highest)
	return l.unallocated(e, h)
}

// MayHold is what the region of an incarnation that nobody can speak for holds of the period of index i, as far as the
// ledger knows, and the most that it may: all that is not proven to be elsewhere. A region that states lowers that.
func (l Ledger) MayHold(h Holder, i int) (known, most int64) {
	e := l.EntryAt(i)
	for _, a := range e.Allocations {
		if a.Region == h.Region {
			known = addUp(known, a.Held())
		}
	}
	return known, addUp(known, l.unproven(e, h))
}

// OpenUnproven opens a term that may have been opened before, in a line that was lost: the members are told of it and get
// targets, but what lost incarnations may hold of it is counted as theirs first. With nobody lost it is OpenLedger.
func OpenUnproven(b Budget, version int64, periods Periods, m Members, s Standing, gen Generation) (Ledger, error) {
	if s.Frozen(periods.Start()) {
		return Ledger{}, ErrFrozen
	}
	holders := m.Holders
	m.Holders = nil
	l, _, err := OpenLedger(b, version, periods, m, gen).Settle(s, gen.Stamp)
	if err != nil {
		return Ledger{}, err
	}
	m.Holders = holders
	l.Stamps, l.Generation = nil, Generation{}
	return l.Follow(b, version, 0, m, gen)
}

// Stricter joins two versions of one budget that two lines of descent hold: the later one, with the lower of both limits,
// deleted if it is in either. It is a version of its own, above both, unless they say the same.
func Stricter(a, b ConfiguredBudget) ConfiguredBudget {
	if b.Version < a.Version {
		a, b = b, a
	}
	out := b
	limit := min(a.Budget.LimitOrZero(), b.Budget.LimitOrZero())
	protected := min(max(a.Budget.Protected, b.Budget.Protected), limit)
	if limit != b.Budget.LimitOrZero() {
		out.Budget.Override = a.Budget.Override // whose limit counts, its override ends
	}
	out.Budget.Limit, out.Budget.Protected, out.Deleted = &limit, protected, a.Deleted || b.Deleted
	out.Budget.stricter(a.Budget)
	if limit != b.Budget.LimitOrZero() || protected != b.Budget.Protected || out.Deleted != b.Deleted || !sameEnforcement(out.Budget, b.Budget) {
		out.Version = b.Version + 1
	}
	return out
}
