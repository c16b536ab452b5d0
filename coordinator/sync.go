package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
)

// Bounds of a sync call beyond those of allocation.
const (
	maxLow       = 100
	lowPoll      = time.Second // how long a call that names low budgets is held: what is elsewhere changes without waking it
	maxSyncBytes = 8 << 20
	closedTold   = 3 // how often an owner is told of a closed term
)

// Sync is one call of a region. Everything in it may come late, twice, or out of order. What does not fit what is known is
// lost history on one side, and which one follows from what does not fit:
//
//	judge ──does not fit──▶ refresh the picture, judge again
//	  │
//	  ├─ said under an older history ──▶ our history, and nothing of it counts
//	  ├─ knows what etcd never had ──▶ a new history, frozen                               history.go
//	  ├─ its database lost its history, or it has none ──▶ a new incarnation, with nothing  residence.go
//	  ├─ a former incarnation, a second database, missing marks ──▶ refusal history_lost    contradictions.go
//	  ├─ the incarnation in another home, the recorded one is silent ──▶ recorded first
//	  ├─ names its incarnation the first time ──▶ confirmed: from now on ledgers grant to it
//	  ▼
//	heard: contact, clock, closed_before, marks (memory; persisted within 2 s)
//	frozen ──▶ what it holds goes into the ledgers, in etcd; all stated ──▶ thawed          history_restate.go
//	of a node that nobody vouches for ──▶ compared with the ledgers: nothing of it counts, and it is told of no share
//	else ──▶ count what was returned, in etcd
//	enter the statements ──▶ answer, or hold until there is something to say
//
// Marks that were heard are lost if every replica ends within the 2 s before they are persisted. Only an owner that lost
// its own history in those same 2 s could then go unnoticed here, and its nodes, which have memories of their own, would
// still notice it.
func (s *Service) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	return s.syncFrom(ctx, "", call)
}

// syncFrom is Sync for a call from an address; it stands in the audit.
func (s *Service) syncFrom(ctx context.Context, from string, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	arrived := s.now()
	if err := checkCall(call); err != nil {
		return allocation.SyncAnswer{}, err
	}
	if !s.isTrusted() {
		return allocation.SyncAnswer{}, errNotSure
	}
	if call.Ask {
		return s.hearAsk(call, arrived)
	}
	v := s.hear(call, arrived)
	if v.refusal != "" || v.err != nil {
		// This replica may not have heard yet what another one did.
		if err := s.refresh(ctx); err != nil {
			return allocation.SyncAnswer{}, err
		}
		v = s.hear(call, arrived)
	}
	v = s.awaitQuiet(ctx, call, v)
	if v.err == nil && v.refusal == "" && v.claim == allocation.ClaimMove {
		if err := s.move(ctx, from, call); err != nil {
			return allocation.SyncAnswer{}, err
		}
		v = s.hear(call, arrived)
	}
	switch {
	case v.err != nil:
		return allocation.SyncAnswer{}, v.err
	case v.older:
		return s.bare(call), nil
	case v.claim == allocation.ClaimUnheard:
		return s.unheard(ctx, from, call, v)
	case v.etcdLost:
		return s.lostByEtcd(ctx, from, call, v)
	case v.refusal != "":
		if err := s.enterLate(ctx, call, arrived, true); err != nil {
			return allocation.SyncAnswer{}, err // once it is refused it forgets what it states
		}
		return s.refuse(ctx, from, call, v)
	case v.claim != allocation.ClaimFits:
		return s.giveIncarnation(ctx, from, call)
	case !v.confirmed && !s.awaitAnnounced(ctx, call):
		return s.notYet(call), nil
	case !v.confirmed:
		if err := s.confirm(ctx, from, call); err != nil {
			return allocation.SyncAnswer{}, err
		}
	case v.cleared:
		if err := s.unflag(ctx, call.Region); err != nil {
			return allocation.SyncAnswer{}, err
		}
	}
	return s.take(ctx, from, call, v, arrived)
}

// take enters what a call says that fits, and answers it.
func (s *Service) take(ctx context.Context, from string, call allocation.SyncCall, v verdict, arrived time.Time) (allocation.SyncAnswer, error) {
	if err := s.takeDocuments(ctx, from, call); err != nil {
		return allocation.SyncAnswer{}, err
	}
	frozen, restated := s.isFrozen(), false
	enter := s.countReturns
	if frozen {
		enter = func(ctx context.Context, call allocation.SyncCall) (err error) {
			restated, err = s.restate(ctx, call)
			return err
		}
	}
	switch err := enter(ctx, call); {
	case errors.Is(err, errOwnerLost):
		lost := verdictOf(contradictsReturn, "%s", err.Error())
		lost.contradicted = []allocation.Mark{forgottenReturn}
		return s.refuse(ctx, from, call, lost)
	case contradicted(err):
		lost := etcdLostOf(contradictsReturn, "%s", err.Error())
		lost.under = v.under
		return s.lostByEtcd(ctx, from, call, lost)
	case err != nil:
		return allocation.SyncAnswer{}, err
	}
	counts := frozen || !call.Starting
	if !frozen && counts {
		// A record is no reason not to answer. While etcd takes no writes nothing is acknowledged: it is stated again.
		if err := s.enterLate(ctx, call, arrived, false); err != nil {
			s.log.Warn("late statements are not entered yet", "region", call.Region, "error", err)
		}
	}
	var acks []allocation.ShardAck
	if counts {
		acks = s.enterStatements(call, arrived)
	}
	s.noteDemand(call, arrived)
	ended, err := s.forgetEnded(ctx, call)
	if err != nil {
		return allocation.SyncAnswer{}, err
	}
	answer, err := s.answerOrHold(ctx, call, acks, ended, arrived)
	answer.Restated = restated && answer.Frozen && answer.History == call.History
	return answer, err
}

