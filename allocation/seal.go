package allocation

import (
	"errors"
	"fmt"
	"slices"
)

// A seal ends an incarnation, all its shares at once: first the coordinator records that (Residence.End), then the owner's
// database is sealed and read, then the ledgers count what it proves. The seal itself is one transaction in the owner's database, which locks the share
// rows, then the usage rows; a usage row is made only under its share row's lock, so no period can appear behind it:
//
//	seal                                a spend of a period that has no row yet
//	  lock share rows                     lock the share row: waits
//	  lock usage rows, mark all sealed    the share is sealed: the row that it makes is sealed too, and refuses
//	  commit
//
// After it no spend commits and no grant is taken; settle, release and lapse still are, within what was reserved. So
// granted − returned − spent − reserved can never be spent any more, and the ledger may count it as returned.

// ErrNoProof says that permits cannot be granted again by a seal.
var ErrNoProof = errors.New("the seal proves nothing")

// Seal is what was read from a sealed owner, in the transaction that sealed it or in a later one.
type Seal struct {
	Holder
	Home   Home          `json:"home"`
	Marks  []Mark        `json:"marks"` // all that the database shows: one that lacks some is not the owner, but an older copy of it
	Ended  []string      `json:"ended,omitempty"`
	Shares []SealedShare `json:"shares"` // all that it holds
}

// SealedShare is one share with all its usage rows.
type SealedShare struct {
	Share Share   `json:"share"`
	Used  []Usage `json:"used"` // sorted by period
}

// Seal is the share's final state. Apply takes no grant any more, and rows that are made from it are sealed.
func (s Share) Seal() Share {
	s.Sealed = true
	return s
}

// Seal is the row's final state: counters stand, but for what was reserved.
func (u Usage) Seal() Usage {
	u.Sealed = true
	return u
}

// Proves says whether a seal is proof for the ledgers: the incarnation was ended first, the seal was read from its recorded
// home, which holds every mark that was ever stated, and all that it holds is sealed (invariant 5). It is as good as those
// statements: what a database lost without ever having stated it, while the memories of its nodes are gone too, nobody
// can know.
func (s Seal) Proves(r Residence, stated []Mark) error {
	switch {
	case s.Incarnation == "" || s.Incarnation != r.Sealing:
		return fmt.Errorf("it is of incarnation %q, and the one of %s that was ended to be sealed is %q: %w", s.Incarnation, s.Region, r.Sealing, ErrNoProof)
	case s.Home != r.Home:
		return fmt.Errorf("it was read from another database than the recorded home of %s: %w", s.Region, ErrNoProof)
	}
	if lost := LostMarks(stated, s.Marks, s.Ended); len(lost) > 0 {
		return fmt.Errorf("the database does not hold the mark %d of writer %s, which it stated before: it lost commits: %w",
			lost[0].Count, lost[0].Writer, ErrNoProof)
	}
	for _, sh := range s.Shares {
		open := slices.ContainsFunc(sh.Used, func(u Usage) bool { return !u.Sealed })
		if !sh.Share.Sealed || open {
			return fmt.Errorf("%s, term of %s is not sealed: %w", sh.Share.Budget, sh.Share.Term(), ErrNoProof)
		}
	}
	return nil
}

// CountSeal enters a seal that Proves into the ledger of one term: of every period that the incarnation holds, all that it
// neither spent nor holds reserved becomes returned, also what was granted and never arrived, since a sealed owner takes
// no grant. What is free then goes to those below their target. Reading the same seal again, or a later state of it in
// which reservations have ended, only raises what is returned.
//
// The region is named by its former holder; it has no target any more.
func (l Ledger) CountSeal(h Holder, sealed SealedShare, gen Generation) (Ledger, bool, error) {
	if l.Template {
		return l, false, nil // its split is fixed within a term
	}
	if l.Contradicts(sealed.Share.Generation) {
		return l, false, fmt.Errorf("%s, term of %s: generation %s: %w", l.Budget, l.Periods.Start(), sealed.Share.Generation, ErrContradicted)
	}
	for _, u := range sealed.Used {
		i, ok := l.Periods.Index(u.Period)
		if !ok {
			return l, false, fmt.Errorf("%s: no period begins at %s: %w", l.Budget, u.Period, ErrContradicted)
		}
		if l = l.cut(i); i+1 < l.Periods.Len() {
			l = l.cut(i + 1)
		}
	}
	l = l.cut(0)
	changed := false
	for i := range l.Entries {
		e := &l.Entries[i]
		for j := range e.Allocations {
			a := &e.Allocations[j]
			if a.Holder != h {
				continue
			}
			var used int64
			for _, u := range sealed.Used {
				if u.Class == a.Class && u.Period == l.Periods.At(e.From).Start {
					used += u.Spent + u.Reserved
				}
			}
			if used > a.Held() {
				return l, false, fmt.Errorf("%s, period %s: %s sealed %d as used, and held %d: %w",
					l.Budget, l.Periods.At(e.From).Start, h.Region, used, a.Held(), ErrContradicted)
			}
			changed = changed || a.Granted-used > a.Returned || a.Target != 0
			a.Returned, a.Target, a.Protected = max(a.Returned, a.Granted-used), 0, 0
		}
	}
	if !changed {
		return l, false, nil
	}
	return l.grant(gen), true, nil
}
