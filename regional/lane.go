package regional

import (
	"context"
	"errors"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of a lane.
const (
	maxTries     = 12                     // batches that one request may need
	boundaryNear = time.Second            // before a period's end the next one is locked too
	beginWithin  = 900 * time.Millisecond // for the first round trip, less where every deadline is nearer
	commitWithin = 10 * time.Second       // for the answer of a commit; the commit itself is never cancelled
	resolveEvery = 50 * time.Millisecond  // first wait between two tries to learn an unknown outcome; doubles
	resolveMost  = time.Second
)

// lane is one batch at a time: it gathers the requests that wait, locks what they need, decides them in order of arrival
// by allocation's pure function, and commits the ids with the spend. Two lanes of a node are two transactions in flight.
//
//	gather ─▶ Begin (locks, ids, clock) ─▶ Decide, one by one ─▶ Commit ─▶ answer
//	   ▲                                       │ needs other rows   │ raced
//	   └───────────── uncharged ◀──────────────┴────────────────────┘
type lane struct {
	node   *Node
	slot   *slot
	carry  []*call // to be decided first in the next batch
	pace   estimate
	kicked int // the last kick that it saw
	last   int // requests that it gathered last
}

// Bounds of gathering under load. Each batch costs its database as much as some tens of requests do, so where many came last
// time a lane gives the next ones a moment to arrive, rather than begin with the first few.
const (
	gatherFrom = 16                   // requests of the last batch
	gatherMost = 2 * time.Millisecond // and never more than a quarter of what a batch takes
)

// run decides until ctx ends, and then what is left in its hands.
func (ln *lane) run(ctx context.Context) {
	for {
		batch := ln.gather(ctx)
		if n := len(batch); n > 0 {
			began := ln.node.now()
			ln.node.waiting.began(n)
			ln.work(ctx, batch)
			ln.node.waiting.ended(n, ln.node.now().Sub(began))
			continue
		}
		if ctx.Err() != nil {
			return
		}
		ln.look(ctx)
	}
}

// look finds out whether others vouch for the node, if nobody does.
func (ln *lane) look(ctx context.Context) {
	n := ln.node
	if n.voucher.standing() {
		return
	}
	switch _, err := ln.slot.look(ctx); {
	case errors.Is(err, ErrUnknownOutcome):
		ln.resolve(ctx, nil)
	case err != nil:
		n.log.Debug("look at the other writers", "error", err)
	}
}

// gather waits for a request and takes all others that are there, up to the bounds of one batch.
func (ln *lane) gather(ctx context.Context) []*call {
	batch := ln.carry
	ln.carry = nil
	if len(batch) == 0 {
		return ln.more(ctx, ln.node.waiting.wait(ctx, nil, MaxBatchRequests, &ln.kicked))
	}
	if batch[0].alone {
		half := max(1, len(batch)/2)
		ln.carry = append(ln.carry, batch[half:]...)
		return batch[:half]
	}
	return ln.node.waiting.take(batch, max(0, MaxBatchRequests-len(batch)))
}

// more waits a moment for the rest of a batch that is much smaller than the last one was.
func (ln *lane) more(ctx context.Context, batch []*call) []*call {
	n := ln.node
	if ln.last >= gatherFrom && len(batch) > 0 && len(batch) < ln.last/2 {
		n.cfg.Runtime.Sleep(ctx, min(gatherMost, ln.pace.typical(n.now())/4))
		batch = n.waiting.take(batch, MaxBatchRequests-len(batch))
	}
	ln.last = len(batch)
	return batch
}

// work runs one batch to its end.
func (ln *lane) work(ctx context.Context, batch []*call) {
	n := ln.node
	batch = ln.refuseByRead(ctx, ln.claim(batch))
	if len(batch) == 0 {
		return
	}
	started := n.now()
	want, kept := ln.want(batch)
	begin, cancel := n.cfg.Runtime.WithTimeout(ctx, beginWithin)
	defer cancel()
	w, err := ln.slot.ready(begin)
	if err != nil {
		ln.failed(ctx, batch, err)
		return
	}
	tx, err := n.owner.Begin(begin, w, want)
	if err != nil {
		ln.failed(ctx, batch, err)
		return
	}
	ln.putBack(batch[len(kept):]) // more rows than one batch may lock
	batch = kept
	seen := tx.Seen()
	n.clock.set(seen.Now)
	n.sees(&seen.Loaded)
	if seen.Handover.ID != "" {
		tx.Abandon()
		ln.closed(batch)
		return
	}
	if seen.Behind || n.another(seen.Incarnation) {
		tx.Abandon()
		ln.putBack(batch)
		n.reload(ctx)
		return
	}
	catalogue := n.advance(&seen.Loaded, want.Changes)
	locked := ln.locked(seen, want, catalogue)
	decided, mustCommit := ln.decide(locked, batch)
	if !mustCommit && !holdsNothing(want.Usage, seen) {
		tx.Abandon()
		ln.note(locked, decided)
		ln.answer(decided)
		return
	}
	late, stop := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), commitWithin)
	defer stop()
	committing := n.now()
	err = tx.Commit(late, writesOf(locked, want.IDs))
	n.metrics.ObserveCommit(n.now().Sub(committing))
	ln.note(locked, decided)
	n.metrics.ObserveBatch(len(decided))
	if err == nil {
		ln.pace.add(n.now().Sub(started), n.now())
		n.health.committed(n.now())
		n.known.add(want.Usage, seen)
		ln.answer(decided)
		return
	}
	ln.uncommitted(ctx, decided, err)
}