// checkCall refuses what is no call at all.
func checkCall(c allocation.SyncCall) error {
	shares := 0
	for _, st := range c.Statements {
		if st.Shard < 0 || st.Shard >= allocation.Shards || st.Number <= 0 || st.Base < 0 || st.Base >= st.Number {
			return invalid("statements", fmt.Sprintf("shard %d, number %d, base %d", st.Shard, st.Number, st.Base), "number statements from 1, each above its base")
		}
		for _, sh := range st.Shares {
			if allocation.ShardOf(sh.Budget) != st.Shard {
				return invalid("statements", fmt.Sprintf("%s is not of shard %d", sh.Budget, st.Shard), "use allocation.ShardOf")
			}
			for _, u := range sh.Usage {
				if u.Spent < 0 || u.Reserved < 0 || u.Overdraft < 0 || u.Instances < 0 {
					return invalid("statements", fmt.Sprintf("%s states a negative count", sh.Budget), "state what was counted")
				}
			}
		}
		shares += len(st.Shares)
	}
	switch {
	case c.Format != allocation.SyncFormat:
		return invalid("format", fmt.Sprintf("is %d", c.Format), fmt.Sprintf("this coordinator speaks %d; upgrade the older side", allocation.SyncFormat))
	// A shard is stated whole or not at all, so a single one may hold more.
	case shares > allocation.MaxSharesPerCall && len(c.Statements) > 1 || len(c.Known) > allocation.MaxSharesPerCall:
		return invalid("statements", fmt.Sprintf("state %d shares", shares), fmt.Sprintf("state at most %d in one call", allocation.MaxSharesPerCall))
	case len(c.Marks) > maxMarks || len(c.Ended) > maxEnded:
		return invalid("marks", fmt.Sprintf("are %d, ended %d", len(c.Marks), len(c.Ended)), fmt.Sprintf("send at most %d", maxMarks))
	case len(c.Demand) > allocation.MaxDemands:
		return invalid("demand", fmt.Sprintf("names %d budgets", len(c.Demand)), fmt.Sprintf("name at most %d", allocation.MaxDemands))
	case len(c.Documents) > allocation.MaxDocumentsPerCall:
		return invalid("documents", fmt.Sprintf("are %d", len(c.Documents)), fmt.Sprintf("send at most %d", allocation.MaxDocumentsPerCall))
	case len(c.Low) > maxLow:
		return invalid("low", fmt.Sprintf("names %d budgets", len(c.Low)), fmt.Sprintf("name at most %d", maxLow))
	case len(c.Node) > 255 || len(c.NodeURL) > 1024 || len(c.Version) > 255 || len(c.Stopped) > 255:
		return invalid("node", "a name is too long", "use at most 255 bytes, 1024 for an address")
	}
	return nil
}

// answerOrHold answers at once if there is something to say, and else holds the call until there is, or its time is over.
func (s *Service) answerOrHold(ctx context.Context, call allocation.SyncCall, acks []allocation.ShardAck, ended []string, arrived time.Time) (allocation.SyncAnswer, error) {
	wait := min(time.Duration(max(0, call.WaitMillis))*time.Millisecond, s.config.ReportUnreachableAfter/3)
	if len(call.Low) > 0 {
		wait = min(wait, lowPoll)
	}
	news := s.runtime.NewSignal()
	defer s.release(call.Region, news)
	held, cancel := s.runtime.WithTimeout(ctx, wait)
	defer cancel()
	for {
		over := held.Err() != nil
		answer, urgent := s.answer(call, acks, ended, news)
		if urgent || over {
			return answer, nil
		}
		news.Wait(held)
		if ctx.Err() != nil {
			return answer, nil // nobody hears it
		}
	}
}

// release forgets a call that is not held any more.
func (s *Service) release(region string, news Signal) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.regions[region].held.drop(news)
}

// baseAnswer is what every answer says.
func (s *Service) baseAnswer(r *region) allocation.SyncAnswer {
	d := s.state.deployment.value
	var own RegionDocument // empty: it was removed meanwhile
	if r.doc != nil {
		own = r.doc.value
	}
	return allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: d.ID, History: s.state.descent().History, Frozen: s.state.frozen(),
		Regions: s.state.members().Regions, Removed: s.state.removed(), Incarnation: own.Incarnation,
		Now: s.now().UnixMicro(), Revision: s.state.revision, EvidenceAgeMillis: s.evidenceAge().Milliseconds(),
		Draining: own.Draining, TakesDocuments: true,
	}
}

