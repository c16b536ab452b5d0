package regional

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"tranche/allocation"
)

// Bounds of what a node remembers and says of demand.
const (
	maxDemands  = 4 * allocation.MaxDemands // budgets of policy demand that a node remembers
	rateOver    = 500 * time.Millisecond    // a rate is measured over at least so long
	quietAfter  = 5 * time.Second           // a budget that was not used for so long is not spoken of any more
	askAtLeast  = 50 * time.Millisecond     // between two times that a node asks for one budget
	askAtMost   = time.Second               // the same, while asking brings nothing
	askAnswerIn = 3 * time.Second
)

// demandState is what a node knows of the demand for budgets of policy demand. All of it is a hint to the coordinator and
// lost with the process: who may spend is decided by the locked rows alone.
type demandState struct {
	hungry Signal // some share runs low

	mu      sync.Mutex
	seen    map[string]*budgetDemand
	waiting []*shareWaiter
}

// budgetDemand is one budget in its running period.
type budgetDemand struct {
	period  allocation.Instant
	used    int64 // spent and reserved by the region, in the newest locked row
	share   int64 // granted less returned, in the same
	rate    int64 // units a minute, used or refused
	unmet   int64 // units refused here since the last call
	refused int64 // units refused here in the period
	sampled int64 // used and refused, when the rate was last measured
	since   time.Time
	at      time.Time // when it was last used
	asked   time.Time
	pause   time.Duration // until it may be asked for again
	low     bool
}

// noteDemand takes in what a batch found and decided. Rows that could not be committed are noted all the same.
func (n *Node) noteDemand(l *allocation.Locked, decided []*call) {
	now, low := n.now(), false
	n.demand.mu.Lock()
	for _, c := range decided {
		for i := range c.decision.Budgets {
			b := &c.decision.Budgets[i]
			policy := l.Catalogue.PolicyOf(b.Budget)
			if policy == nil || policy.Policy != allocation.PolicyDemand {
				continue
			}
			u := l.Usage[b.UsageKey]
			if u == nil || u.Template {
				continue
			}
			d := n.demand.of(b.Budget, b.Period, now)
			if d == nil {
				continue
			}
			d.take(u, now)
			if moreMayCome(b.Reason) && !c.waits {
				d.unmet, d.refused = d.unmet+b.Requested, d.refused+b.Requested
			}
			left, need := u.SpendableBy(allocation.Interactive, b.Limit), policy.NeedsFor(d.rate)
			short := moreMayCome(b.Reason)
			if d.low = d.low || short || 2*left < need; d.low && now.Sub(d.asked) >= d.pause {
				low = true
			}
		}
	}
	n.demand.mu.Unlock()
	if low {
		n.demand.hungry.Notify()
	}
}

// of finds or makes what is known of a budget's period; nil if that is too many, or an older period.
func (s *demandState) of(budget string, period allocation.Instant, now time.Time) *budgetDemand {
	d := s.seen[budget]
	switch {
	case d == nil && len(s.seen) >= maxDemands:
		return nil
	case d == nil:
		d = &budgetDemand{period: period, since: now, sampled: -1, pause: askAtLeast}
		s.seen[budget] = d
	case d.period > period:
		return nil
	case d.period < period:
		*d = budgetDemand{period: period, rate: d.rate, since: now, sampled: -1, asked: d.asked, pause: askAtLeast}
	}
	return d
}

// take enters a locked row. The row counts what all nodes of the region use, so its rise over time is the region's rate.
func (d *budgetDemand) take(u *allocation.Usage, now time.Time) {
	used := u.Spent + u.Reserved
	d.at = now
	if share := u.Granted - u.Returned; share != d.share {
		d.share, d.pause, d.low = share, askAtLeast, false
	}
	asked := min(used, allocation.MaxUnits) + min(d.refused, allocation.MaxUnits)
	if d.sampled < 0 || asked < d.sampled { // the first, or a reservation was given back
		d.sampled, d.since = asked, now
	}
	d.used = used
	passed := now.Sub(d.since)
	if passed < rateOver {
		return
	}
	rate := min(asked-d.sampled, allocation.MaxUnits/int64(time.Minute/time.Millisecond)) * int64(time.Minute/time.Millisecond) / passed.Milliseconds()
	if d.rate > 0 {
		rate = (rate + d.rate + 1) / 2
	}
	d.rate, d.sampled, d.since = rate, asked, now
}

// state is the demand for the next call. What was refused is told once.
func (s *demandState) state(now time.Time) []allocation.Demand {
	s.mu.Lock()
	defer s.mu.Unlock()
	waiting := map[string]int64{}
	for _, w := range s.waiting {
		for budget, units := range w.units {
			waiting[budget] += units
		}
	}
	var out []allocation.Demand
	for budget, d := range s.seen {
		if now.Sub(d.at) > quietAfter && waiting[budget] == 0 {
			delete(s.seen, budget)
			continue
		}
		out = append(out, allocation.Demand{Budget: budget, Period: d.period, Used: d.used, Rate: d.rate, Unmet: d.unmet + waiting[budget]})
		if d.low {
			d.asked, d.pause = now, min(2*d.pause, askAtMost)
		}
		d.unmet, d.low = 0, false
	}
	slices.SortFunc(out, func(a, b allocation.Demand) int {
		return cmp.Or(cmp.Compare(b.Unmet, a.Unmet), cmp.Compare(b.Rate, a.Rate), cmp.Compare(a.Budget, b.Budget))
	})
	return out[:min(len(out), allocation.MaxDemands)]
}

// askOften tells the coordinator at once when a share runs low, beside the call that is held. It costs no transaction: it
// is a hint, and shows no marks.
func (n *Node) askOften(ctx context.Context) {
	for ctx.Err() == nil {
		n.demand.hungry.Wait(ctx)
		if ctx.Err() != nil || n.stoppedBy() != "" {
			continue
		}
		n.synced.mu.Lock()
		incarnation := n.synced.loaded.Incarnation
		n.synced.mu.Unlock()
		call := allocation.SyncCall{
			Format: allocation.SyncFormat, Deployment: n.cfg.Deployment, Region: n.cfg.Region, Node: n.cfg.Name, Version: n.cfg.Version,
			Incarnation: incarnation, Demand: n.demand.state(n.now()), Ask: true,
		}
		bounded, cancel := n.cfg.Runtime.WithTimeout(ctx, askAnswerIn)
		if _, err := n.cfg.Coordinator.Sync(bounded, call); err != nil && ctx.Err() == nil {
			n.log.Debug("ask for permits", "error", err)
		}
		cancel()
		n.cfg.Runtime.Sleep(ctx, askAtLeast)
	}
}
