package protocol

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"

	"tranche/allocation"
)

// keepOver is how long a ledger and a share outlive their term, so that the last word on it can arrive.
const keepOver = allocation.Instant(2 * allocation.Hour)

// coordinator is the global side: budgets, the ledgers of their opened terms, and what was heard of the regions.
type coordinator struct {
	w       *World
	budgets []*budgetState // by name
	members allocation.Members
	config  int64 // number of the last change of a budget
	stamp   int64
	stated  map[statedKey]allocation.ShareStatement
	heard   map[string]int64 // by region, Unix microseconds
	since   int64            // when it was last away: nobody could be heard before
	changed bool             // some ledger may lag behind its budget or the members
	moves   []move           // operators' rebalances that wait for nothing but the next round
}

type budgetState struct {
	allocation.ConfiguredBudget
	through allocation.Instant   // up to where terms were opened
	ledgers []*allocation.Ledger // of the opened terms, by start
}

type statedKey struct {
	allocation.Holder
	allocation.ShareRef
}

type move struct {
	budget, from, to string
	units            int64
}

func newCoordinator(w *World) *coordinator {
	c := &coordinator{w: w, stated: map[statedKey]allocation.ShareStatement{}, heard: map[string]int64{}}
	for _, b := range w.cfg.Budgets {
		c.config++
		c.budgets = append(c.budgets, &budgetState{ConfiguredBudget: allocation.ConfiguredBudget{
			Budget: b.WithDefaults(), Version: 1, Number: c.config,
		}})
	}
	c.members.Number = 1
	for _, r := range w.cfg.Regions {
		c.members.Regions = append(c.members.Regions, r.Name)
		c.members.Holders = append(c.members.Holders, allocation.Holder{Region: r.Name, Incarnation: "1"})
		c.heard[r.Name] = w.now
	}
	return c
}

func (c *coordinator) generation(l allocation.Ledger) allocation.Generation {
	c.stamp++
	return allocation.Generation{Number: l.Generation.Number + 1, Stamp: fmt.Sprintf("%016x", c.stamp)}
}

// tick is one round of background work: terms are opened ahead, changes followed, old ledgers forgotten.
func (c *coordinator) tick() {
	now := c.w.instant()
	for _, b := range c.budgets {
		for {
			periods, ok := b.next(now)
			if !ok {
				break
			}
			l := allocation.OpenLedger(b.Budget, b.Version, periods, c.members, c.generation(allocation.Ledger{}))
			b.through = periods.End()
			b.ledgers = append(b.ledgers, &l)
			c.check(l)
		}
		b.ledgers = slices.DeleteFunc(b.ledgers, func(l *allocation.Ledger) bool {
			over := l.Periods.End() < now-keepOver
			if over {
				c.forget(*l)
			}
			return over
		})
	}
	if c.changed {
		c.changed = false
		c.followAll(now)
	}
	for _, m := range c.moves {
		c.move(m, now)
	}
	c.moves = nil
}

// next says which term is to be opened next, if one must be now; it goes on where the last one ended, or, after a long
// absence, at the running period. It is the rule of the coordinator's own, which is not exported.
func (b *budgetState) next(now allocation.Instant) (allocation.Periods, bool) {
	w, through := b.Budget.Window, b.through
	horizon := now + allocation.Instant(w.Horizon(b.Budget.RunsAloneFor))
	switch {
	case through == allocation.Never || through >= horizon:
		return allocation.Periods{}, false
	case w.Once != nil && through <= w.Once.From:
		through = 0
	}
	if running, ok := w.PeriodAt(now); through == 0 || ok && through <= running.Start {
		h := fnv.New64a()
		h.Write([]byte(b.Budget.Name))
		periods, err := w.FirstTerm(now, b.Budget.RunsAloneFor, h.Sum64())
		return periods, err == nil
	}
	return w.NextTerm(through, b.Budget.RunsAloneFor)
}

