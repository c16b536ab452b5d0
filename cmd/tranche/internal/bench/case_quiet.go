package bench

import (
	"bytes"
	"context"
	"math"
	"time"

	"tranche/allocation"
)

// exhausted is a budget whose permits are all spent: the refusals write nothing.
func exhausted(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", 1, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	node, err := w.serveNode()
	if err != nil {
		return err
	}
	c, err := dial(node.address())
	if err != nil {
		return err
	}
	defer c.close()
	var answer []byte
	for _, id := range []string{"the-only-one", "one-too-many"} { // the second shows what a refusal is like
		status, said, err := c.post("/v1/admit", "Admission-Id: "+id+"\r\n", acmeBody, patience)
		if err != nil {
			return err
		}
		var t tally
		t.counts[oneAnswer(status, said)]++
		w.counted(t)
		answer = bytes.Clone(said)
	}
	nothing, err := serve(noOp(answer))
	if err != nil {
		return err
	}
	w.closers = append(w.closers, nothing.close)
	before, err := w.look.Written(ctx)
	if err != nil {
		return err
	}
	all, err := b.alternate(ctx, result, w.httpArm(b, "refusals", node, true), w.httpArm(b, "no-op handler", nothing, false))
	if err != nil {
		return err
	}
	after, err := w.look.Written(ctx)
	if err != nil {
		return err
	}
	result.atLeast("refusals against the handler that decides nothing", ratio(all["refusals"].rates(), all["no-op handler"].rates()), 0.65)
	result.processor("the same, by the processor's time for each answer", all["no-op handler"], all["refusals"])
	refusals := all["refusals"].sum()
	result.shown("write-ahead log meanwhile, of what else the node does, for each refusal", max(1e-9, float64(after-before)/float64(max(1, refusals.decided()))), "bytes")
	return w.settleBooks(ctx, result, "the node")
}

// rolls is how long the periods of the rollover are: a minute, made short.
const rolls = 5

// rollover is the end of a period of a thousand budgets under load: every row is made anew.
func rollover(ctx context.Context, b *bench, result *Case) error {
	texts, labels := firms(`{"every":"5s"}`)
	w, err := b.newWorld(ctx, minutes(rolls), texts...)
	if err != nil {
		return err
	}
	defer w.close()
	each := func(i int) client { return inProcess(w.nodes[0], patience, zipf(labels)(i)) }
	rate := b.Rate
	if rate == 0 {
		t := w.counted(closed(ctx, b.Each, manyCallers, !b.Random, each))
		rate = max(50, t.rate()/4)
	}
	steady := arm{"within a period", "at a quarter of the best rate, away from the end of any period", func(ctx context.Context, d time.Duration) (tally, error) {
		d = min(d, rolls*time.Second/2)
		untilIn(ctx, rolls, time.Second)
		return w.counted(open(ctx, d, 1024, rate, !b.Random, each)), nil
	}}
	over := arm{"over its end", "the same, over the end of a period", func(ctx context.Context, d time.Duration) (tally, error) {
		d = min(d, rolls*time.Second/2)
		untilIn(ctx, rolls, rolls*time.Second-d/2)
		return w.counted(open(ctx, d, 1024, rate, !b.Random, each)), nil
	}}
	all, err := b.alternate(ctx, result, steady, over)
	if err != nil {
		return err
	}
	calm, most := all[steady.name].sum(), all[over.name].sum()
	result.atMost("slowest answer over the end against the steady p99.9", float64(most.latency.most())/float64(max(1, calm.latency.quantile(0.999))), "", 2)
	result.Notes = append(result.Notes, "periods of 5 s stand for minutes; a term covers hours of them, so a rollover asks nobody and writes no ledger")
	return w.settleBooks(ctx, result, "the node")
}

