package coordinator

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
)

// A second database is refused while the recorded home calls: it may be a copy of one that goes on. Most often it is the same
// region after a failover, and its nodes are the same processes. That can be told: each of them compares, in every
// transaction, its mark with what it remembers. One that wrote in the new database finds another mark in the old one, and
// commits nothing there any more. So once all writers that were ever stated have gone over, nobody who is known can commit
// in the old home, and it need be silent only as long as a node that is not known yet would need to call from there:
//
//	a writer that was stated and has not gone over    silent for ReportUnreachableAfter
//	all have gone over                                silent for wentOverQuiet

const (
	// wentOverQuiet is longer than a node needs to take the turn of those that went over, and to call.
	wentOverQuiet = 4 * time.Second
	wentOverPoll  = 100 * time.Millisecond
)

// wentOver says whether all writers that the recorded home was ever stated to have, but for those that ended, have written in
// the caller's database since.
func wentOver(c Contact, call allocation.SyncCall) bool {
	if c.Incarnation == "" || c.Incarnation != call.Incarnation || call.Lost || len(c.Marks) == 0 {
		return false
	}
	return !slices.ContainsFunc(c.Marks, func(before allocation.Mark) bool {
		return !slices.ContainsFunc(call.Marks, func(m allocation.Mark) bool { return m.Writer == before.Writer && m.Count > before.Count })
	})
}

// recordedCalls says whether the recorded home counts as in contact, for a call that comes from another one. Of the shorter
// silence only that counts in which this replica would have heard of a call.
func (s *Service) recordedCalls(r *region, call allocation.SyncCall) bool {
	now := s.now()
	if !r.inContact(now, s.config.ReportUnreachableAfter) {
		return false
	}
	fresh := s.freshSince.Load()
	return !wentOver(r.contact, call) || fresh == 0 || r.inContact(now, wentOverQuiet) || now.Sub(time.Unix(0, fresh)) < wentOverQuiet
}

// awaitQuiet holds a call from a database that all have gone over to, until the recorded one has been silent for long enough.
// It answers the last verdict.
func (s *Service) awaitQuiet(ctx context.Context, call allocation.SyncCall, v verdict) verdict {
	for waited := time.Duration(0); waited <= wentOverQuiet && v.claim == allocation.ClaimSecondHome && ctx.Err() == nil; waited += wentOverPoll {
		s.state.mu.Lock()
		r := s.state.regions[call.Region]
		holds := r != nil && wentOver(r.contact, call)
		s.state.mu.Unlock()
		if !holds {
			return v
		}
		s.runtime.Sleep(ctx, wentOverPoll)
		v = s.hear(call, s.now())
	}
	return v
}
