package scenario

import (
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
	"tranche/simulations/scenario/protocol"
)

// Protocol is the engine that drives the real protocol of package allocation, without the services around it: see package
// protocol for what is real in it. A request is decided in its own region; no round trip is in its path.
type Protocol struct{}

// Name implements Engine.
func (Protocol) Name() string { return "protocol" }

// Run implements Engine.
func (Protocol) Run(ctx context.Context, s Scenario, seed uint64, progress func(float64)) (Series, error) {
	r := &protocolRun{
		s: s, tick: s.Tick, timeline: NewTimeline(s), rec: NewRecorder("tranche", s),
		budgets: slices.Clone(s.Budgets), events: s.Events,
	}
	r.callers = NewCallers(s, r.rec, seed)
	cfg := protocol.Config{
		Start: s.Start, Budgets: s.Budgets, Faults: r.timeline,
		SyncEvery: max(protocol.DefaultSyncEvery, r.tick.Std()), Unreachable: max(protocol.DefaultUnreachable, 3*r.tick.Std()),
	}
	for _, region := range s.Regions {
		cfg.Regions = append(cfg.Regions, protocol.Region{Name: region.Name, RoundTrip: region.RoundTrip})
	}
	r.world = protocol.New(cfg)
	arrivals := NewArrivals(s, seed)
	for k := range s.Ticks() {
		if k%1000 == 0 {
			if err := ctx.Err(); err != nil {
				return Series{}, err
			}
			if progress != nil {
				progress(float64(k) / float64(s.Ticks()))
			}
		}
		r.operate(allocation.Duration(k) * r.tick)
		r.world.Advance(s.Start + allocation.Instant(allocation.Duration(k)*r.tick))
		for _, b := range r.callers.Due(k) {
			r.offer(k, b, true)
		}
		arrivals.Tick(k, func(b Batch) {
			r.rec.Offered(allocation.Duration(k)*r.tick, b.Budget, b.Region, b.N, b.Units())
			r.offer(k, b, false)
		})
		r.record(allocation.Duration(k) * r.tick)
		if err := r.world.Err(); err != nil {
			return Series{}, fmt.Errorf("the protocol broke a promise in %s, seed %d: %w", s.Name, seed, err)
		}
	}
	return r.rec.Series(), nil
}

type protocolRun struct {
	s        Scenario
	tick     allocation.Duration
	timeline Timeline
	rec      *Recorder
	callers  *Callers
	world    *protocol.World
	budgets  []allocation.Budget // as they are now
	events   []Event             // that have not happened yet
}

// operate does what operators do by now.
func (r *protocolRun) operate(now allocation.Duration) {
	for len(r.events) > 0 && r.events[0].At <= now {
		e := r.events[0]
		r.events = r.events[1:]
		switch e.Kind {
		case ChangeBudget:
			b := &r.budgets[r.s.budget(e.Budget)]
			*b = e.changed(*b)
			r.world.Change(*b)
		case Rebalance:
			r.world.Move(e.Budget, r.s.region(e.Region), r.s.region(e.To), e.Units)
		case Drain, Resume:
			r.world.Drain(r.s.region(e.Region), e.Kind == Drain)
		}
	}
}

// offer takes a batch to its region.
func (r *protocolRun) offer(k int, b Batch, again bool) {
	at := allocation.Duration(k) * r.tick
	if part := r.timeline.NodesLost(b.Region, at); part > 0 {
		var gone Batch
		gone, b = split(b, part)
		r.callers.Refused(k, gone, NodeDown, 1, again)
	}
	if b.N == 0 {
		return
	}
	if up, _ := r.timeline.DatabaseUp(b.Region, at); !up {
		r.callers.Refused(k, b, string(allocation.DatabaseUnavailable), 1, again)
		return
	}
	if !r.world.Owner(b.Region).Ready() {
		r.callers.Refused(k, b, string(allocation.Starting), 1, again)
		return
	}
	budget := &r.budgets[b.Budget]
	var out protocol.Outcome
	labels := allocation.Labels(budget.Match)
	if b.Costs == nil {
		out = r.world.Owner(b.Region).Offer(labels, budget.Unit, b.N, b.Cost)
	} else {
		out = r.world.Owner(b.Region).OfferEach(labels, budget.Unit, b.Costs)
	}
	if out.Admitted > 0 {
		r.rec.Admitted(at, b.Budget, b.Region, out.Admitted, out.Units, 0, out.Period, r.world.Highest(budget.Name, out.Period))
	}
	for _, f := range out.Refused {
		over := Batch{Budget: b.Budget, Region: b.Region, N: f.N, Cost: f.Each, Costs: f.Costs}
		r.callers.Refused(k, over, string(f.Reason), f.Retry, again)
	}
}

func (r *protocolRun) record(at allocation.Duration) {
	for i := range r.budgets {
		b := &r.budgets[i]
		unallocated, overcommitted := r.world.Unallocated(b.Name)
		r.rec.Budget(at, i, b.LimitOrZero(), unallocated, overcommitted)
		for j := range r.s.Regions {
			granted, held := r.world.Owner(j).Standing(b.Name)
			r.rec.Standing(at, i, j, granted, held, r.world.Stranded(b.Name, j))
		}
	}
}

var _ Engine = Protocol{}
