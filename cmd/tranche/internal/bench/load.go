package bench

import (
	"context"
	"sync"
	"time"

	"tranche/allocation"
)

// Bounds of the load.
const (
	patience    = 5 * time.Second  // the deadline of a request where the case is not about deadlines
	truthWithin = 30 * time.Second // for an id whose outcome was unknown
	leastPause  = time.Millisecond // between requests of an open loop: those that are due together are sent together
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
	latency histogram     // to the first answer
	slowest time.Duration // from when it was asked, not from when it was due
	after   int64         // decisions that came after the end of an open loop: they do not count for its rate
	took    time.Duration
	batch   float64 // requests a transaction, where that is known
	cpu     float64 // seconds of the processor, of this process and of Postgres
}

func (t *tally) merge(o *tally) {
	for i := range t.counts {
		t.counts[i] += o.counts[i]
	}
	t.latency.merge(&o.latency)
	t.slowest = max(t.slowest, o.slowest)
	t.after += o.after
	t.cpu += o.cpu
	t.took = max(t.took, o.took)
}

// decided is how many requests got a decision.
func (t *tally) decided() int64 { return t.counts[admitted] + t.counts[replayed] + t.counts[refused] }

// rate is decisions a second.
func (t *tally) rate() float64 {
	if t.took <= 0 {
		return 0
	}
	return float64(t.decided()-t.after) / t.took.Seconds()
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

// note takes down what became of one request: what it was told in the end, how long its first answer took from when it was
// due, and from when it was asked, and whether it came in time to count.
type note func(o outcome, due, asked time.Duration, counts bool)

// closed runs so many callers for a while: each asks again as soon as it was answered.
func closed(ctx context.Context, d time.Duration, callers int, byTime bool, each func(caller int) client) tally {
	return callersOf(callers, func(i int, n note) {
		ask, names := each(i), newIDs(byTime)
		end := time.Now().Add(d)
		for from := time.Now(); from.Before(end) && ctx.Err() == nil; {
			id := names.next()
			o := ask(ctx, id)
			now := time.Now()
			n(truth(ctx, ask, id, o), now.Sub(from), now.Sub(from), true)
			from = now
		}
	})
}

// tallies is how many tallies the callers share: each of many thousands with one of its own would take memory.
const tallies = 64

// crew is callers that run, and what they noted.
type crew struct {
	shared [tallies]struct {
		sync.Mutex
		tally
	}
	all   sync.WaitGroup
	began time.Time
}

// hire starts one more caller.
func (c *crew) hire(i int, body func(i int, n note)) {
	t := &c.shared[i%tallies]
	c.all.Go(func() {
		body(i, func(o outcome, due, asked time.Duration, counts bool) {
			t.Lock()
			defer t.Unlock()
			t.counts[o]++
			t.latency.add(due)
			t.slowest = max(t.slowest, asked)
			if !counts && o <= refused {
				t.after++
			}
		})
	})
}

// wait returns what was noted when all callers have ended.
func (c *crew) wait() (sum tally) {
	c.all.Wait()
	for i := range c.shared {
		sum.merge(&c.shared[i].tally)
	}
	sum.took = time.Since(c.began)
	return sum
}

// callersOf runs the callers, and joins what they noted.
func callersOf(callers int, body func(i int, n note)) tally {
	c := &crew{began: time.Now()}
	for i := range callers {
		c.hire(i, body)
	}
	return c.wait()
}

// open sends requests at a rate of so many a second, whatever becomes of those before, as long as one of the callers is
// free. A request's latency counts from when it was due: one that had to wait for a caller is late, not left out. The rate
// is that of the decisions within the time; those that come later are in the books, and count for nothing else.
//
// A caller is hired when a request is due and none is free. So there are as many as requests wait at once, and one that is
// refused at once costs no more than to hand it over.
func open(ctx context.Context, d time.Duration, callers int, perSecond float64, byTime bool, each func(caller int) client) tally {
	began := time.Now()
	c, work, end := &crew{began: began}, make(chan time.Time), began.Add(d)
	body := func(first time.Time) func(int, note) {
		return func(i int, n note) {
			ask, names := each(i), newIDs(byTime)
			for due, more := first, true; more; due, more = <-work {
				id, asked := names.next(), time.Now()
				o := ask(ctx, id)
				now := time.Now()
				n(truth(ctx, ask, id, o), now.Sub(due), now.Sub(asked), now.Before(end))
			}
		}
	}
	hired := 0
	for ticket, most := int64(0), int64(perSecond*d.Seconds()); ticket < most && ctx.Err() == nil; ticket++ {
		due := began.Add(time.Duration(float64(ticket) / perSecond * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(max(wait, leastPause))
		}
		select {
		case work <- due:
			continue
		default:
		}
		if hired == callers {
			work <- due
			continue
		}
		c.hire(hired, body(due))
		hired++
	}
	close(work)
	t := c.wait()
	t.took = d
	return t
}

// truth asks again under the same id while the outcome is unknown: then a replay is the admission itself.
func truth(ctx context.Context, ask client, id string, o outcome) outcome {
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