// answer gathers what this region has to hear. It costs what is new for it: its queue, and the changes since its number.
// Unless it is urgent, news is notified when there is more to say.
func (s *Service) answer(call allocation.SyncCall, acks []allocation.ShardAck, ended []string, news Signal) (a allocation.SyncAnswer, urgent bool) {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	r := s.state.regions[call.Region]
	if r.doc == nil { // removed while the call was held
		return allocation.SyncAnswer{}, true
	}
	a = s.baseAnswer(r)
	a.Acknowledged, a.EndedAcknowledged = acks, ended
	// A region that does not know of the freeze must hear of it, to state what it holds; and of another region, to name it.
	urgent = a.History != call.History || len(newNames(call.Regions, a.Regions)) > 0
	if !a.Frozen && !call.Starting { // what is granted, and what is to be given back, it hears as soon as it is vouched for
		urgent = s.addShares(r, &a) || urgent
	}
	var more bool
	a.Budgets, a.Config, more = s.state.configSince(call.Config)
	a.More = a.More || more
	a.Documents, a.DocumentsThrough, more = s.state.documentsSince(call.DocumentsThrough, call.Documents)
	a.More = a.More || more
	a.Closed = s.state.closedOf(r, call)
	a.Elsewhere = s.elsewhere(call)
	urgent = urgent || slices.ContainsFunc(acks, func(k allocation.ShardAck) bool { return k.Whole })
	urgent = urgent || len(a.Budgets)+len(a.Documents)+len(ended) > 0
	if !urgent {
		r.held.add(news)
	}
	return a, urgent
}

// addShares adds the shares whose newest generation the owner has not stated. One that is sent a second time may have
// been stated to another replica, or its answer was lost; either way the owner is asked for the whole shard, or it would
// be sent for ever. After that it is no reason to answer at once.
func (s *Service) addShares(r *region, a *allocation.SyncAnswer) (urgent bool) {
	h, _ := r.holder()
	asked := map[int]bool{}
	for _, ref := range r.queue.take(allocation.MaxSharesPerAnswer) {
		l := s.state.ledgers[ref].value
		a.Shares = append(a.Shares, l.GrantTo(h))
		times, shard := r.tell(ref, l.Generation), allocation.ShardOf(ref.Budget)
		urgent = urgent || times <= 2
		if times < 2 || asked[shard] {
			continue
		}
		asked[shard] = true
		k := allocation.ShardAck{Shard: shard, Whole: true}
		if sh := r.shards[shard]; sh != nil {
			k.Number = sh.number
		}
		a.Acknowledged = slices.DeleteFunc(slices.Clone(a.Acknowledged), func(o allocation.ShardAck) bool { return o.Shard == shard })
		a.Acknowledged = append(a.Acknowledged, k)
	}
	a.More = r.queue.len() > len(a.Shares)
	return urgent
}

// configSince lists the budgets that changed since a configuration number, in the order of their changes. The number that
// it returns is that of the last one listed, or the deployment's if all are.
func (s *state) configSince(number int64) (list []allocation.ConfiguredBudget, reached int64, more bool) {
	i, _ := slices.BinarySearchFunc(s.changes, number+1, func(c configChange, n int64) int { return int(c.number - n) })
	for _, c := range s.changes[i:] {
		d := s.budgets[c.budget].value
		if d.Number != c.number {
			continue // it was changed again: that change comes later
		}
		if len(list) == allocation.MaxBudgetsPerAnswer {
			return list, list[len(list)-1].Number, true
		}
		list = append(list, allocation.ConfiguredBudget{Budget: d.Budget.WithDefaults(), Version: d.Version, Number: d.Number, Deleted: d.Deleted})
	}
	return list, s.deployment.value.Config, false
}

// closedOf names the terms that are closed everywhere and that the owner may still have: those that the call states, and
// those that closed since. There is no acknowledgement: each is told a few times, and again when it is stated.
func (s *state) closedOf(r *region, call allocation.SyncCall) []allocation.ShareRef {
	var closed []allocation.ShareRef
	for _, ref := range r.closed.take(allocation.MaxSharesPerAnswer) {
		closed = append(closed, ref)
		if r.closedTimes[ref]++; r.closedTimes[ref] == closedTold {
			r.closed.remove(ref)
			delete(r.closedTimes, ref)
		}
	}
	for _, st := range call.Statements {
		for _, sh := range st.Shares {
			if ref := (allocation.ShareRef{Budget: sh.Budget, Term: sh.Term}); s.isClosed(ref) {
				closed = append(closed, ref)
			}
		}
	}
	return closed
}

// isClosed says whether a term was opened once and is closed. Its ledger is gone, and never comes back.
func (s *state) isClosed(ref allocation.ShareRef) bool {
	b := s.budgets[ref.Budget]
	return s.ledgers[ref] == nil && b != nil && ref.Term < b.value.OpenedThrough
}

var errNoDeployment = problem(http.StatusConflict, CodeRefused, "this token and this call belong to another deployment",
	"point the region to its own coordinator, or register it here and give its nodes the token that this returns")
