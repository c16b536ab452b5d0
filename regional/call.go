package regional

import (
	"context"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// A call goes through these states. The caller and a lane race for it, each by compare-and-swap, so that a caller that
// stops waiting knows which it is: "never begun, nothing charged" or "begun, and nobody knows yet".
//
//	pending ──lane takes it──▶ claimed ──decided, and committed if it has to be──▶ answered
//	   ▲            │             │
//	   └──again─────┼─────────────┤
//	                ▼             ▼
//	            abandoned      orphaned     (the caller's deadline passed)
const (
	callPending int32 = iota
	callClaimed
	callAnswered
	callAbandoned
	callOrphaned
)

// call is one request on its way through a node.
type call struct {
	request  allocation.Request
	deadline time.Time
	tries    int
	alone    bool // a batch with it failed without committing: it is tried in ever smaller batches
	probe    bool // asks for a commit only
	waits    bool // for its region's share: it is decided once more
	class    class
	plan     allocation.Plan
	state    atomic.Int32
	decision allocation.Decision
	group    *group
	doubt    *doubt // the node's
}

// group waits for all calls of one Decide.
type group struct {
	open atomic.Int64
	done Signal
}

func (n *Node) newGroup(calls int) *group {
	g := &group{done: n.cfg.Runtime.NewSignal()}
	g.open.Store(int64(calls))
	return g
}

// single is all that a Decide of one request needs.
type single struct {
	group group
	calls [1]call
	out   [1]allocation.Decision
}

// newCalls is room for so many requests.
func (n *Node) newCalls(many int) ([]allocation.Decision, []call, *group) {
	if many != 1 {
		return make([]allocation.Decision, many), make([]call, many), n.newGroup(many)
	}
	s := &single{group: group{done: n.cfg.Runtime.NewSignal()}}
	s.group.open.Store(1)
	return s.out[:], s.calls[:], &s.group
}

func (g *group) finish() {
	if g.open.Add(-1) == 0 {
		g.done.Notify()
	}
}

// wait returns when all calls have ended, or at the deadline, or when ctx ends.
func (n *Node) wait(ctx context.Context, g *group, deadline time.Time) {
	if quick, ok := g.done.(timedSignal); ok {
		for left := deadline.Sub(n.now()); g.open.Load() > 0 && left > 0 && ctx.Err() == nil; left = deadline.Sub(n.now()) {
			quick.WaitFor(ctx, left)
		}
		return
	}
	ctx, cancel := n.cfg.Runtime.WithTimeout(ctx, deadline.Sub(n.now()))
	defer cancel()
	for g.open.Load() > 0 && ctx.Err() == nil {
		g.done.Wait(ctx)
	}
}

func (c *call) claim() bool { return c.state.CompareAndSwap(callPending, callClaimed) }

// again puts a claimed call back; false if its caller is gone, and then the call is over.
func (c *call) again() bool {
	if c.state.CompareAndSwap(callClaimed, callPending) {
		c.tries++
		return true
	}
	c.end()
	return false
}

// answer ends a claimed call. A caller that is gone was told that the outcome is unknown; the same id gets the truth.
func (c *call) answer(d allocation.Decision) {
	c.decision = d
	c.tell()
}

// tell ends a claimed call with the decision that it holds. Until then nobody but its lane looks at that.
func (c *call) tell() {
	if !c.state.CompareAndSwap(callClaimed, callAnswered) {
		c.end()
		return
	}
	c.group.finish()
}

// end ends a call whose caller was told that the outcome is unknown: from now on a look-up gets the truth.
func (c *call) end() {
	c.doubt.remove(c.request.Key)
	c.group.finish()
}

// reject ends a call that was not claimed.
func (c *call) reject(d allocation.Decision) {
	if c.claim() {
		c.answer(d)
		return
	}
	c.group.finish()
}

// Decide answers each request, in order. Every outcome is a Decision: also that nothing could be decided in time. A
// request whose transaction may have begun when the deadline passes is OutcomeUnknown; the same id asked again gets the
// truth. One that was not begun is charged nothing, now or later.
func (n *Node) Decide(ctx context.Context, requests []allocation.Request, deadline time.Time) []allocation.Decision {
	out := n.decideOnce(ctx, requests, deadline, false)
	n.awaitShares(ctx, requests, out, deadline)
	n.refusals.count(out)
	n.refusals.countUsed(out)
	n.estimates.count(n.catalogue.Load(), out)
	n.recorder.take(n.catalogue.Load(), requests, out)
	return out
}

// decideOnce decides once; waits says that all were refused before, and wait for their region's share.
func (n *Node) decideOnce(ctx context.Context, requests []allocation.Request, deadline time.Time, waits bool) []allocation.Decision {
	stopped := n.stoppedBy()
	if len(requests) == 1 && stopped == "" {
		if refused, full := n.crowdedOut(&requests[0], deadline); full {
			return refused
		}
	}
	out, calls, g := n.newCalls(len(requests))
	for i := range requests {
		c := &calls[i]
		c.request, c.deadline, c.group, c.doubt, c.waits = requests[i], deadline, g, &n.doubt, waits
		c.class = n.classOf(&requests[i])
		switch {
		case stopped != "" && admits(requests[i].Op):
			c.reject(n.cannot(requests[i], stopped))
		case !n.waiting.push(c):
			c.reject(n.cannot(requests[i], allocation.Overloaded))
		}
	}
	if len(requests) == 0 {
		return out
	}
	n.wait(ctx, g, deadline)
	for i := range calls {
		out[i] = n.collect(&calls[i])
	}
	return out
}

func admits(op allocation.Op) bool {
	return op == allocation.Spend || op == allocation.Reserve || op == allocation.Check
}

// collect takes the decision of a call, or ends the wait for it.
func (n *Node) collect(c *call) allocation.Decision {
	if c.state.Load() == callAnswered { // nearly always: no lock is taken for it
		return c.decision
	}
	if c.state.CompareAndSwap(callPending, callAbandoned) {
		return n.cannot(c.request, n.health.undecided())
	}
	c.doubt.add(c.request.Key) // before its lane can see that nobody waits, and end the call
	if c.state.CompareAndSwap(callClaimed, callOrphaned) {
		if c.request.Op == allocation.Check {
			return n.cannot(c.request, n.health.undecided())
		}
		return n.cannot(c.request, allocation.OutcomeUnknown)
	}
	c.doubt.remove(c.request.Key)
	return c.decision
}

// cannot is the decision for a request on which the owner did not decide. While an earlier request of the same id is in
// doubt nobody hears that nothing was charged. A block or a revocation that the node knows of is told all the same.
func (n *Node) cannot(r allocation.Request, reason allocation.Reason) allocation.Decision {
	retry := int64(1)
	if r.Op != allocation.Check && n.doubt.has(r.Key) {
		reason = allocation.OutcomeUnknown
	}
	detail := n.health.detail(reason)
	if known, why := n.barred(r, reason); known != "" {
		reason, detail, retry = known, why, 0
	}
	return allocation.Decision{
		Reason: reason, Action: allocation.ActionRefused, Op: r.Op, Key: r.Key, Region: n.cfg.Region,
		At: n.clock.now(), Retry: retry, Detail: detail,
		Evidence: allocation.Evidence{Correlation: r.Correlation, Node: n.cfg.Name},
	}
}
