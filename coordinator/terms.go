package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"

	"tranche/allocation"
)

// nextTerm says which term of a budget is to be opened next, if one must be now.
//
// A term begins where the one before it ended. Where the coordinator was away for so long that this lies before the
// running period, it goes on at the running period: what was never opened stays so, and nothing is ever opened twice,
// since no term begins before OpenedThrough (invariant 10).
//
// Nobody else computes the instants of a calendar: two replicas, or a replica and a node, may have two versions of the
// time-zone data. Where the one that opens this term has another version than the one that opened the term before, this
// one is as much shorter or longer as they differ.
func (s *Service) nextTerm(d BudgetDocument, now allocation.Instant) (allocation.Periods, bool) {
	b := d.Budget.WithDefaults()
	w, through := b.Window.With(s.config.Zones), d.OpenedThrough
	horizon := now + allocation.Instant(w.Horizon(b.RunsAloneFor))
	switch {
	case d.Deleted || through >= horizon:
		return allocation.Periods{}, false
	case w.Once != nil && through <= w.Once.From:
		through = 0 // its only period begins after all that was opened
	}
	if running, ok := w.PeriodAt(now); through == 0 || ok && through <= running.Start {
		periods, err := w.FirstTerm(now, b.RunsAloneFor, spread(b.Name))
		return periods, err == nil
	}
	return w.NextTerm(through, b.RunsAloneFor)
}

// opensAt is when the budget's next term must be opened, as nextTerm has it; never says that none will be.
func opensAt(d BudgetDocument) (at allocation.Instant, never bool) {
	b := d.Budget.WithDefaults()
	through := d.OpenedThrough
	if d.Deleted || through == allocation.Never || b.Window.Once != nil && through > b.Window.Once.From {
		return 0, true
	}
	return through - allocation.Instant(b.Window.Horizon(b.RunsAloneFor)) + 1, false
}

// spread shortens first terms by budget, so that those of many budgets do not end in one second.
func spread(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return h.Sum64()
}

// openTerms opens what must be open, one term per budget and round.
func (s *Service) openTerms(ctx context.Context) (opened int, err error) {
	now := s.instant()
	s.state.mu.Lock()
	due := portion(s.state.openings.due(int64(now), cmp.Compare), &s.state.opening, func(name string) []string {
		d := s.state.budgets[name]
		if p, ok := s.nextTerm(d.value, now); ok && !s.state.descent().Frozen(p.Start()) {
			return []string{name}
		}
		return nil
	})
	s.state.mu.Unlock()
	return eachOf(ctx, s, due, func(name string) (Change, error) { return s.openNext(name, now), nil })
}

// openNext is the change that opens one term: the ledger, which must not exist, and how far the budget is opened, which
// must be what it was. A second leader that opens it at the same time meets a conflict.
func (s *Service) openNext(name string, now allocation.Instant) Change {
	d := s.state.budgets[name]
	if d == nil {
		return Change{}
	}
	periods, ok := s.nextTerm(d.value, now)
	if !ok {
		return Change{}
	}
	next := d.value
	next.OpenedThrough = periods.End()
	l, err := allocation.OpenUnproven(firstOrLater(d.value), next.Version, periods, s.state.termMembers(next.Budget), s.state.descent(), s.generation(allocation.Ledger{}))
	if err != nil {
		return Change{} // it may have been opened in a history that was lost
	}
	change := Change{Reads: []Item{d.item}, Puts: []Item{put(d.item.Key, next)}}
	s.state.addLedger(&change, ledgerWrite{after: l})
	return change
}

// firstOrLater is a budget as it counts in the term that is opened next: what was spent before it was declared counts in the
// first one only.
func firstOrLater(d BudgetDocument) allocation.Budget {
	if d.OpenedThrough != 0 {
		return d.Budget.Later()
	}
	return d.Budget
}

// bringOn lets ledgers follow that are behind their budget or the members.
func (s *Service) bringOn(ctx context.Context) (followed int, err error) {
	now := s.instant()
	s.state.mu.Lock()
	var due []allocation.ShareRef
	if len(s.state.behind) > 0 {
		behind := budgetsOf(slices.Collect(maps.Keys(s.state.behind)))
		due = portion(behind, &s.state.following, func(budget string) []allocation.ShareRef { return s.behindOf(budget, now) })
	}
	s.state.mu.Unlock()
	return eachOf(ctx, s, due, func(ref allocation.ShareRef) (Change, error) { return s.follow(ref, now), nil })
}

