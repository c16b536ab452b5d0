package coordinator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of what is done by demand.
const (
	allotEvery  = 30 * time.Millisecond // between two rounds: what is asked for meanwhile is decided together
	unmetFor    = time.Second           // how long a refusal counts as demand
	heardFor    = 3 * time.Second       // a region that called so lately and said nothing of a budget does not use it
	coolDown    = time.Second           // nothing is recalled from a region that was given, or gave, so lately
	baseEvery   = time.Minute           // how often the bases of coming periods are looked at
	baseLooksAt = 5                     // periods back
)

// asked is a period of a budget of which some region lacks permits. The period is the region's: its database's clock names
// it. A wrong clock asks for another period's permits, never for more than there are (invariant 10).
type asked struct {
	budget string
	period allocation.Instant
}

// seenDemand is what this replica heard of one budget in one region. It is a hint, and lost with the replica.
type seenDemand struct {
	allocation.Demand
	at    time.Time
	moved time.Time // when the region was last given some, or asked to return some
}

// hearAsk hears a region that runs low. The call shows no marks, so nothing is believed of it but that it asks.
func (s *Service) hearAsk(call allocation.SyncCall, arrived time.Time) (allocation.SyncAnswer, error) {
	s.state.mu.Lock()
	var r *region
	if s.state.deployment != nil && call.Deployment == s.state.deployment.value.ID {
		r = s.state.regions[call.Region]
	}
	if r == nil || r.doc == nil || !r.doc.value.Confirmed || call.Incarnation != r.doc.value.Incarnation {
		s.state.mu.Unlock()
		return allocation.SyncAnswer{}, refused("make a whole call first", "region %.70s is not known by incarnation %.70s", call.Region, call.Incarnation)
	}
	answer := s.baseAnswer(r)
	s.state.mu.Unlock()
	s.noteDemand(call, arrived)
	return answer, nil
}

