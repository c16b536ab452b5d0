package coordinator

import (
	"time"

	"tranche/allocation"
)

// The rate memory: what each region spent of each budget in the last hour, as its statements showed it, in slots of five
// minutes. It is this replica's, and starts anew with it: whoever asks is told over how long it has seen.
const (
	rateSlot  = 5 * time.Minute
	rateSlots = 12
	maxRates  = 50_000 // pairs of region and budget; the idle ones go first, then new ones are not taken
)

type rateKey struct{ region, budget string }

// rateOf is one pair's slots; newest is the number of the last one that was written.
type rateOf struct {
	slots  [rateSlots + 1]int64
	newest int64
}

// rates is what was seen since `since`; zero: nothing yet.
type rates struct {
	since time.Time
	pairs map[rateKey]*rateOf
}

func slotOf(at time.Time) int64 { return at.Unix() / int64(rateSlot/time.Second) }

// add counts what was spent, as it was stated now.
func (r *rates) add(region, budget string, units int64, now time.Time) {
	if r.since.IsZero() {
		r.since, r.pairs = now, map[rateKey]*rateOf{}
	}
	key, slot := rateKey{region, budget}, slotOf(now)
	p := r.pairs[key]
	if p == nil {
		if units == 0 || len(r.pairs) >= maxRates && !r.makeRoom(slot) {
			return
		}
		p = &rateOf{newest: slot}
		r.pairs[key] = p
	}
	for ; p.newest < slot; p.newest++ {
		if slot-p.newest > rateSlots {
			p.slots, p.newest = [rateSlots + 1]int64{}, slot
			break
		}
		p.slots[(p.newest+1)%int64(len(p.slots))] = 0
	}
	p.slots[p.newest%int64(len(p.slots))] += units
}

func (r *rates) makeRoom(slot int64) bool {
	for key, p := range r.pairs {
		if slot-p.newest > rateSlots {
			delete(r.pairs, key)
		}
	}
	return len(r.pairs) < maxRates
}

// of is a region's rate in the hour before `until`.
func (r *rates) of(region, budget string, until time.Time) allocation.Rate {
	if r.since.IsZero() || !until.After(r.since) {
		return allocation.Rate{}
	}
	last := slotOf(until)
	first := last - rateSlots
	begin := time.Unix(first*int64(rateSlot/time.Second), 0)
	if r.since.After(begin) {
		begin = r.since
	}
	rate := allocation.Rate{Over: allocation.Duration(until.Sub(begin) / time.Second)}
	if p := r.pairs[rateKey{region, budget}]; p != nil {
		for n := max(first, p.newest-rateSlots); n <= min(last, p.newest); n++ {
			rate.Units += p.slots[n%int64(len(p.slots))]
		}
	}
	return rate
}

// spentMore is how much more one account of a share shows as spent than the one before it.
func spentMore(before, after allocation.ShareStatement) (more int64) {
	type key struct {
		period allocation.Instant
		class  allocation.Class
	}
	had := map[key]int64{}
	for _, u := range before.Usage {
		had[key{u.Period, u.Class}] = u.Spent
	}
	for _, u := range after.Usage {
		more += max(0, u.Spent-had[key{u.Period, u.Class}])
	}
	return more
}