// untilIn waits until so much of a period of so many seconds has gone.
func untilIn(ctx context.Context, seconds int64, into time.Duration) {
	now := time.Now()
	period := time.Duration(seconds) * time.Second
	wait := into - time.Duration(now.UnixNano())%period
	if wait < 0 {
		wait += period
	}
	pause(ctx, wait)
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// cold is how long it takes from the start of a node over a database that is there to its first admission.
func cold(ctx context.Context, b *bench, result *Case) error {
	texts, labels := firms(endless)
	w, err := b.newWorld(ctx, forEver(), texts...)
	if err != nil {
		return err
	}
	defer w.close()
	names := newIDs(!b.Random)
	_, err = b.alternate(ctx, result, arm{"start", "a node that knows nothing over a database with 1,000 budgets, to its first admission", func(ctx context.Context, _ time.Duration) (tally, error) {
		var t tally
		began := time.Now()
		n, err := w.addNode(ctx)
		if err != nil {
			return t, err
		}
		ask, id := inProcess(n, patience, spend(labels[1])), names.next()
		t.counts[truth(ctx, ask, id, ask(ctx, id))]++
		t.took = time.Since(began)
		t.latency.add(t.took)
		return w.counted(t), nil
	}})
	if err != nil {
		return err
	}
	result.shown("from the start to the first admission", result.Measured[0].P50, "ms")
	return w.settleBooks(ctx, result, "the nodes")
}

// changes is a hot budget while others change.
func changes(ctx context.Context, b *bench, result *Case) error {
	texts, _ := firms(endless)
	w, err := b.newWorld(ctx, forEver(), append(texts, budget("acme/requests", plenty, `{"tenant":"acme"}`))...)
	if err != nil {
		return err
	}
	defer w.close()
	quiet := w.closedArm(b, "none", manyCallers, w.nodes, one(spend(acme)))
	busy := w.closedArm(b, "10 changes a second", manyCallers, w.nodes, one(spend(acme)))
	spends := busy.run
	made := int64(0)
	busy.run = func(ctx context.Context, d time.Duration) (tally, error) {
		meanwhile, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.change(meanwhile, &made) }()
		t, err := spends(ctx, d)
		stop()
		if failed := <-done; err == nil {
			err = failed
		}
		return t, err
	}
	all, err := b.alternate(ctx, result, quiet, busy)
	if err != nil {
		return err
	}
	result.shown("with 10 changes a second against none", ratio(all[busy.name].rates(), all[quiet.name].rates()), "")
	result.shown("made meanwhile", float64(made), "changes")
	return w.settleBooks(ctx, result, "the node")
}

// change changes the limits of budgets, ten a second.
func (w *world) change(ctx context.Context, made *int64) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		name := firm(int(*made) % manyBudgets)
		if err := w.coordinator.declare(allocation.Periods{}, budget(name+"/requests", plenty-1-*made, `{"tenant":"`+name+`"}`)); err != nil {
			return err
		}
		*made++
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// dump is a hot budget while a snapshot stays open, as a dump keeps it: dead versions of the hot row are not pruned.
func dump(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	without := w.closedArm(b, "without", manyCallers, w.nodes, one(spend(acme)))
	with := w.closedArm(b, "with", manyCallers, w.nodes, one(spend(acme)))
	spends := with.run
	var falls []float64
	with.run = func(ctx context.Context, d time.Duration) (tally, error) {
		end, err := w.look.Hold(ctx)
		if err != nil {
			return tally{}, err
		}
		defer end()
		var sum tally
		var quarters []float64
		took := time.Duration(0)
		for range 4 {
			t, err := spends(ctx, d/4)
			if err != nil {
				return sum, err
			}
			took += t.took
			quarters = append(quarters, t.rate())
			sum.merge(&t)
			sum.batch = t.batch
		}
		sum.took = took
		falls = append(falls, quarters[3]/math.Max(1, quarters[0]))
		return sum, nil
	}
	all, err := b.alternate(ctx, result, without, with)
	if err != nil {
		return err
	}
	result.atLeast("with the snapshot open against without", ratio(all["with"].rates(), all["without"].rates()), 0.7)
	result.shown("the last quarter of that against the first", median(falls), "")
	result.Notes = append(result.Notes, "the snapshot is open for "+b.Each.String()+" a round; --each 5m is a dump of five minutes")
	return w.settleBooks(ctx, result, "the node")
}

// updates is one budget for long, and what its tables take afterwards.
func updates(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	run := w.closedArm(b, "16 callers", 16, w.nodes, one(spend(acme)))
	if _, err := run.run(ctx, b.Each); err != nil {
		return err
	}
	before, err := w.look.Hot(ctx)
	if err != nil {
		return err
	}
	if _, err := b.alternate(ctx, result, run); err != nil {
		return err
	}
	after, err := w.look.Hot(ctx)
	if err != nil {
		return err
	}
	result.atMost("usage and writers, tables and indexes, against after the first round", float64(after.Bytes)/float64(max(1, before.Bytes)), "", 1.5)
	if made := after.Updates - before.Updates; made > 0 { // the server tells of them a second late
		result.shown("updates of the counter that stayed in their page, so that no index grows", 100*float64(after.Within-before.Within)/float64(made), "%")
	}
	return w.settleBooks(ctx, result, "the node")
}
