package protocol

import (
	"slices"

	"tranche/allocation"
)

// answer hears a call and says what the region may spend, in the coordinator's own words.
func (c *coordinator) answer(call allocation.SyncCall) allocation.SyncAnswer {
	c.heard[call.Region] = c.w.now
	h := allocation.Holder{Region: call.Region, Incarnation: call.Incarnation}
	if call.Lost {
		h = c.join(call.Region)
	} else {
		c.count(h, call)
		c.allot(call)
	}
	if c.changed {
		c.changed = false
		c.followAll(c.w.instant())
	}
	out := allocation.SyncAnswer{
		Format: allocation.SyncFormat, Incarnation: h.Incarnation, Now: c.w.now, Config: c.config,
		Draining: slices.Contains(c.members.Draining, call.Region),
	}
	known := map[allocation.ShareRef]allocation.Generation{}
	for _, k := range call.Known {
		known[allocation.ShareRef{Budget: k.Budget, Term: k.Term}] = k.Generation
	}
	now := c.w.instant()
	for _, b := range c.budgets {
		if b.Number > call.Config {
			out.Budgets = append(out.Budgets, b.ConfiguredBudget)
		}
		for _, l := range b.ledgers {
			ref := allocation.ShareRef{Budget: l.Budget, Term: l.Periods.Start()}
			out.Revision = max(out.Revision, c.stamp)
			if l.Periods.End() <= now || known[ref] == l.Generation {
				continue
			}
			if g := l.GrantTo(h); len(g.Entries) > 0 {
				out.Shares = append(out.Shares, g)
			}
		}
	}
	for _, name := range call.Low {
		if e, ok := c.elsewhere(name, h); ok {
			out.Elsewhere = append(out.Elsewhere, e)
		}
	}
	return out
}

// join gives a region whose database lost its history a new incarnation; what the old one holds stays out.
func (c *coordinator) join(region string) allocation.Holder {
	for _, o := range c.w.owners {
		if o.region.Name == region {
			o.lives++
			o.known = lifeName(o.lives)
		}
	}
	h := allocation.Holder{Region: region, Incarnation: c.incarnation(region)}
	c.members.Holders = slices.Clone(c.members.Holders)
	for i := range c.members.Holders {
		if c.members.Holders[i].Region == region {
			c.members.Holders[i] = h
		}
	}
	c.members.Number++
	c.changed = true
	return h
}

// elsewhere is what the coordinator knows of a budget's running period outside the incarnation that asks.
func (c *coordinator) elsewhere(name string, asks allocation.Holder) (allocation.Elsewhere, bool) {
	b := c.budget(name)
	if b == nil {
		return allocation.Elsewhere{}, false
	}
	l, i := b.running(c.w.instant())
	if l == nil {
		return allocation.Elsewhere{}, false
	}
	e := allocation.Elsewhere{Budget: name, Period: l.Periods.At(i).Start, Limit: l.EntryAt(i).Limit, Generation: l.Generation.Number, Unallocated: l.Unallocated(i)}
	for _, a := range l.EntryAt(i).Allocations {
		if a.Holder == asks {
			e.Returned += a.Returned
			continue
		}
		left := c.remainder(l, a.Holder, i)
		e.Reserved += left.Reserved
		if c.inContact(a.Holder) {
			e.Spendable += left.Stranded
		} else {
			e.Stranded += left.Stranded
		}
	}
	return e, true
}

func (c *coordinator) remainder(l *allocation.Ledger, h allocation.Holder, i int) allocation.Remainder {
	ref := allocation.ShareRef{Budget: l.Budget, Term: l.Periods.Start()}
	return l.RemainderAt(h, i, c.stated[statedKey{h, ref}], 0)
}

// running finds the ledger and the index of the period that holds now.
func (b *budgetState) running(now allocation.Instant) (*allocation.Ledger, int) {
	for _, l := range b.ledgers {
		if i, ok := l.Periods.Find(now); ok {
			return l, i
		}
	}
	return nil, 0
}

// Unallocated is what the ledger of a budget's running period still has to grant, and how far a lowered limit lies below
// what is already out; 0 if no term holds now.
func (w *World) Unallocated(budget string) (unallocated, overcommitted int64) {
	if b := w.coordinator.budget(budget); b != nil {
		if l, i := b.running(w.instant()); l != nil {
			return l.Unallocated(i), l.Overcommitted(i)
		}
	}
	return 0, 0
}

// Highest is the highest limit that a period ever had in its ledger: what is out never exceeds it.
func (w *World) Highest(budget string, period allocation.Instant) int64 {
	if b := w.coordinator.budget(budget); b != nil {
		for _, l := range b.ledgers {
			if i, ok := l.Periods.Index(period); ok {
				return l.EntryAt(i).Highest
			}
		}
	}
	return 0
}

// Stranded is what the coordinator would report as stranded in a region for a budget's running period: what incarnations
// hold, as last stated, that cannot be asked or that lost their history. While the coordinator is away nobody reports.
func (w *World) Stranded(budget string, region int) int64 {
	c := w.coordinator
	b := c.budget(budget)
	if b == nil || !w.coordinatorUp() {
		return 0
	}
	l, i := b.running(w.instant())
	if l == nil {
		return 0
	}
	var sum int64
	for _, a := range l.EntryAt(i).Allocations {
		if a.Region == w.cfg.Regions[region].Name && !c.inContact(a.Holder) {
			sum += c.remainder(l, a.Holder, i).Stranded
		}
	}
	return sum
}

// Change gives a budget another limit or other weights, as an operator does. Regions hear of it with their next call.
func (w *World) Change(b allocation.Budget) {
	c := w.coordinator
	if s := c.budget(b.Name); s != nil {
		c.config++
		s.Budget, s.Version, s.Number = b.WithDefaults(), s.Version+1, c.config
		c.changed = true
	}
}

// Move rebalances units permits of each period, as an operator does.
func (w *World) Move(budget string, from, to int, units int64) {
	c := w.coordinator
	c.moves = append(c.moves, move{budget, w.cfg.Regions[from].Name, w.cfg.Regions[to].Name, units})
}

// Drain lets a region give back what it holds and take no more, or ends that.
func (w *World) Drain(region int, drains bool) {
	c := w.coordinator
	name := w.cfg.Regions[region].Name
	has := func(n string) bool { return n == name }
	c.members.Draining = slices.DeleteFunc(slices.Clone(c.members.Draining), has)
	c.members.Holders = slices.DeleteFunc(slices.Clone(c.members.Holders), func(h allocation.Holder) bool { return h.Region == name })
	if drains {
		c.members.Draining = append(c.members.Draining, name)
	} else {
		c.members.Holders = append(c.members.Holders, allocation.Holder{Region: name, Incarnation: c.incarnation(name)})
	}
	c.members.Number++
	c.changed = true
}