func (c *coordinator) forget(l allocation.Ledger) {
	for _, h := range c.holdersOf(l) {
		delete(c.stated, statedKey{h, allocation.ShareRef{Budget: l.Budget, Term: l.Periods.Start()}})
	}
}

// holdersOf are all incarnations that a ledger knows.
func (c *coordinator) holdersOf(l allocation.Ledger) []allocation.Holder {
	var all []allocation.Holder
	for _, e := range l.Entries {
		for _, a := range e.Allocations {
			if !slices.Contains(all, a.Holder) {
				all = append(all, a.Holder)
			}
		}
	}
	return all
}

// running is the index of the period that holds now, 0 before the term.
func running(l *allocation.Ledger, now allocation.Instant) int {
	i, _ := l.Periods.Find(now)
	return i
}

// followAll brings every open ledger to its budget and to the members as they are now.
func (c *coordinator) followAll(now allocation.Instant) {
	for _, b := range c.budgets {
		for _, l := range b.ledgers {
			if l.Periods.End() <= now || l.Version == b.Version && l.Members == c.members.Number {
				continue
			}
			next, err := l.Follow(b.Budget, b.Version, running(l, now), c.members, c.generation(*l))
			if err != nil {
				continue // it lists too many periods that differ; the next term follows
			}
			c.replace(l, next)
		}
	}
}

func (c *coordinator) move(m move, now allocation.Instant) {
	giver, gives := c.holder(m.from)
	taker, takes := c.holder(m.to)
	b := c.budget(m.budget)
	if b == nil || !gives || !takes {
		return
	}
	for _, l := range b.ledgers {
		if l.Periods.End() <= now {
			continue
		}
		if next, err := l.Move(giver, taker, m.units, running(l, now), c.generation(*l)); err == nil {
			c.replace(l, next)
		}
	}
}

func (c *coordinator) replace(l *allocation.Ledger, next allocation.Ledger) {
	*l = next
	c.check(next)
}

// check holds a ledger to invariant 1.
func (c *coordinator) check(l allocation.Ledger) {
	if err := l.Conserved(); err != nil {
		c.w.violated("invariant 1: %w", err)
	}
}

func (c *coordinator) budget(name string) *budgetState {
	for _, b := range c.budgets {
		if b.Budget.Name == name {
			return b
		}
	}
	return nil
}

func (c *coordinator) holder(region string) (allocation.Holder, bool) {
	for _, h := range c.members.Holders {
		if h.Region == region {
			return h, true
		}
	}
	return allocation.Holder{}, false
}

// inContact says whether a region was heard lately: whether it can be asked.
func (c *coordinator) inContact(h allocation.Holder) bool {
	current := allocation.Holder{Region: h.Region, Incarnation: c.incarnation(h.Region)}
	return h == current && c.w.now-max(c.heard[h.Region], c.since) <= c.w.cfg.Unreachable.Microseconds()
}

// incarnation is the present one of a region, also of one that drains.
func (c *coordinator) incarnation(region string) string {
	for _, o := range c.w.owners {
		if o.region.Name == region && o.known != "" {
			return o.known
		}
	}
	return "1"
}

// count enters the statements of a call.
func (c *coordinator) count(h allocation.Holder, call allocation.SyncCall) {
	for _, st := range call.Statements {
		for _, s := range st.Shares {
			l := c.ledger(allocation.ShareRef{Budget: s.Budget, Term: s.Term})
			if l == nil {
				continue
			}
			c.stated[statedKey{h, allocation.ShareRef{Budget: s.Budget, Term: s.Term}}] = s
			next, changed, err := l.Count(h, s, c.generation(*l))
			switch {
			case errors.Is(err, allocation.ErrTooManyEntries):
			case err != nil:
				c.w.violated("%s: %w", h.Region, err)
			case changed:
				c.replace(l, next)
			}
		}
	}
}

func (c *coordinator) ledger(ref allocation.ShareRef) *allocation.Ledger {
	if b := c.budget(ref.Budget); b != nil {
		for _, l := range b.ledgers {
			if l.Periods.Start() == ref.Term {
				return l
			}
		}
	}
	return nil
}
