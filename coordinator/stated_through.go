package coordinator

import (
	"slices"

	"tranche/allocation"
)

// A ledger is closed, and its closing record made, once every owner has *stated* all that it did in the term. That an
// owner has closed its periods does not say so: a call may have no room for all statements, and the contact of a call and
// its statements are written at different times, so that another replica reads the one before the other. So a contact
// also says through which instant the statements are complete:
//
//	call: complete through C, statements 7 of shard 3, 4 of shard 9 ──▶ waits
//	documents show shard 3 at 7 or later, shard 9 at 4 or later     ──▶ stated through C, in the contact
//
// What the call does not state was acknowledged, and so stands in documents already. Whoever reads a contact that says
// so therefore reads all that it speaks of.
//
// All of this holds within one history of etcd. Documents that went back do not show what was acknowledged before, so what
// was stated through then says nothing any more: owners state everything anew, and so does the contact.

// maxPromises is how many calls may wait for their statements to be written. A call is written within seconds, so it is
// the newest that is dropped: the next call promises as much.
const maxPromises = 8

// promise is what one call makes true as soon as its statements are written.
type promise struct {
	incarnation string
	under       allocation.History
	through     allocation.Instant
	numbers     []allocation.ShardAck
}

// promises notes what a call says to be complete. Its statements are entered.
func (r *region) promises(call allocation.SyncCall) {
	if call.CompleteThrough <= r.contact.statedThrough(call.History) || call.Incarnation != r.contact.Incarnation {
		return
	}
	// What was promised before etcd went back may never be kept, and must not fill the list.
	r.promised = slices.DeleteFunc(r.promised, func(p promise) bool { return p.under != call.History })
	for _, p := range r.promised {
		if p.through >= call.CompleteThrough && p.incarnation == call.Incarnation {
			return // that one is kept sooner
		}
	}
	p := promise{incarnation: call.Incarnation, under: call.History, through: call.CompleteThrough}
	for _, st := range call.Statements {
		p.numbers = append(p.numbers, allocation.ShardAck{Shard: st.Shard, Number: st.Number})
	}
	if len(r.promised) < maxPromises {
		r.promised = append(r.promised, p)
	}
	r.keepPromises()
}

// keepPromises raises what the region has stated by what was written meanwhile.
func (r *region) keepPromises() {
	r.promised = slices.DeleteFunc(r.promised, func(p promise) bool {
		if p.incarnation != r.contact.Incarnation {
			return true
		}
		for _, k := range p.numbers {
			sh := r.shards[k.Shard]
			if sh == nil || sh.incarnation != p.incarnation || sh.durable() < k.Number {
				return false
			}
		}
		r.contact.state(p.under, p.through)
		return true
	})
}

// statedThrough is the instant through which all is stated in the documents of a history; 0: nothing is known to be.
func (c Contact) statedThrough(h allocation.History) allocation.Instant {
	if c.StatedUnder != h {
		return 0
	}
	return c.StatedThrough
}

// state raises it. What was stated under an older history does not count any more.
func (c *Contact) state(h allocation.History, through allocation.Instant) {
	switch {
	case h.Number > c.StatedUnder.Number:
		c.StatedUnder, c.StatedThrough = h, through
	case h == c.StatedUnder:
		c.StatedThrough = max(c.StatedThrough, through)
	}
}
