package bench

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

const (
	manyBudgets = 1000
	manyCallers = 256
)

// firms are budgets of a thousand tenants.
func firms(window string) (texts []string, labels []allocation.Labels) {
	for i := range manyBudgets {
		texts = append(texts, budgetOf(firm(i)+"/requests", plenty, window, `{"tenant":"`+firm(i)+`"}`))
		labels = append(labels, allocation.Labels{"tenant": firm(i)})
	}
	return texts, labels
}

const endless = `{"once":{"from":"2020-01-01T00:00:00Z"}}`

// zipf is a maker whose clients ask for some of the labels much more often than for others.
func zipf(labels []allocation.Labels) maker {
	return func(int) func(string) allocation.Request {
		z := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), 1.1, 1, uint64(len(labels)-1))
		return func(id string) allocation.Request { return request(allocation.Spend, labels[z.Uint64()], id) }
	}
}

// many is a thousand budgets that are asked for unevenly, beside one.
func many(ctx context.Context, b *bench, result *Case) error {
	texts, labels := firms(endless)
	w, err := b.newWorld(ctx, forEver(), texts...)
	if err != nil {
		return err
	}
	defer w.close()
	all, err := b.alternate(ctx, result,
		w.closedArm(b, "1000 budgets", manyCallers, w.nodes, zipf(labels)), w.closedArm(b, "one of them", manyCallers, w.nodes, one(spend(labels[0]))))
	if err != nil {
		return err
	}
	result.shown("1000 budgets against one", ratio(all["1000 budgets"].rates(), all["one of them"].rates()), "")
	return w.settleBooks(ctx, result, "the node")
}

const (
	overloadFactor  = 2
	overloadCallers = 20_000 // more than the node lets wait; as many are hired as wait at once
	overloadWithin  = time.Second
)

// overload sends twice as many requests as can be decided: as many are decided all the same, and the others are told so
// within their deadline.
func overload(ctx context.Context, b *bench, result *Case) error {
	w, err := b.newWorld(ctx, forEver(), budget("acme/requests", plenty, `{"tenant":"acme"}`))
	if err != nil {
		return err
	}
	defer w.close()
	best := w.closedArm(b, "best", 1024, w.nodes, one(spend(acme)))
	var reached atomic.Uint64 // decisions a second, of the last round
	var heap atomic.Uint64
	measured := best.run
	best.run = func(ctx context.Context, d time.Duration) (tally, error) {
		t, err := measured(ctx, d)
		reached.Store(uint64(t.rate()))
		return t, err
	}
	twice := arm{"twice that", "requests arrive at twice the best rate, each with a deadline of 1 s", func(ctx context.Context, d time.Duration) (tally, error) {
		stop := watchHeap(&heap)
		defer stop()
		rate := float64(max(100, overloadFactor*reached.Load()))
		return w.counted(open(ctx, d, overloadCallers, rate, !b.Random, func(int) client { return inProcess(w.nodes[0], overloadWithin, spend(acme)) })), nil
	}}
	alone := arm{"the load alone", "the same, but nobody is asked: what it costs to make it", func(ctx context.Context, d time.Duration) (tally, error) {
		rate := float64(max(100, overloadFactor*reached.Load()))
		return open(ctx, d, overloadCallers, rate, !b.Random, func(int) client {
			return func(context.Context, string) outcome { return refused }
		}), nil
	}}
	if _, err := best.run(ctx, b.Each); err != nil { // so that the first round has a rate, whichever arm it begins with
		return err
	}
	all, err := b.alternate(ctx, result, best, twice, alone)
	if err != nil {
		return err
	}
	over := all["twice that"].sum()
	result.atLeast("decided at twice the best rate, against the best", ratio(all["twice that"].rates(), all["best"].rates()), 0.9)
	if left := all["twice that"].perProcessor(all["the load alone"]); left != nil {
		result.shown("the same, for the processor's time that making the load leaves", ratio(left, all["best"].perProcessor(nil)), "")
	}
	result.atMost("slowest answer", float64(over.slowest)/float64(overloadWithin), "deadlines", 1.25)
	result.shown("answered 503 at once or in time", float64(over.counts[unavailable])/float64(max(1, over.latency.n))*100+1e-9, "%")
	result.shown("most memory in use", float64(heap.Load())/(1<<20), "MiB")
	return w.settleBooks(ctx, result, "the node")
}

// watchHeap notes the most that the heap of this process held, until it is stopped.
func watchHeap(most *atomic.Uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	look := func() {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		most.Store(max(most.Load(), m.HeapInuse))
	}
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			look()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
