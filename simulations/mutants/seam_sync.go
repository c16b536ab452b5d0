package mutants

import (
	"context"
	"math"
	"slices"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// wireSeam stands between a node and the coordinator.
type wireSeam struct {
	regional.Coordinator
	sync func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error)
}

func (s *wireSeam) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	if call.Ask {
		return s.Coordinator.Sync(ctx, call) // a hint, of which nothing counts
	}
	return s.sync(ctx, s.Coordinator, call)
}

// syncFunc is one call of a node, and what the mutant makes of it.
type syncFunc func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error)

// wireSeams makes a seam that all nodes of a run share, as one part of the coordinator would be.
func wireSeams(make func() syncFunc) func() fleet.Seams {
	return func() fleet.Seams {
		sync := make()
		return fleet.Seams{Coordinator: func(_ string, c regional.Coordinator) regional.Coordinator {
			return &wireSeam{Coordinator: c, sync: sync}
		}}
	}
}

// returnsOf is a statement of one share that claims to have returned all that a grant leaves above its targets, or all of
// it that was granted.
func returnsOf(g allocation.ShareGrant, all bool) (allocation.ShareStatement, bool) {
	st := allocation.ShareStatement{Budget: g.Budget, Term: g.Periods.Start(), Generation: g.Generation}
	for _, e := range g.Entries {
		target := e.Target
		if all {
			target = 0
		}
		if e.Granted-target > e.Returned {
			st.Returned = append(st.Returned, allocation.ReturnedStatement{From: e.From, Until: e.Until, Class: e.Class, Returned: e.Granted - target})
		}
	}
	return st, len(st.Returned) > 0 && !g.Template
}

// state calls once more with statements that the owner never made, numbered as the newest.
func state(ctx context.Context, c regional.Coordinator, call allocation.SyncCall, made []allocation.ShareStatement) {
	call.Statements, call.Known, call.WaitMillis = nil, nil, 0
	for _, st := range made {
		call.Statements = append(call.Statements, allocation.Statement{
			Shard: allocation.ShardOf(st.Budget), Number: math.MaxInt32, Shares: []allocation.ShareStatement{st},
		})
	}
	_, _ = c.Sync(ctx, call)
}

// stateBeforeCommit states what a grant will make the owner return as soon as the grant is there, before it is applied.
func stateBeforeCommit() syncFunc {
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		answer, err := c.Sync(ctx, call)
		if err != nil {
			return answer, err
		}
		for _, g := range answer.Shares {
			if st, some := returnsOf(g, false); some {
				state(ctx, c, call, []allocation.ShareStatement{st})
			}
		}
		return answer, nil
	}
}

// silence is how long a region may be silent before regrantOnTimeout takes back what it holds, in microseconds.
const silence = 4_000_000

// regrantOnTimeout takes back what a region holds that has been silent for a while, by its own last grants.
func regrantOnTimeout() syncFunc {
	type last struct {
		call   allocation.SyncCall
		grants map[allocation.ShareRef]allocation.ShareGrant
		told   bool
	}
	regions := map[string]*last{}
	var order []string
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		mine := regions[call.Region]
		if mine == nil {
			mine = &last{grants: map[allocation.ShareRef]allocation.ShareGrant{}}
			regions[call.Region] = mine
			order = append(order, call.Region)
		}
		mine.call, mine.told = call, false
		for _, name := range order {
			silent := regions[name]
			if silent.told || silent.call.Incarnation == "" || call.Clock-silent.call.Clock < silence {
				continue
			}
			silent.told = true
			for _, ref := range sortedRefs(silent.grants) {
				if st, some := returnsOf(silent.grants[ref], true); some {
					state(ctx, c, silent.call, []allocation.ShareStatement{st})
				}
			}
		}
		answer, err := c.Sync(ctx, call)
		if err == nil {
			for _, g := range answer.Shares {
				mine.grants[allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}] = g
			}
		}
		return answer, err
	}
}

// closeByCoordinator lets the coordinator believe that every owner has closed everything, so that only its own clock says
// when a ledger is over.
func closeByCoordinator() syncFunc {
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		call.ClosedBefore, call.CompleteThrough = math.MaxInt32, math.MaxInt32
		return c.Sync(ctx, call)
	}
}

// raiseReturned states one permit more than was returned of every period.
func overstateReturns() syncFunc {
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		for i := range call.Statements {
			shares := call.Statements[i].Shares
			for j := range shares {
				for k := range shares[j].Returned {
					shares[j].Returned[k].Returned++
				}
			}
		}
		return c.Sync(ctx, call)
	}
}

// arriveSeams change how calls are heard, as they arrive at a replica.
func arriveSeams(make func() func(serve fleet.Sync) fleet.Sync) func() fleet.Seams {
	return func() fleet.Seams {
		wrap := make()
		return fleet.Seams{Sync: func(_ string, serve fleet.Sync) fleet.Sync { return wrap(serve) }}
	}
}

// byLastWriter takes a statement that comes late or again for the newest: the last one stands. So that this happens often,
// the statement of each shard before the last one is heard once more when its region has nothing to say: any message may
// come again, and late.
func byLastWriter() func(serve fleet.Sync) fleet.Sync {
	type shard struct {
		region string
		number int
	}
	type heard struct {
		newest, own  int64 // as it was numbered on arrival, and by its owner
		before, last allocation.Statement
	}
	shards := map[shard]*heard{}
	hear := func(region string, st allocation.Statement) allocation.Statement {
		h := shards[shard{region, st.Shard}]
		if h == nil {
			h = &heard{}
			shards[shard{region, st.Shard}] = h
		}
		h.newest = max(st.Number, h.newest+1)
		st.Number = h.newest
		return st
	}
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			call.Statements = slices.Clone(call.Statements)
			for i, st := range call.Statements {
				call.Statements[i] = hear(call.Region, st)
				h := shards[shard{call.Region, st.Shard}]
				h.before, h.last, h.own = h.last, st, st.Number
			}
			if len(call.Statements) > 0 {
				answer, err := serve(ctx, call)
				for i := range answer.Acknowledged {
					ack := &answer.Acknowledged[i]
					if h := shards[shard{call.Region, ack.Shard}]; h != nil {
						ack.Number = min(ack.Number, h.own)
					}
				}
				return answer, err
			}
			again := call
			again.WaitMillis = 0
			for number := range allocation.Shards {
				if h := shards[shard{call.Region, number}]; h != nil && len(h.before.Shares) > 0 {
					again.Statements = append(again.Statements, hear(call.Region, h.before))
				}
			}
			if len(again.Statements) > 0 {
				_, _ = serve(ctx, again)
			}
			return serve(ctx, call)
		}
	}
}

// reservedByMaximum keeps the highest number of reserved permits that was ever stated of a period.
func reservedByMaximum() func(serve fleet.Sync) fleet.Sync {
	type key struct {
		region, budget string
		period         allocation.Instant
		class          allocation.Class
	}
	most := map[key]int64{}
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			for _, st := range call.Statements {
				for _, sh := range st.Shares {
					for i := range sh.Usage {
						u := &sh.Usage[i]
						k := key{call.Region, sh.Budget, u.Period, u.Class}
						most[k] = max(most[k], u.Reserved)
						u.Reserved = most[k]
					}
				}
			}
			return serve(ctx, call)
		}
	}
}
