package bench

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/regional/postgres"
)

const (
	switchEvery   = 500 * time.Millisecond
	idsKept       = allocation.Duration(2) // seconds; a table is switched after half of that
	longKnownGone = allocation.Day         // what the process says of how long it has known a table to be closed
)

// switching is a hot budget while the tables of its ids are switched and emptied, as when their retention is over.
func switching(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	store, err := postgres.Open(ctx, postgres.Config{URL: w.url, Region: region})
	if err != nil {
		return err
	}
	w.closers = append(w.closers, store.Shut)
	writer, err := store.NewWriter(ctx, "bench/tidy")
	if err != nil {
		return err
	}
	none := w.closedArm(b, "none", manyCallers, w.nodes, one(spend(acme)))
	meanwhile := w.closedArm(b, "switched meanwhile", manyCallers, w.nodes, one(spend(acme)))
	spends, done := meanwhile.run, 0
	meanwhile.run = func(ctx context.Context, d time.Duration) (tally, error) {
		tidying, stop := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() {
			for {
				pause(tidying, switchEvery)
				if tidying.Err() != nil {
					ended <- nil
					return
				}
				// Not cancelled: its commit's outcome would be unknown.
				did, err := store.Tidy(context.WithoutCancel(ctx), writer, idsKept, func(int) allocation.Duration { return longKnownGone })
				if did != "" {
					done++
				}
				if err != nil {
					b.told("tidy: %v", err) // a table that somebody reads is emptied the next time
				}
			}
		}()
		t, err := spends(ctx, d)
		stop()
		<-ended
		return t, err
	}
	all, err := b.alternate(ctx, result, none, meanwhile)
	if err != nil {
		return err
	}
	result.shown("with id tables switched and emptied against without", ratio(all[meanwhile.name].rates(), all[none.name].rates()), "")
	calm, most := all[none.name].sum(), all[meanwhile.name].sum()
	result.shown("slowest answer meanwhile against without", float64(most.latency.most())/float64(max(1, calm.latency.most())), "")
	result.shown("tables switched or emptied meanwhile", float64(done), "times")
	result.Notes = append(result.Notes, "ids are kept for 2 s instead of a day; those of emptied tables are gone, so the books compare the counters alone")
	return w.settleCounters(ctx, result)
}

// settleCounters is settleBooks where ids are gone.
func (w *world) settleCounters(ctx context.Context, result *Case) error {
	return w.settle(ctx, result, "the node", 1, func(told, open, spent, ids int64) bool {
		return agrees(told, open, 1, spent, told) && ids <= told+open
	})
}
