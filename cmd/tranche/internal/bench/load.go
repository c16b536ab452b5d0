package bench

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// Bounds of the load.
const (
	patience    = 5 * time.Second  // the deadline of a request where the case is not about deadlines
	truthWithin = 30 * time.Second // for an id whose outcome was unknown
)

// outcome is what a client was told of one request.
type outcome int

const (
	admitted outcome = iota
	replayed
	refused     // a decision: 4xx
	unavailable // 503, nothing was charged
	unknown     // 503, it may have been
	failed      // anything else, such as a connection that broke: it may have been charged
	outcomes
)

// client asks for one admission under an id, and tells what it was told.
type client func(ctx context.Context, id string) outcome

// tally is what came of many requests.
type tally struct {
	counts  [outcomes]int64
	latency histogram
	took    time.Duration
	batch   float64 // requests a transaction, where that is known
}

func (t *tally) merge(o *tally) {
	for i := range t.counts {
		t.counts[i] += o.counts[i]
	}
	t.latency.merge(&o.latency)
	t.took = max(t.took, o.took)
}

// decided is how many requests got a decision.
func (t *tally) decided() int64 { return t.counts[admitted] + t.counts[replayed] + t.counts[refused] }

// rate is decisions a second.
func (t *tally) rate() float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(t.decided()) / t.took.Seconds()
}

func outcomeOf(d *allocation.Decision) outcome {
	switch {
	case d.Admitted() && d.Replayed:
		return replayed
	case d.Admitted():
		return admitted
	case d.Reason == allocation.OutcomeUnknown:
		return unknown
	case allocation.AnswerTo(d.Reason).Status == 503:
		return unavailable
	}
	return refused
}

// closed runs so many callers for a while: each asks again as soon as it was answered.
func closed(ctx context.Context, d time.Duration, callers int, byTime bool, each func(caller int) client) tally {
	return callersOf(callers, func(i int, note func(outcome, time.Duration)) {
		ask, names := each(i), newIDs(byTime)
		end := time.Now().Add(d)
		for from := time.Now(); from.Before(end) && ctx.Err() == nil; {
			o := truth(ctx, ask, names.next())
			now := time.Now()
			note(o, now.Sub(from))
			from = now
		}
	})
}

// tallies is how many tallies the callers share: each of many thousands with one of its own would take memory.
const tallies = 64

// callersOf runs the callers, and joins what they noted.
func callersOf(callers int, body func(i int, note func(outcome, time.Duration))) tally {
	var shared [tallies]struct {
		sync.Mutex
		tally
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range callers {
		t := &shared[i%tallies]
		all.Go(func() {
			body(i, func(o outcome, took time.Duration) {
				t.Lock()
				defer t.Unlock()
				t.counts[o]++
				t.latency.add(took)
			})
		})
	}
	all.Wait()
	var sum tally
	for i := range shared {
		sum.merge(&shared[i].tally)
	}
	sum.took = time.Since(began)
	return sum
}

// open sends requests at a rate of so many a second, whatever becomes of those before, as long as one of the callers is
// free. A request's latency counts from when it was due: one that had to wait for a caller is late, not left out.
func open(ctx context.Context, d time.Duration, callers int, perSecond float64, byTime bool, each func(caller int) client) tally {
	var tickets atomic.Int64
	began := time.Now()
	most := int64(perSecond * d.Seconds())
	return callersOf(callers, func(i int, note func(outcome, time.Duration)) {
		ask, names := each(i), newIDs(byTime)
		for ctx.Err() == nil {
			n := tickets.Add(1) - 1
			if n >= most {
				return
			}
			due := began.Add(time.Duration(float64(n) / perSecond * float64(time.Second)))
			time.Sleep(time.Until(due))
			note(truth(ctx, ask, names.next()), time.Since(due))
		}
	})
}

// truth asks, and asks again under the same id while the outcome is unknown: then a replay is the admission itself.
func truth(ctx context.Context, ask client, id string) outcome {
	o := ask(ctx, id)
	if o != unknown && o != failed {
		return o
	}
	for end := time.Now().Add(truthWithin); time.Now().Before(end) && ctx.Err() == nil; {
		switch again := ask(ctx, id); again {
		case replayed, admitted:
			return admitted
		case refused:
			return refused
		case unavailable, unknown, failed, outcomes:
			time.Sleep(20 * time.Millisecond)
		}
	}
	return o
}

// inProcess is a client that calls the node in this process.
func inProcess(n *node, within time.Duration, request func(id string) allocation.Request) client {
	requests := make([]allocation.Request, 1)
	return func(ctx context.Context, id string) outcome {
		requests[0] = request(id)
		return outcomeOf(&n.Decide(ctx, requests, time.Now().Add(within))[0])
	}
}

// spend is the request for one permit of what fits the labels.
func spend(labels allocation.Labels) func(id string) allocation.Request {
	return func(id string) allocation.Request { return request(allocation.Spend, labels, id) }
}

func request(op allocation.Op, labels allocation.Labels, id string) allocation.Request {
	return allocation.Request{Op: op, Labels: labels, Key: allocation.IDKey{Credential: "bench", Tenant: labels["tenant"], ID: id}}
}