// claim takes the calls whose callers still wait, and refuses those that cannot be committed within their deadline.
func (ln *lane) claim(batch []*call) []*call {
	now := ln.node.now()
	soonest := now.Add(ln.pace.typical(now))
	return slices.DeleteFunc(batch, func(c *call) bool {
		if !c.claim() {
			c.group.finish()
			return true
		}
		if c.tries >= maxTries || c.deadline.Before(soonest) {
			c.answer(ln.node.cannot(c.request, allocation.Overloaded))
			return true
		}
		return false
	})
}

// putBack returns claimed calls to the front, uncharged.
func (ln *lane) putBack(calls []*call) {
	for _, c := range calls {
		if c.again() {
			ln.carry = append(ln.carry, c)
		}
	}
}

// decide decides the batch over the locked state. What needs other rows goes to the next batch. It says whether there is
// something to commit: a change, or a replay, which is told only after a commit of our own (it may show a row that a
// synchronous replica does not have yet).
func (ln *lane) decide(locked *allocation.Locked, batch []*call) (decided []*call, mustCommit bool) {
	decided = make([]*call, 0, len(batch))
	for _, c := range batch {
		if c.probe {
			mustCommit = true
			c.decision = allocation.Decision{Reason: allocation.Allow}
			decided = append(decided, c)
			continue
		}
		o := locked.Decide(c.plan)
		if o.Again {
			ln.node.known.forget(c.plan.Keys())
			ln.putBack([]*call{c})
			continue
		}
		c.decision = o.Decision
		d := &c.decision
		ln.record(locked, c, d)
		switch d.Reason {
		case allocation.UnsafeSettings:
			d.Detail = ln.node.health.detail(d.Reason)
		case allocation.Starting, allocation.HistoryLost, allocation.Sealed:
			d.Detail = ln.node.closedDetail(d.Reason)
		}
		mustCommit = mustCommit || d.Replayed || d.State != ""
		decided = append(decided, c)
	}
	return decided, mustCommit || len(locked.ChangedUsage)+len(locked.Inserted)+len(locked.Updated) > 0
}

// note takes in what was decided, for guesses; once the locks are free, since nothing that counts rests on it.
func (ln *lane) note(locked *allocation.Locked, decided []*call) {
	ln.node.noteDemand(locked, decided)
	ln.node.spent.note(decided)
}

