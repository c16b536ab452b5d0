package regional

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
)

// Coordinator is what a node needs of the global side. An error says nothing about whether the call arrived.
type Coordinator interface {
	Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error)
}

// Bounds of the contact with the coordinator.
const (
	turnFor      = 3 * time.Second // how long a node's turn to sync lasts unless renewed
	turnEvery    = time.Second
	syncAtLeast  = 20 * time.Millisecond // between two calls
	syncAnswerIn = 15 * time.Second      // beyond the time that the call may be held
	backoffFirst = 100 * time.Millisecond
	backoffMost  = 2 * time.Second
	closeEvery   = 10 * time.Second
	tidyEvery    = 30 * time.Second
	sweepEvery   = time.Second
	sweepMost    = 500
)

// keep does what one node of a region does for all of them while it has its turn: it states and applies, lets
// reservations lapse, closes periods and tidies. That only one does so is a habit, which saves calls: several at once
// would do no harm.
//
// A node that nobody vouches for calls out of turn: the answer to its own call is what it waits for.
func (n *Node) keep(ctx context.Context, s *slot) {
	k := keeper{node: n, slot: s, acknowledged: map[int]int64{}, closedIDs: map[int]time.Time{}}
	for ctx.Err() == nil {
		if n.synced.handingOver() { // it can state nothing, and take nothing
			n.cfg.Runtime.Sleep(ctx, turnEvery)
			continue
		}
		mine, err := n.owner.Turn(ctx, n.cfg.Name, turnFor)
		if err != nil {
			n.health.failed(n.now(), err)
		}
		if err != nil || !mine && (n.voucher.standing() || n.synced.over()) {
			n.cfg.Runtime.Sleep(ctx, turnEvery)
			continue
		}
		k.turn(ctx, mine)
	}
}

// keeper is the state of a node's turns.
type keeper struct {
	node         *Node
	slot         *slot
	freeze       freeze
	acknowledged map[int]int64      // the statement of each shard that the coordinator has
	under        allocation.History // in which it has them: another one may have lost them
	closedIDs    map[int]time.Time  // since when this process has known an id table to be closed
	backoff      time.Duration

	takesDocuments bool // the coordinator said so
	closed         time.Time
	tidied         time.Time
	swept          time.Time
}

// turn makes one call, and whatever else is due.
func (k *keeper) turn(ctx context.Context, mine bool) {
	n := k.node
	again, err := k.sync(ctx)
	k.report(ctx, err)
	if mine {
		k.housekeeping(ctx)
	}
	switch {
	case err != nil:
		k.backoff = min(max(2*k.backoff, backoffFirst), backoffMost)
		n.cfg.Runtime.Sleep(ctx, k.backoff/2+n.cfg.Runtime.Jitter(k.backoff))
	case again:
		k.backoff = 0
	case n.voucher.waiting(): // they may wait for us, too
		k.backoff = 0
		n.kick()
		n.cfg.Runtime.Sleep(ctx, othersEvery)
	default:
		k.backoff = 0
		n.cfg.Runtime.Sleep(ctx, syncAtLeast)
	}
}

// report notes how a call ended, and logs what that changed.
func (k *keeper) report(ctx context.Context, err error) {
	n := k.node
	switch change := n.synced.result(n.now(), err); {
	case change == "" || ctx.Err() != nil:
	case errors.Is(err, ErrTokenUnknown): // no wait cures it
		n.log.Error(change, "error", err)
	case err != nil:
		n.log.Warn(change, "error", err)
	default:
		n.log.Info(change)
	}
}

