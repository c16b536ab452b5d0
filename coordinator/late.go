package coordinator

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// What an owner states of a term that is closed comes late: a reservation that was open then was settled, perhaps days
// later. Nothing is opened again. The record says so as long as it is in etcd; after that an amendment does, and follows
// it into the archive:
//
//	statement of a closed term ──the record is in etcd──▶ ClosedRegion.Late
//	                           └─it is archived─────────▶ Amendment ──▶ a line of the archive
//
// Either is durable before the statement is acknowledged.

// lateShare is one such account.
type lateShare struct {
	ref  allocation.ShareRef
	sums allocation.RecordSums
	st   allocation.ShareStatement
}

// enterLate enters what a call states of closed terms and what is not recorded so.
func (s *Service) enterLate(ctx context.Context, call allocation.SyncCall, arrived time.Time) error {
	h := allocation.Holder{Region: call.Region, Incarnation: call.Incarnation}
	var due []lateShare
	s.state.mu.Lock()
	r := s.state.regions[call.Region]
	for _, st := range call.Statements {
		if newer, joins := r.accepts(call.Incarnation, st); !newer || !joins {
			continue
		}
		for _, sh := range st.Shares {
			late := lateShare{ref: allocation.ShareRef{Budget: sh.Budget, Term: sh.Term}, sums: allocation.SumOf(sh), st: sh}
			if s.isNews(h, late) {
				due = append(due, late)
			}
		}
	}
	s.state.mu.Unlock()
	for part := range slices.Chunk(due, maxCountsPerTxn) {
		err := s.act(ctx, func() (Change, error) {
			var change Change
			for _, late := range part {
				if s.isNews(h, late) {
					s.amend(&change, h, late, arrived.UTC())
				}
			}
			return change, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// isNews says whether an account speaks of a closed term, and says other than what is recorded.
func (s *Service) isNews(h allocation.Holder, late lateShare) bool {
	if !s.state.isClosed(late.ref) {
		return false
	}
	if c := s.state.closings[closingKey(late.ref.Budget, late.ref.Term)]; c != nil {
		i := c.value.of(h)
		if i < 0 {
			return late.sums != (allocation.RecordSums{})
		}
		recorded := c.value.Regions[i].Final()
		recorded.Stranded = 0
		return recorded != late.sums
	}
	if a := s.state.amendments[amendmentKey(late.ref, h)]; a != nil {
		recorded := a.value.Late.RecordSums
		recorded.Stranded = 0
		return recorded != late.sums
	}
	return late.sums != (allocation.RecordSums{})
}

// of is the place of an incarnation in the record; -1: it held nothing.
func (c Closing) of(h allocation.Holder) int {
	return slices.IndexFunc(c.Regions, func(r ClosedRegion) bool { return r.Holder == h })
}

// amend adds the late account to a change.
func (s *Service) amend(change *Change, h allocation.Holder, late lateShare, at time.Time) {
	account := LateAccount{First: at, At: at, Times: 1, RecordSums: late.sums, Usage: late.st.Usage}
	key := closingKey(late.ref.Budget, late.ref.Term)
	if c := s.state.closings[key]; c != nil {
		next := c.value
		next.Regions = slices.Clone(next.Regions)
		i := next.of(h)
		if i < 0 {
			i = len(next.Regions)
			next.Regions = append(next.Regions, ClosedRegion{Holder: h})
		}
		account.follow(next.Regions[i].Late)
		if next.Regions[i].Late = &account; len(encode(next)) > 2*maxClosingBytes {
			account.Usage = nil
		}
		change.Reads, change.Puts = append(change.Reads, c.item), append(change.Puts, put(key, next))
		return
	}
	// That there is no record is compared too: it may have been made a moment ago.
	amendments := amendmentKey(late.ref, h)
	before := s.state.amendments[amendments]
	a := Amendment{Format: documentFormat, Budget: late.ref.Budget, Term: late.ref.Term, Holder: h, Late: account}
	if b := s.state.budgets[late.ref.Budget]; b != nil {
		a.Unit = b.value.Budget.Unit
	}
	if before != nil {
		a.Late.follow(&before.value.Late)
	}
	change.Reads = append(change.Reads, Item{Key: key}, before.known(amendments))
	change.Puts = append(change.Puts, put(amendments, a))
}

// follow keeps what only the account before it knows.
func (l *LateAccount) follow(before *LateAccount) {
	if before != nil {
		l.First, l.Times = before.First, before.Times+1
	}
}