// record keeps what the decision of a call rests on, if it is to be kept.
func (ln *lane) record(locked *allocation.Locked, c *call, d *allocation.Decision) {
	if ln.node.recorder.wants(&c.request, d) {
		d.Record = locked.Record(c.plan, *d)
	}
}

// answer tells the callers what was decided.
func (ln *lane) answer(decided []*call) {
	for _, c := range decided {
		c.tell()
	}
}

// failed handles a first round trip that failed: nothing was decided.
func (ln *lane) failed(ctx context.Context, batch []*call, err error) {
	switch {
	case errors.Is(err, ErrHistoryLost):
		ln.slot.lost(ctx, err)
	case errors.Is(err, ErrUnknownOutcome): // that of a transaction before this one
		ln.resolve(ctx, nil)
	}
	if errors.Is(err, ErrRaced) { // a deadlock or a lock that took too long
		ln.node.metrics.conflicts.Add(float64(len(batch)))
		ln.putBack(batch)
		return
	}
	ln.node.health.failed(ln.node.now(), err)
	ln.refuse(batch)
}

func (ln *lane) refuse(batch []*call) {
	reason := ln.node.health.undecided()
	if ln.slot.gone != "" {
		reason = allocation.HistoryLost
	}
	if stopped := ln.node.stoppedBy(); stopped != "" {
		reason = stopped
	}
	for _, c := range batch {
		c.answer(ln.node.cannot(c.request, reason))
	}
}

// uncommitted handles a commit that did not succeed, or of which that is not known.
func (ln *lane) uncommitted(ctx context.Context, calls []*call, err error) {
	switch {
	case errors.Is(err, ErrRaced):
		ln.node.metrics.conflicts.Add(float64(len(calls)))
		ln.putBack(calls)
	case errors.Is(err, ErrHistoryLost):
		ln.slot.lost(ctx, err)
		ln.refuse(calls)
	case errors.Is(err, ErrHandedOver):
		ln.closed(calls)
	case errors.Is(err, ErrUnknownOutcome):
		ln.node.health.failed(ln.node.now(), err)
		if ln.resolve(ctx, calls) {
			return
		}
		ln.putBack(calls)
	default:
		ln.node.health.failed(ln.node.now(), err)
		// Nothing was committed. One bad row must not refuse its neighbours: halve, down to the one that fails alone.
		if len(calls) == 1 && calls[0].alone {
			ln.refuse(calls)
			return
		}
		for _, c := range calls {
			c.alone = true
		}
		ln.putBack(calls)
	}
}

// resolve waits until the truth about a lost commit is known, and answers if it was committed. The callers stop waiting by
// themselves when their deadlines pass: for them the outcome is unknown.
//
// Without a writer nothing of a batch is open: what is not known is whether its loss was recorded, or another one registered,
// and both are done again.
func (ln *lane) resolve(ctx context.Context, decided []*call) (committed bool) {
	if ln.slot.writer == nil {
		return false
	}
	wait := resolveEvery
	for {
		committed, err := ln.slot.writer.Resolve(ctx)
		switch {
		case err == nil && committed:
			ln.node.health.committed(ln.node.now())
			ln.answer(decided)
			return true
		case err == nil:
			return false
		case errors.Is(err, ErrHistoryLost):
			ln.slot.lost(ctx, err)
			ln.unknown(decided)
			return true
		}
		ln.node.health.failed(ln.node.now(), err)
		ln.node.cfg.Runtime.Sleep(ctx, wait)
		if ctx.Err() != nil {
			ln.unknown(decided)
			return true
		}
		wait = min(2*wait, resolveMost)
	}
}

// unknown answers calls of whose commit nothing can be learnt by this process.
func (ln *lane) unknown(decided []*call) {
	for _, c := range decided {
		c.answer(ln.node.cannot(c.request, allocation.OutcomeUnknown))
	}
}
