package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// mixedLoad is who asks under overload: parts of what can be decided, twice that in all.
var mixedLoad = []struct {
	priority allocation.Priority
	part     float64
}{{allocation.Essential, 0.4}, {allocation.Interactive, 0.8}, {allocation.Batch, 0.8}}

// mixed sends twice as many requests as can be decided, of all priorities: batch work is refused first, essential last.
func mixed(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	best := w.closedArm(b, "best", 1024, w.nodes, one(spend(acme)))
	var reached atomic.Uint64
	measured := best.run
	best.run = func(ctx context.Context, d time.Duration) (tally, error) {
		t, err := measured(ctx, d)
		reached.Store(uint64(t.rate()))
		return t, err
	}
	of := make([]tally, len(mixedLoad))
	twice := arm{"twice that", "a fifth of it essential, two fifths interactive, two fifths batch; each with a deadline of 1 s", func(ctx context.Context, d time.Duration) (sum tally, err error) {
		var all sync.WaitGroup
		round := make([]tally, len(mixedLoad))
		for i, part := range mixedLoad {
			rate := max(10, part.part*float64(reached.Load()))
			all.Go(func() {
				round[i] = open(ctx, d, overloadCallers, rate, !b.Random, func(int) client {
					return inProcess(w.nodes[0], overloadWithin, func(id string) allocation.Request {
						r := request(allocation.Spend, acme, id)
						r.Priority = part.priority
						return r
					})
				})
			})
		}
		all.Wait()
		for i := range round {
			of[i].merge(&round[i])
			sum.merge(&round[i])
		}
		return w.counted(sum), nil
	}}
	if _, err := best.run(ctx, b.Each); err != nil { // so that the first round has a rate, whichever arm it begins with
		return err
	}
	all, err := b.alternate(ctx, result, best, twice)
	if err != nil {
		return err
	}
	decided := func(t *tally) float64 { return float64(t.decided()) / float64(max(1, t.latency.n)) }
	result.atLeast("of the essential requests decided", decided(&of[0]), 0.99)
	result.shown("of the interactive requests decided", decided(&of[1]), "")
	result.shown("of the batch requests decided", decided(&of[2]), "")
	result.shown("decided at twice the best rate, against the best", ratio(all["twice that"].rates(), all["best"].rates()), "")
	return w.settleBooks(ctx, result, "the node")
}
