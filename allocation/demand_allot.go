package allocation

import (
	"cmp"
	"slices"
)

// Seeker is one incarnation as Allot sees it in one period. All of it is a hint, late by the way of a call: it decides who
// is offered permits. Who may spend them is decided by the ledger's counters and by the owner's.
type Seeker struct {
	Holder
	Askable bool  // it called lately, and serves: it can take, and can be asked to return
	Fresh   bool  // it was given, or gave, so lately that nothing is recalled from it now
	Used    int64 // spent and reserved in the period
	Rate    int64 // units a minute that it admits of late
	Unmet   int64 // units that it refused of late, or that wait
}

// place is a seeker with what the ledger says of it.
type place struct {
	Seeker
	held, target int64
	left         int64 // what it may still spend, once it has heard all that the ledger says
	need         int64 // what it needs for its runway
	floor        int64 // of its target: min
	most         int64 // of its target: max
	give, take   int64
}

// asks says whether the place runs low: less than half of its runway is left, or less than what it had to refuse.
func (p *place) asks() bool {
	return p.Askable && p.target < p.most && (2*p.left < p.need || p.left < p.Unmet)
}

// wants is how much it lacks.
func (p *place) wants() int64 { return max(0, min(p.need-p.left, p.most-p.target)) }

// Allot changes the targets of one running period by demand. Those that run low are offered a chunk of what is unallocated,
// at most a fair part of it; where that is not enough, those that hold more than they use soon are asked to return, least
// chunks and more, and what they return goes to those that lack. Min, max and the runway of others are kept.
//
// It reports whether the ledger changed; gen is used only then. It never lowers what an owner may spend of what it used.
// It fails with ErrTooManyEntries if the term lists too many periods that differ: then the period keeps what it has.
func (l Ledger) Allot(i int, seekers []Seeker, gen Generation) (Ledger, bool, error) {
	if !l.followsDemand() || i < 0 || i >= l.Periods.Len() {
		return l, false, nil
	}
	e := l.EntryAt(i)
	places := l.places(e, seekers)
	free := max(0, e.Limit-l.out(e)-l.promised(e))
	lack, askers := grantChunks(places, &free, LeastChunk(e.Limit))
	if lack > 0 && free == 0 {
		recall(places, lack, askers, LeastChunk(e.Limit))
	}
	if !slices.ContainsFunc(places, func(p place) bool { return p.give > 0 || p.take > 0 }) {
		return l, false, nil
	}
	next := l.cut(i)
	if i+1 < l.Periods.Len() {
		next = next.cut(i + 1)
	}
	for n := range next.Entries {
		e := &next.Entries[n]
		if e.From != i {
			continue
		}
		for _, p := range places {
			if p.give > 0 || p.take > 0 {
				e.allocation(p.Holder, General).Target = p.target + p.give - p.take
			}
		}
	}
	next = next.grant(gen)
	if sameEntry(next.EntryAt(i), e) {
		return l, false, nil // what is on its way was promised before
	}
	l = next
	if len(l.Entries) > MaxEntries {
		return l, false, ErrTooManyEntries
	}
	return l, true, nil
}

// sameEntry says whether two states of one period's entry say the same.
func sameEntry(a, b Entry) bool {
	return a.Limit == b.Limit && slices.Equal(a.Allocations, b.Allocations)
}

// places joins the seekers with the entry.
func (l Ledger) places(e Entry, seekers []Seeker) []place {
	least := LeastChunk(e.Limit)
	var out []place
	for _, s := range seekers {
		p := place{Seeker: s, floor: l.Policy.Min[s.Region], most: e.Givable()}
		if most, bounded := l.Policy.Max[s.Region]; bounded {
			p.most = min(p.most, most)
		}
		protected := int64(0) // what only essential traffic may spend is no reserve of the rest
		if a := e.find(s.Holder, General); a != nil {
			p.held, p.target, protected = a.Held(), a.Target, a.Protected
		}
		if p.held > p.target {
			// Asked to return; what it used above the target stays with it.
			p.left = max(0, p.target-s.Used-protected)
			p.target = max(p.target, min(p.held, s.Used))
		} else {
			// What it was offered above what it holds waits for others' returns, and is offered anew.
			p.target = p.held
			p.left = max(0, p.held-s.Used-protected)
		}
		p.need = l.Policy.NeedsFor(s.Rate)
		if s.Unmet > 0 {
			p.need = max(p.need, s.Unmet, least)
		}
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b place) int { return cmp.Compare(a.Region, b.Region) })
	return out
}

// promised is what is kept for regions whose min they do not hold yet: those that have no owner yet come into it, too.
func (l Ledger) promised(e Entry) (sum int64) {
	for region, least := range l.Policy.Min {
		var held int64
		for _, a := range e.Allocations {
			if a.Region == region {
				held += a.Held()
			}
		}
		sum = addUp(sum, max(0, least-held))
	}
	return sum
}

// grantChunks offers chunks of what is free. It returns what those that ask still lack, and how many they are.
func grantChunks(places []place, free *int64, least int64) (lack int64, askers int64) {
	var order []*place
	for n := range places {
		if p := &places[n]; p.asks() {
			order = append(order, p)
		}
	}
	// The shortest runway first: by left/need, without a division.
	slices.SortStableFunc(order, func(a, b *place) int {
		return cmp.Compare(multiply(a.left, b.need), multiply(b.left, a.need))
	})
	askers = int64(len(order))
	fair := max(least, *free/(askers+1))
	for _, p := range order {
		p.give = min(max(p.wants(), least), p.most-p.target, fair, *free)
		*free -= p.give
		lack = addUp(lack, max(0, p.wants()-p.give))
	}
	return lack, askers
}

// recall asks those that hold more than they use within their runway to return it, and promises it to those that lack.
// While somebody has nothing at all and refuses, half of a runway is enough for the others.
func recall(places []place, lack, askers, least int64) {
	var found int64
	for n := range places {
		p := &places[n]
		// Those asked lately have yet to return: it is on its way. One that does not return in time is not waited for.
		if p.Askable && p.Fresh && p.held > p.target {
			found += p.held - p.target
		}
	}
	starved := slices.ContainsFunc(places, func(p place) bool { return p.asks() && p.left == 0 && p.give == 0 && p.Unmet > 0 })
	for _, keep := range []int64{1, 2} { // whole runways, then halves
		if keep == 2 && !starved {
			break
		}
		for n := range places {
			p := &places[n]
			if found >= lack || !p.Askable || p.Fresh || p.asks() || p.give > 0 {
				continue
			}
			spare := min(p.left-p.take-(p.need+keep-1)/keep, p.target-p.take-p.floor)
			if spare < least && !(spare > 0 && p.Rate == 0) {
				continue
			}
			if p.Rate > 0 {
				spare = min(spare, max(least, lack-found)) // a region that is used keeps what nobody asks for
			}
			p.take += spare
			found += spare
		}
	}
	promise(places, min(found, lack), askers)
}

// promise raises the targets of those that lack by what is on its way back; the ledger grants it as it arrives.
func promise(places []place, found, askers int64) {
	fair := found/max(1, askers) + 1
	for n := range places {
		p := &places[n]
		if !p.asks() || found <= 0 {
			continue
		}
		more := min(max(0, p.wants()-p.give), p.most-p.target-p.give, fair, found)
		p.give += more
		found -= more
	}
}
