package regional

import (
	"slices"
	"sync"
	"time"

	"tranche/allocation"
)

// voucher is whether somebody vouches for this node: that its database holds all that was ever committed for the
// incarnation. It is given for one lineage of the database, and every batch reads the lineage in its own transaction, so
// a database that may have gone back behind our back ends it by itself:
//
//	starting ──the coordinator answered a call that showed our marks (SyncAnswer.Vouches), and───▶ vouched, in that lineage
//	    │      all others went on since we look, or were waited for (othersWithin)                     ▲
//	    ├──────another writer that is vouched for has committed since we look──────────────────────────┤
//	    ├──────we have memory, and all others went on since we look (allocation.WentOn)────────────────┘
//	    └◀──── the lineage is another
//
// The coordinator alone is not enough. It was told of each mark a second ago or so: what another node has committed since,
// only that node knows, and it may not have found its connections broken yet.
//
// A network that breaks changes no lineage. With memory means: this process was vouched for before, or its marks were kept
// from a clean stop, and all of them are still there. Others' going on counts only in the same home: in another one the
// old one may be alive, and only the coordinator knows.
type voucher struct {
	mu       sync.Mutex
	vouched  string          // the lineage that was vouched for last; empty: none, and so no memory
	home     allocation.Home // of that lineage
	lineage  string          // as last seen
	lossy    int             // slots that found their marks gone and have not recorded it yet
	lookedIn string          // the lineage that the following is of
	seen     []WriterMark    // of others, when we first looked
	looked   map[int]bool    // our slots that found their marks in place
	silent   []string        // names of others' slots that were not ended when we first looked, and have not gone on since
	said     string          // the lineage in which the coordinator answered that its marks are there
	saidAt   time.Time       // when it did so first
}

// Bounds of waiting for the other nodes of the region once the coordinator has answered.
const (
	// othersWithin is how long they are waited for, from its answer on. A node of this database that is alive writes within it:
	// it commits once a second at the latest (watch), a first try over a connection that broke may take beginWithin, and the
	// next one follows a second later. One that works on another database, of which this one is a copy, or the other way
	// round, takes the turn and calls within it: the coordinator then hears of marks that exclude each other, and refuses one
	// of the two. One that is dead, or cut off, does neither: what it alone knew to be committed is lost.
	othersWithin = turnFor + 2*turnEvery
	othersEvery  = 100 * time.Millisecond // between two looks at them
)

// holds says whether a transaction in this lineage may decide admissions.
func (v *voucher) holds(lineage string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lossy == 0 && lineage != "" && v.vouched == lineage
}

// standing says whether the node is vouched for in the lineage that it last saw.
func (v *voucher) standing() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.lossy == 0 && v.lineage != "" && v.vouched == v.lineage
}

// given is the lineage and home of the last voucher.
func (v *voucher) given() (string, allocation.Home) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.vouched, v.home
}

// see notes the lineage of a transaction, and says whether it is another than before.
func (v *voucher) see(lineage string) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed, v.lineage = lineage != v.lineage, lineage
	return changed
}

// remember is memory kept from a clean stop: in the same lineage it is as good as before.
func (v *voucher) remember(lineage string, home allocation.Home) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.vouched, v.home = lineage, home
}

// give vouches for the node in a lineage. It says whether that is news.
func (v *voucher) give(lineage string, home allocation.Home) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.lossy > 0 || lineage == "" || v.vouched == lineage {
		return false
	}
	v.vouched, v.home, v.said = lineage, home, ""
	return true
}

// lose and recorded bracket the time in which only this process knows that history was lost.
func (v *voucher) lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.vouched, v.home, v.lookedIn, v.said = "", allocation.Home{}, "", ""
	v.lossy++
}

func (v *voucher) recorded() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lossy--
}

// told notes that the coordinator vouches for the node in a lineage: now, by a call that it has just answered. It says
// whether that is enough.
func (v *voucher) told(lineage string, now time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.said != lineage {
		v.said, v.saidAt = lineage, now
	}
	return v.othersSpoke() || v.said == v.lookedIn && now.Sub(v.saidAt) >= othersWithin
}

// unsaid takes the coordinator's word back: it does not vouch for the node any more.
func (v *voucher) unsaid() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.said = ""
}

// waiting says whether the node would be vouched for, if the others had gone on.
func (v *voucher) waiting() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.said != "" && v.said == v.lineage && v.vouched != v.lineage
}

// othersSpoke says whether the coordinator's word is enough, since all others went on.
func (v *voucher) othersSpoke() bool {
	return v.said != "" && v.said == v.lookedIn && len(v.silent) == 0
}

// consider takes what one of our slots saw when it found its mark in place. It says whether that is enough to vouch.
func (v *voucher) consider(slot, slots int, own []string, l Look) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	others := l.others(own)
	if v.lookedIn != l.Lineage {
		v.lookedIn, v.looked, v.seen, v.silent = l.Lineage, map[int]bool{}, others, l.toWaitFor(own)
	}
	v.looked[slot] = true
	v.silent = slices.DeleteFunc(v.silent, func(name string) bool { return slices.ContainsFunc(others, v.spoke(name)) })
	for _, m := range others {
		if m.Vouched && v.spoke(m.Name)(m) {
			return true
		}
	}
	var waited, marks []allocation.Mark
	for _, m := range v.seen {
		if !m.Ended { // one that ended left on its own, and its last mark is here
			waited = append(waited, m.Mark)
		}
	}
	for _, m := range others {
		marks = append(marks, m.Mark)
	}
	return v.remembers(l, slots) && allocation.WentOn(waited, marks, "") || v.othersSpoke()
}

// spoke says of a mark whether a slot of that name has left it since we first looked.
func (v *voucher) spoke(name string) func(WriterMark) bool {
	return func(m WriterMark) bool {
		before := slices.IndexFunc(v.seen, func(o WriterMark) bool { return o.Writer == m.Writer })
		return m.Name == name && (before < 0 || m.Count > v.seen[before].Count)
	}
}

// remembers says whether this process has memory in this home, and all of it was found in place.
func (v *voucher) remembers(l Look, slots int) bool {
	return v.vouched != "" && v.home == l.Home && len(v.looked) == slots
}

// others are the marks that are not ours.
func (l Look) others(own []string) []WriterMark {
	return slices.DeleteFunc(slices.Clone(l.Marks), func(m WriterMark) bool { return slices.Contains(own, m.Writer) })
}

// toWaitFor are the names of others' slots that somebody may still be. A process that was killed never ends its writers,
// but the next one of its name takes its place; one of our own name is gone.
func (l Look) toWaitFor(own []string) (names []string) {
	var ours []string
	for _, m := range l.Marks {
		if slices.Contains(own, m.Writer) {
			ours = append(ours, m.Name)
		}
	}
	for _, m := range l.others(own) {
		if !m.Ended && !slices.Contains(ours, m.Name) && !slices.Contains(names, m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
}