// sync states what changed, and applies what the coordinator says. Evidence is as old as the coordinator's last read of
// its store plus the time since this call was made, so it is dated by the database clock that the call carries.
func (k *keeper) sync(ctx context.Context) (again bool, err error) {
	n := k.node
	if n.synced.over() {
		return k.startOver(ctx)
	}
	writer, err := k.slot.ready(ctx)
	if err != nil {
		return false, err
	}
	var look Look
	unvouched := !n.voucher.standing()
	if unvouched {
		if look, err = k.slot.look(ctx); err != nil {
			return false, k.broken(ctx, fmt.Errorf("look at the other writers: %w", err))
		}
	}
	own := writer.Mark()
	call, err := k.statements(ctx, writer)
	if err != nil {
		return false, k.broken(ctx, fmt.Errorf("make the statements: %w", err))
	}
	stopped := allocation.Reason(call.Stopped)
	k.introduce(&call, unvouched)
	n.voucher.see(call.Lineage)
	call.Starting = unvouched || !n.voucher.holds(call.Lineage) // another database may answer at the same address since a moment ago
	call.Demand = n.demand.state(n.now())
	n.clock.set(call.Clock)
	answer, err := k.call(ctx, call)
	if err != nil {
		return false, err
	}
	observed := call.Clock - answer.EvidenceAgeMillis*1000
	if err := n.owner.Apply(ctx, writer, answer, observed); err != nil {
		return false, k.broken(ctx, fmt.Errorf("apply the coordinator's answer: %w", err))
	}
	again = k.heard(call, answer)
	if answer.Refusal == "" && answer.History == call.History && answer.Incarnation == call.Incarnation && stopped != "" {
		if err := n.owner.Lift(ctx, writer, stopped); err != nil {
			return false, k.broken(ctx, err)
		}
	}
	switch vouches := call.Home == look.Home && answer.Vouches(call, own) && n.shows(call); {
	case unvouched && !vouches:
		n.voucher.unsaid()
	case unvouched && n.voucher.told(look.Lineage, n.now()):
		n.vouch(look.Lineage, look.Home, "the coordinator says so")
	}
	n.synced.answered(answer)
	n.reload(ctx)
	if len(answer.Shares) > 0 {
		n.demand.topUp()
	}
	if answer.Refusal != "" {
		return false, fmt.Errorf("the coordinator refuses the region (%s): %s", answer.Refusal, answer.Detail)
	}
	return again, nil
}

// introduce says who calls.
func (k *keeper) introduce(call *allocation.SyncCall, hurry bool) {
	n := k.node
	call.Format, call.Deployment, call.Region = allocation.SyncFormat, n.cfg.Deployment, n.cfg.Region
	call.Node, call.NodeURL, call.Version, call.Shadow = n.cfg.Name, n.cfg.URL, n.cfg.Version, n.cfg.Shadow
	if !hurry {
		call.WaitMillis = n.cfg.SyncEvery.Milliseconds()
	}
	if setting := n.health.unsafe(); setting != "" && call.Stopped == "" {
		call.Stopped = string(allocation.UnsafeSettings)
	}
}

// call makes one call, and checks that the answer can be understood.
func (k *keeper) call(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	n := k.node
	bounded, cancel := n.cfg.Runtime.WithTimeout(ctx, n.cfg.SyncEvery+syncAnswerIn)
	defer cancel()
	answer, err := n.cfg.Coordinator.Sync(bounded, call)
	switch {
	case err != nil:
		return answer, fmt.Errorf("sync with the coordinator: %w", err)
	case answer.Format != allocation.SyncFormat:
		return answer, fmt.Errorf("the coordinator speaks format %d of sync, this node %d: upgrade the older one", answer.Format, allocation.SyncFormat)
	case answer.Deployment != n.cfg.Deployment:
		return answer, fmt.Errorf("the coordinator belongs to deployment %s, this region to %s: check the coordinator's address and the region's token",
			answer.Deployment, n.cfg.Deployment)
	}
	return answer, nil
}