// behindOf are the ledgers of a budget that are behind and not over. One that is over stays marked until it is closed: only
// this replica's clock says that it is over, and that clock may be wrong today and right tomorrow.
func (s *Service) behindOf(budget string, now allocation.Instant) (behind []allocation.ShareRef) {
	for _, l := range s.state.terms[budget] {
		if ref := refOf(l.value); s.state.behind[ref] && l.value.Periods.End() > now {
			behind = append(behind, ref)
		}
	}
	return behind
}

// countBehind is how many ledgers are behind and not over.
func (s *state) countBehind(now allocation.Instant) (n int) {
	for ref := range s.behind {
		if l := s.ledgers[ref]; l != nil && l.value.Periods.End() > now {
			n++
		}
	}
	return n
}

// follow is the change that brings one ledger on. It rests on the budget's document too: a grant by an older limit must
// not be made after the limit was lowered.
func (s *Service) follow(ref allocation.ShareRef, now allocation.Instant) Change {
	l, b := s.state.ledgers[ref], s.state.budgets[ref.Budget]
	if l == nil || !s.state.behind[ref] {
		return Change{}
	}
	var change Change
	var declared BudgetDocument // none: its format is unknown, and the ledger is only settled
	if b != nil {
		declared, change.Reads = b.value, []Item{b.item}
	}
	next, err := s.followed(l.value, declared, now)
	if err != nil || b != nil && len(encode(next)) > maxLedgerBytes {
		return Change{} // it can follow when the runs that differ are over, or in the next term
	}
	s.state.addLedger(&change, ledgerWrite{before: l, after: next})
	return change
}

// followed is a ledger that is settled under the present history, and follows its budget and the members if it is behind.
func (s *Service) followed(l allocation.Ledger, b BudgetDocument, now allocation.Instant) (allocation.Ledger, error) {
	next, err := s.settled(l)
	if err != nil || b.Version == 0 || b.Lost || next.Version >= b.Version && next.Members >= s.state.members().Number {
		return next, err
	}
	return next.Follow(b.Budget, b.Version, runningIndex(next, now), s.state.members(), s.generation(next))
}

// eachOf makes one change per element, several at a time: the Committer gathers them into few transactions. A conflict is
// no error: somebody else acted, and the next round decides anew. It returns how many were written.
func eachOf[T any](ctx context.Context, s *Service, due []T, decide func(T) (Change, error)) (done int, err error) {
	var mu sync.Mutex
	next := 0
	pull := func() (x T, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if ok = next < len(due) && ctx.Err() == nil; ok {
			x = due[next]
			next++
		}
		return x, ok
	}
	all := newParts(s.runtime)
	for i := range min(maxBackground, len(due)) {
		all.start(fmt.Sprintf("change-%d", i), func() {
			for x, ok := pull(); ok; x, ok = pull() {
				wrote, failed := s.once(ctx, func() (Change, error) { return decide(x) })
				mu.Lock()
				if wrote {
					done++
				}
				if err == nil {
					err = failed
				}
				mu.Unlock()
			}
		})
	}
	all.wait()
	return done, err
}

// once decides and writes one change; a conflict is left to the next round.
func (s *Service) once(ctx context.Context, decide func() (Change, error)) (wrote bool, err error) {
	life := s.trustedLife()
	if life == 0 {
		return false, errNotSure
	}
	s.state.mu.Lock()
	change, err := decide()
	if err == nil && s.state.knows(change) != nil {
		change = Change{} // reported by status; not ours to touch
	}
	shown := s.shown()
	s.state.mu.Unlock()
	if err != nil || len(change.Puts)+len(change.Deletes) == 0 {
		return false, err
	}
	err = s.commit(ctx, life, change, shown)
	if errors.Is(err, ErrConflict) {
		return false, nil
	}
	return err == nil, err
}

// endEach ends the documents that are over, each by a change of its own. over says why one is; empty: it is not. That is asked
// again within the change: somebody else may have ended it.
func endEach[T any](ctx context.Context, s *Service, all func() map[string]*doc[T], over func(T) string, end func(*doc[T], string) (Change, error)) error {
	s.state.mu.Lock()
	var due []string
	for _, id := range slices.Sorted(maps.Keys(all())) {
		if over(all()[id].value) != "" {
			due = append(due, id)
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(id string) (Change, error) {
		d := all()[id]
		if d == nil {
			return Change{}, nil
		}
		why := over(d.value)
		if why == "" {
			return Change{}, nil
		}
		return end(d, why)
	})
	return err
}
