package regional

import (
	"slices"
	"sync"

	"tranche/allocation"
)

// voucher is whether somebody vouches for this node: that its database holds all that was ever committed for the
// incarnation. It is given for one lineage of the database, and every batch reads the lineage in its own transaction, so
// a database that may have gone back behind our back ends it by itself:
//
//	starting ──the coordinator answered a call that showed a mark of ours (SyncAnswer.Vouches)──▶ vouched, in that lineage
//	    ▲      ──another writer that is vouched for has committed since we look──────────────────▶     │
//	    │      ──we have memory, and all others went on since we look (allocation.WentOn)────────▶     │
//	    └──────────────── the lineage is another ◀─────────────────────────────────────────────────────┘
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
}

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
	v.vouched, v.home = lineage, home
	return true
}

// lose and recorded bracket the time in which only this process knows that history was lost.
func (v *voucher) lose() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.vouched, v.home, v.lookedIn = "", allocation.Home{}, ""
	v.lossy++
}

func (v *voucher) recorded() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lossy--
}

// consider takes what one of our slots saw when it found its mark in place. It says whether that is enough to vouch.
func (v *voucher) consider(slot, slots int, own []string, l Look) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := l.others(own)
	if v.lookedIn != l.Lineage {
		v.lookedIn, v.looked, v.seen = l.Lineage, map[int]bool{}, now
	}
	v.looked[slot] = true
	for _, m := range now {
		before := slices.IndexFunc(v.seen, func(o WriterMark) bool { return o.Writer == m.Writer })
		if m.Vouched && (before < 0 || m.Count > v.seen[before].Count) {
			return true
		}
	}
	var waited, marks []allocation.Mark
	for _, m := range v.seen {
		if !m.Ended { // one that ended left on its own, and its last mark is here
			waited = append(waited, m.Mark)
		}
	}
	for _, m := range now {
		marks = append(marks, m.Mark)
	}
	return v.remembers(l, slots) && allocation.WentOn(waited, marks, "")
}

// remembers says whether this process has memory in this home, and all of it was found in place.
func (v *voucher) remembers(l Look, slots int) bool {
	return v.vouched != "" && v.home == l.Home && len(v.looked) == slots
}

// others are the marks that are not ours.
func (l Look) others(own []string) []WriterMark {
	return slices.DeleteFunc(slices.Clone(l.Marks), func(m WriterMark) bool { return slices.Contains(own, m.Writer) })
}