// heard notes what an answer acknowledges and asks for. It says whether the next call is due at once.
func (k *keeper) heard(call allocation.SyncCall, answer allocation.SyncAnswer) (again bool) {
	if answer.Refusal != "" {
		return false
	}
	k.takesDocuments = answer.TakesDocuments
	if answer.History != call.History || answer.Incarnation != call.Incarnation {
		k.acknowledged = map[int]int64{}
	} else {
		for _, a := range answer.Acknowledged {
			k.acknowledged[a.Shard] = a.Number
			if a.Whole {
				k.acknowledged[a.Shard] = 0
			}
		}
	}
	news := answer.History.Number > call.History.Number || call.Incarnation == "" && answer.Incarnation != ""
	return k.freeze.heard(call, answer) || answer.More || news || len(answer.Shares)+len(answer.Budgets)+len(answer.Documents) > 0
}

// broken settles what a failed transaction of the keeper's leaves open.
func (k *keeper) broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrHistoryLost):
		k.slot.lost(ctx, err)
	case errors.Is(err, ErrUnknownOutcome) && k.slot.writer != nil:
		// Statements and answers may be made again whether they were committed or not; only the mark must be known.
		_, unresolved := k.slot.writer.Resolve(ctx)
		if errors.Is(unresolved, ErrHistoryLost) {
			k.slot.lost(ctx, unresolved)
		}
		if unresolved != nil {
			return errors.Join(err, unresolved)
		}
	}
	return err
}

// housekeeping does what is due by this process's own clock.
func (k *keeper) housekeeping(ctx context.Context) {
	n, now := k.node, k.node.now()
	writer, err := k.slot.ready(ctx)
	if err != nil {
		return
	}
	if now.Sub(k.swept) >= sweepEvery {
		k.swept = now
		n.sweep(ctx)
	}
	if upTo, ok := n.synced.closable(now); ok && now.Sub(k.closed) >= closeEvery {
		k.closed = now
		if _, err := n.owner.Close(ctx, writer, upTo, n.cfg.CloseGrace); err != nil {
			n.log.Debug("close periods", "error", k.broken(ctx, err))
		}
	}
	if now.Sub(k.tidied) >= tidyEvery {
		k.tidied = now
		done, err := n.owner.Tidy(ctx, writer, n.cfg.Retention, k.knownClosed)
		switch {
		case err != nil:
			n.log.Debug("tidy", "error", k.broken(ctx, err))
		case done != "":
			n.log.Info("tidied", "what", done)
		}
	}
}

// knownClosed is how long this process has known an id table to be closed, by its monotonic clock: a database whose clock
// jumps ahead drops no ids that are alive. The first time that it is asked, that is not at all.
func (k *keeper) knownClosed(table int) allocation.Duration {
	now := k.node.now()
	since, ok := k.closedIDs[table]
	if !ok {
		k.closedIDs[table] = now
		return 0
	}
	return allocation.Duration(now.Sub(since) / time.Second)
}

// sweep lets the reservations lapse whose time is over.
func (n *Node) sweep(ctx context.Context) {
	ids, err := n.owner.Lapsed(ctx, sweepMost)
	if err != nil || len(ids) == 0 {
		return
	}
	requests := make([]allocation.Request, len(ids))
	for i, id := range ids {
		requests[i] = allocation.Request{Op: allocation.Lapse, Key: id}
	}
	n.Decide(ctx, requests, n.now().Add(10*time.Second))
}

// watch keeps an idle node truthful: it commits once a second if nothing else does, and reads what other nodes changed.
func (n *Node) watch(ctx context.Context) {
	for ctx.Err() == nil {
		bounded, cancel := n.cfg.Runtime.WithTimeout(ctx, time.Second)
		if err := n.commitNow(bounded); err != nil && ctx.Err() == nil {
			n.log.Debug("commit a probe", "error", err)
		}
		n.reload(bounded)
		if !n.voucher.standing() {
			n.kick()
		}
		if fullest, err := n.owner.Fullest(bounded, MaxFullest); err == nil {
			n.fullestRows.Store(&fullest)
		}
		cancel()
		n.cfg.Runtime.Sleep(ctx, time.Second)
	}
}
