package coordinator

import (
	"context"
	"errors"
	"slices"
	"time"

	"tranche/allocation"
)

// maxCountsPerTxn is how many ledgers one transaction of counted returns changes.
const maxCountsPerTxn = 25

// accepts says whether a statement is newer than what is known of its shard, and can be joined with it: it holds all that
// changed since the number Base, so a coordinator that knows that number, or a later one, has the whole after joining.
func (r *region) accepts(incarnation string, st allocation.Statement) (newer, joins bool) {
	have := int64(0)
	if sh := r.shards[st.Shard]; sh != nil && sh.incarnation == incarnation {
		have = sh.number
	}
	return st.Number > have, st.Base == 0 || st.Base <= have
}

// countReturns enters into the ledgers what the call states to have returned: durable before it is acknowledged, and
// before anybody else is granted it (invariant 4). A crash in between leaves the statement unacknowledged; the owner
// states it again, and counting it again changes nothing.
//
// What a node states that nobody vouches for is only compared with the ledgers. Its database may be a copy that runs beside the
// original: what it gave back, in there, may be spent in the other one, of which the coordinator hears a moment later.
func (s *Service) countReturns(ctx context.Context, call allocation.SyncCall) error {
	h := allocation.Holder{Region: call.Region, Incarnation: call.Incarnation}
	var due []allocation.ShareStatement
	s.state.mu.Lock()
	r := s.state.regions[call.Region]
	for _, st := range call.Statements {
		if newer, joins := r.accepts(call.Incarnation, st); newer && joins {
			due = append(due, slices.DeleteFunc(slices.Clone(st.Shares), func(sh allocation.ShareStatement) bool { return len(sh.Returned) == 0 })...)
		}
	}
	s.state.mu.Unlock()
	for part := range slices.Chunk(due, maxCountsPerTxn) {
		for more := true; more; {
			var err error
			if more, err = s.countPart(ctx, h, part, call.Starting); contradicted(err) {
				// The grant that is returned may be one that another replica made a moment ago.
				if err := s.refresh(ctx); err != nil {
					return err
				}
				more, err = s.countPart(ctx, h, part, call.Starting)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// countPart counts several accounts in one transaction, or only compares them. If that does not hold all of them, more is to be
// done.
func (s *Service) countPart(ctx context.Context, h allocation.Holder, part []allocation.ShareStatement, compare bool) (more bool, err error) {
	err = s.act(ctx, func() (Change, error) {
		var change Change
		var budgets []string
		var room actRoom
		more = false
		for _, st := range part {
			l := s.state.ledgers[allocation.ShareRef{Budget: st.Budget, Term: st.Term}]
			if l == nil {
				continue // closed meanwhile
			}
			write, err := s.countShare(h, l, st)
			switch {
			case errors.Is(err, allocation.ErrTooManyEntries):
				continue // the returned permits stay in transit: safe, and counted when runs that differ are over
			case errors.Is(err, allocation.ErrContradicted):
				return Change{}, err
			case err != nil:
				return Change{}, invalid("statements", err.Error(), "state runs of the term's own periods, none twice")
			case compare || write == nil || len(encode(write.after)) > maxLedgerBytes:
				continue
			case !room.take(write.after):
				more = true
				continue
			}
			s.state.addLedger(&change, *write)
			if b := s.state.budgets[st.Budget]; b != nil && !slices.Contains(budgets, st.Budget) {
				budgets = append(budgets, st.Budget)
				change.Reads = append(change.Reads, b.item)
			}
		}
		return change, nil
	})
	return more, err
}

// countShare counts one account; nil if it changes nothing. A ledger that is behind its budget follows first: what comes
// back must not be granted by an older, higher limit. Nor to an incarnation that was replaced: nobody could spend it.
func (s *Service) countShare(h allocation.Holder, l *doc[allocation.Ledger], st allocation.ShareStatement) (*ledgerWrite, error) {
	before, err := s.settled(l.value)
	if errors.Is(err, allocation.ErrFrozen) {
		return nil, nil // it is counted when it is stated anew
	}
	count := allocation.Ledger.Count
	if !slices.Contains(s.state.members().Holders, h) {
		count = allocation.Ledger.CountDrained
	}
	next, changed, err := count(before, h, st, s.generation(before))
	if err != nil || !changed {
		return nil, err
	}
	b, now, members := s.state.budgets[st.Budget], s.instant(), s.state.members().Number
	switch {
	case b == nil || before.Version >= b.value.Version && before.Members >= members:
		return &ledgerWrite{before: l, after: next}, nil
	case before.Periods.End() <= now && before.Members < members:
		return nil, nil // over by our clock, which may be wrong: what comes back must not go to one that was replaced
	case before.Periods.End() <= now:
		return &ledgerWrite{before: l, after: next}, nil
	}
	followed, err := before.Follow(b.value.Budget, b.value.Version, runningIndex(before, now), s.state.members(), s.generation(before))
	if err != nil {
		return nil, err
	}
	// One generation for both steps: nobody ever sees the ledger in between.
	next, changed, err = count(followed, h, st, followed.Generation)
	if err != nil || !changed {
		return nil, err
	}
	next.Stamps = followed.Stamps
	return &ledgerWrite{before: l, after: next}, nil
}

// enterStatements takes the accounts of a call into the picture, and acknowledges of each shard what stands in etcd. What
// only this replica knows is not acknowledged: if it ended before it wrote it, the owner, which has nothing new to say of
// that shard, would never state it again, and what is stranded would be overstated for good. Until the document is
// written the owner states the same changes again, for two seconds or so.
func (s *Service) enterStatements(call allocation.SyncCall, arrived time.Time) []allocation.ShardAck {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	r := s.state.regions[call.Region]
	var acks []allocation.ShardAck
	for _, st := range call.Statements {
		newer, joins := r.accepts(call.Incarnation, st)
		sh := r.shards[st.Shard]
		if sh == nil {
			sh = &shard{}
			r.shards[st.Shard] = sh
		}
		whole := st.Base == 0
		if sh.incarnation != call.Incarnation {
			s.state.keepFormer(r, st.Shard, sh)
			sh.incarnation, sh.number, sh.shares, sh.dropped = call.Incarnation, 0, nil, false
		}
		if newer && joins {
			sh.number, sh.under, sh.at = st.Number, call.History, arrived.UTC()
			if sh.unwritten.IsZero() {
				sh.unwritten = arrived
			}
			sh.dropped = sh.dropped && !whole
			s.state.setShares(r, sh, st.Shares, whole)
		}
		acks = append(acks, allocation.ShardAck{Shard: st.Shard, Number: sh.durable(), Whole: newer && !joins})
	}
	r.promises(call)
	return acks
}
