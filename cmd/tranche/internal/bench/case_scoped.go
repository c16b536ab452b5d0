package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"tranche/allocation"
)

const (
	scopedTenants = 2500    // each with two overrides: 5,000 scoped budgets
	plainTenants  = 100     // others, that have the defaults
	scopedCallers = 1024    // of the open loop
	scopedLimit   = 1 << 40 // that no case reaches, also of a million instances
)

// scopedBudgets are two defaults for each tenant, all calls and exports, and for most tenants an override of both. Every request
// is charged to two budgets.
func scopedBudgets(limit int64) (texts []string, labels []allocation.Labels) {
	const every = `"unit":"requests","limit":%d,"window":{"every":"5s"},"allocation":{"policy":"fixed","weights":{"` + region + `":1}}}`
	texts = append(texts,
		fmt.Sprintf(`{"budget":"calls/{tenant}",`+every, limit), fmt.Sprintf(`{"budget":"exports/{tenant}","match":{"capability":"export"},`+every, limit))
	for i := range scopedTenants {
		texts = append(texts, overrides(firm(i), limit)...)
		labels = append(labels, allocation.Labels{"tenant": firm(i), "capability": "export"})
	}
	for i := range plainTenants {
		labels = append(labels, allocation.Labels{"tenant": "plain-" + strconv.Itoa(i), "capability": "export"})
	}
	return texts, labels
}

// overrides are those of one tenant.
func overrides(tenant string, limit int64) []string {
	const of = `"unit":"requests","limit":%d,"window":{"every":"5s"},"allocation":{"policy":"fixed","weights":{"` + region + `":1}}}`
	return []string{
		fmt.Sprintf(`{"budget":"%s/calls","match":{"tenant":%q},"instead_of":"calls/{tenant}",`+of, tenant, tenant, limit),
		fmt.Sprintf(`{"budget":"%s/exports","match":{"tenant":%q,"capability":"export"},"instead_of":"exports/{tenant}",`+of, tenant, tenant, limit),
	}
}

// scoped is five thousand scoped budgets with tenant overrides in one region: warm, just started, while they change, and over
// the end of a period.
func scoped(ctx context.Context, b *bench, result *Case) error {
	texts, labels := scopedBudgets(scopedLimit)
	w, err := b.newWorld(ctx, minutes(rolls), texts...)
	if err != nil {
		return err
	}
	defer w.close()
	w.each = 2
	on := func(n *node) func(int) client {
		return func(i int) client { return inProcess(n, patience, zipf(labels)(i)) }
	}
	rate := b.Rate
	if rate == 0 {
		t := w.counted(closed(ctx, b.Each, manyCallers, !b.Random, on(w.nodes[0])))
		rate = max(50, t.rate()/4)
	}
	// at sends at the rate, so that it ends before the period does, or lies around its end.
	at := func(ctx context.Context, n *node, d time.Duration, over bool) tally {
		d = min(d, rolls*time.Second/2)
		if into := time.Second; over {
			untilIn(ctx, rolls, rolls*time.Second-d/2)
		} else {
			untilIn(ctx, rolls, into)
		}
		return w.counted(open(ctx, d, scopedCallers, rate, !b.Random, on(n)))
	}
	made := int64(0)
	var starts []float64
	all, err := b.alternate(ctx, result,
		arm{"warm", "at a quarter of the best rate, away from the end of any period", func(ctx context.Context, d time.Duration) (tally, error) {
			return at(ctx, w.nodes[0], d, false), nil
		}},
		arm{"cold", "the same, from the first request to a node that has just started", func(ctx context.Context, d time.Duration) (tally, error) {
			untilIn(ctx, rolls, 0)
			began := time.Now()
			n, err := w.addNode(ctx)
			if err != nil {
				return tally{}, err
			}
			starts = append(starts, millis(time.Since(began)))
			d = min(d, rolls*time.Second/2)
			return w.counted(open(ctx, d, scopedCallers, rate, !b.Random, on(n))), nil
		}},
		arm{"updates", "the same, while 10 overrides a second change", func(ctx context.Context, d time.Duration) (tally, error) {
			return w.whileChanging(ctx, &made, func(ctx context.Context) tally { return at(ctx, w.nodes[0], d, false) })
		}},
		arm{"rollover", "the same, over the end of a period: every row is made anew", func(ctx context.Context, d time.Duration) (tally, error) {
			return at(ctx, w.nodes[0], d, true), nil
		}})
	if err != nil {
		return err
	}
	result.figuresOf(all, "warm", "cold", "updates", "rollover")
	result.shown("from the start of a node until it admits", median(starts), "ms")
	result.shown("changed meanwhile", float64(made), "budgets")
	result.Notes = append(result.Notes, fmt.Sprintf("%d tenants with two overrides each, and %d that have the defaults; a request is charged to two budgets; %.0f requests a second",
		scopedTenants, plainTenants, rate))
	return w.settleBooks(ctx, result, "the nodes")
}

// figuresOf tells p50 and p99 of each arm apart, and how far each is from the first.
func (c *Case) figuresOf(all map[string]*series, names ...string) {
	first := all[names[0]].sum()
	for _, name := range names {
		t := all[name].sum()
		for _, q := range []struct {
			name string
			at   float64
		}{{"p50", 0.5}, {"p99", 0.99}} {
			c.shown(name+", "+q.name, millis(t.latency.quantile(q.at)), "ms")
			if name != names[0] {
				c.shown(name+" against "+names[0]+", "+q.name, float64(t.latency.quantile(q.at))/float64(max(1, first.latency.quantile(q.at))), "")
			}
		}
	}
}

// whileChanging measures while overrides of the tenants change, one after the other, ten budgets a second.
func (w *world) whileChanging(ctx context.Context, made *int64, measure func(context.Context) tally) (tally, error) {
	meanwhile, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			texts := overrides(firm(int(*made/2)%scopedTenants), scopedLimit-1-*made)
			if err := w.coordinator.declare(allocation.Periods{}, texts...); err != nil {
				done <- err
				return
			}
			*made += int64(len(texts))
			select {
			case <-tick.C:
			case <-meanwhile.Done():
				done <- nil
				return
			}
		}
	}()
	t := measure(ctx)
	stop()
	return t, <-done
}