// noteDemand takes in what a call says of demand, and wakes the part that answers it.
func (s *Service) noteDemand(call allocation.SyncCall, arrived time.Time) {
	if len(call.Demand) == 0 {
		return
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	r := s.state.regions[call.Region]
	if r.demand == nil {
		r.demand = map[string]seenDemand{}
	}
	for _, d := range call.Demand {
		b := s.state.budgets[d.Budget]
		if b == nil || b.value.Budget.Allocation.Policy != allocation.PolicyDemand || d.Used < 0 || d.Rate < 0 || d.Unmet < 0 {
			delete(r.demand, d.Budget)
			continue
		}
		before := r.demand[d.Budget]
		if before.Period == d.Period && arrived.Sub(before.at) < unmetFor {
			d.Used = max(d.Used, before.Used)
			d.Unmet = max(d.Unmet, before.Unmet/2) // several nodes call, and each speaks of its own refusals
		}
		r.demand[d.Budget] = seenDemand{Demand: d, at: arrived, moved: before.moved}
		s.state.asking[asked{d.Budget, d.Period}] = true
	}
	s.asked.Notify()
}

// allotOften changes targets by demand, as soon as somebody asks, and not more often than every allotEvery. Every replica
// does so for those that call it: all that is written is compared.
func (s *Service) allotOften(ctx context.Context) error {
	for ctx.Err() == nil {
		s.asked.Wait(ctx)
		started := s.now()
		if err := s.allotAsked(ctx); err != nil && ctx.Err() == nil {
			s.log.Debug("demand is not answered", "error", err)
		}
		s.runtime.Sleep(ctx, rest(s.runtime, started, allotEvery))
	}
	return nil
}

// allotAsked answers all that was asked for since the last time.
func (s *Service) allotAsked(ctx context.Context) error {
	s.state.mu.Lock()
	due := make([]asked, 0, len(s.state.asking))
	for a := range s.state.asking {
		due = append(due, a)
	}
	clear(s.state.asking)
	s.state.mu.Unlock()
	slices.SortFunc(due, func(a, b asked) int { return cmp.Or(cmp.Compare(a.budget, b.budget), cmp.Compare(a.period, b.period)) })
	_, err := eachOf(ctx, s, due, func(a asked) (Change, error) { return s.allot(a), nil })
	return err
}

// allot is the change that answers the demand of one period. It rests on the budget's document too: nothing is granted by
// an older limit.
func (s *Service) allot(a asked) Change {
	b := s.state.budgets[a.budget]
	if b == nil || b.value.Deleted || b.value.Lost {
		return Change{}
	}
	for _, l := range s.state.terms[a.budget] {
		i, ok := l.value.Periods.Index(a.period)
		if !ok {
			continue
		}
		period := l.value.Periods.At(i)
		if s.state.behind[refOf(l.value)] || s.state.broken[refOf(l.value)] != "" || period.End-period.Start < allocation.Instant(allocation.DemandShortest) {
			return Change{}
		}
		before, err := s.settled(l.value)
		if err != nil {
			return Change{} // frozen: what is free there may be others'
		}
		next, changed, err := before.Allot(i, s.seekers(before, i), s.generation(before))
		if err != nil || !changed || len(encode(next)) > maxLedgerBytes {
			return Change{} // the period keeps what it has
		}
		s.noteMoved(l.value, next, i)
		change := Change{Reads: []Item{b.item}}
		s.state.addLedger(&change, ledgerWrite{before: l, after: next})
		return change
	}
	return Change{}
}

// seekers are the regions as the policy sees them in one period.
func (s *Service) seekers(l allocation.Ledger, i int) []allocation.Seeker {
	at, period := s.now(), l.Periods.At(i)
	var out []allocation.Seeker
	for _, h := range s.state.members().Holders {
		r := s.state.regions[h.Region]
		seeker := allocation.Seeker{Holder: h, Askable: s.canBeAsked(h, at)}
		st, _ := s.lastStatement(h, refOf(l))
		for _, u := range st.Usage {
			if u.Period == period.Start && u.Class == allocation.General {
				seeker.Used = u.Spent + u.Reserved
			}
		}
		d, known := r.demand[l.Budget]
		seeker.Fresh = known && at.Sub(d.moved) < coolDown
		switch {
		case known && d.Period == period.Start && at.Sub(d.at) < heardFor:
			seeker.Used, seeker.Rate = max(seeker.Used, d.Used), d.Rate
			if at.Sub(d.at) < unmetFor {
				seeker.Unmet = d.Unmet
			}
		case !r.skewAt.IsZero() && at.Sub(r.skewAt) < heardFor:
			// It called, and said nothing of this budget.
		default:
			seeker.Rate = averageRate(seeker.Used, period, at)
		}
		out = append(out, seeker)
	}
	return out
}

// averageRate is units a minute since the period began: all that can be said of a region that another replica hears.
func averageRate(used int64, period allocation.Period, at time.Time) int64 {
	seconds := max(1, int64(allocation.At(at)-period.Start))
	return min(used, allocation.MaxUnits/60) * 60 / seconds
}

// noteMoved notes which regions a change gave to or asked to return.
func (s *Service) noteMoved(before, after allocation.Ledger, i int) {
	targets := func(l allocation.Ledger) map[string]int64 {
		m := map[string]int64{}
		for _, a := range l.EntryAt(i).Allocations {
			m[a.Region] += a.Target
		}
		return m
	}
	was, is := targets(before), targets(after)
	for _, r := range s.state.ordered {
		if was[r.name] == is[r.name] {
			continue
		}
		if r.demand == nil {
			r.demand = map[string]seenDemand{}
		}
		d := r.demand[before.Budget]
		d.moved = s.now()
		d.Unmet = 0 // it was answered; what it lacks from now on, it says again
		r.demand[before.Budget] = d
	}
}

// seen is what each region used of a demand budget in its last periods, as stated, and what it lacked of late; nil for
// other policies.
func (s *state) seen(b allocation.Budget) map[string]int64 {
	if b.Allocation.Policy != allocation.PolicyDemand {
		return nil
	}
	now, seen := allocation.At(s.now()), map[string]int64{}
	for _, l := range s.terms[b.Name] {
		i, _ := l.value.Periods.Find(now)
		one := l.value.Periods.At(i)
		since := now - min(now, baseLooksAt*(one.End-one.Start))
		for _, r := range s.ordered {
			sh := r.shards[allocation.ShardOf(b.Name)]
			if sh == nil {
				continue
			}
			for _, u := range sh.shares[refOf(l.value)].Usage {
				if u.Period >= since && u.Period <= now {
					seen[r.name] += min(u.Spent+u.Reserved, allocation.MaxUnits)
				}
			}
		}
	}
	return seen
}

// followDemand sets the bases of periods that have yet to begin by what was seen, so that a short window, in which nobody
// can ask in time, is split as the last ones were used.
func (s *Service) followDemand(ctx context.Context) error {
	at := s.now()
	now := allocation.At(at)
	s.state.mu.Lock()
	var due []allocation.ShareRef
	for _, name := range s.state.bases.due(at.UnixNano(), cmp.Compare) {
		s.state.bases.set(name, at.Add(baseEvery).UnixNano())
		for _, l := range s.state.opened(name, now) {
			due = append(due, refOf(l.value))
		}
	}
	s.state.mu.Unlock()
	_, err := eachOf(ctx, s, due, func(ref allocation.ShareRef) (Change, error) {
		change, err := s.rebase(ref, now)
		if errors.Is(err, allocation.ErrTooManyEntries) {
			return Change{}, nil // the next term begins with what was seen
		}
		return change, err
	})
	return err
}

// rebase is the change that sets one term's bases. It leaves the running period alone, and the next, which may begin now.
func (s *Service) rebase(ref allocation.ShareRef, now allocation.Instant) (Change, error) {
	l, b := s.state.ledgers[ref], s.state.budgets[ref.Budget]
	if l == nil || b == nil || b.value.Lost || s.state.behind[ref] {
		return Change{}, nil
	}
	from := 0
	if i, running := l.value.Periods.Find(now); running {
		from = i + 2
	} else if l.value.Periods.Start() <= now {
		return Change{}, nil
	}
	m := s.state.members()
	if m.Seen = s.state.seen(b.value.Budget); len(m.Seen) == 0 {
		return Change{}, nil
	}
	before, err := s.settled(l.value)
	if err != nil {
		return Change{}, nil // frozen
	}
	next, changed, err := before.Rebase(b.value.Budget, from, m, s.generation(before))
	if err != nil || !changed || len(encode(next)) > maxLedgerBytes {
		return Change{}, err
	}
	change := Change{Reads: []Item{b.item}}
	s.state.addLedger(&change, ledgerWrite{before: l, after: next})
	return change, nil
}

// refuseMoveByHand refuses a rebalance of what demand moves by itself.
func refuseMoveByHand(b allocation.Budget) error {
	if b.Allocation.Policy != allocation.PolicyDemand {
		return nil
	}
	return refused("set allocation.min for the region that is to have more, or allocation.max for the one that is to have less",
		"%s has policy demand, which moves permits by itself", b.Name)
}
