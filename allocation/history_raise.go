package allocation

import "slices"

// A limit can be lost with the word of the one who spent under it. etcd goes back to before a budget was lowered, and the
// database of region a is lost before it states: what a spent under the higher limit, no ledger knows and nobody can say.
//
//	limit 100    a spends 50, b spends 5
//	limit 0      b returns the rest of what it held; etcd goes back, a is lost
//	             b states 5: the ledger reads  highest 5   b 5   a 0       and a spent 50
//	limit 100    the ledger reads              highest 100 b 5   a 95      unallocated 0
//
// So a raise above the highest limit that a ledger knows is counted as granted to the lost incarnation first, in every term
// that it may have spent of. Then it holds, whatever limit M was lost: when all had stated, what was ever spent and what was
// out was no more than M, since M's own ledger granted it. From there on a permit is granted only in the place of one that
// was returned, unspent: Settle left nothing unallocated up to the highest limit, and of what lies above it nobody gets
// anything. So it stays no more than M, and invariant 2 holds.
//
// Where an operator knows that no limit was higher in what was lost (LimitsKnown), Settle has counted all, and a raise is free.

// unprovenLimits are the incarnations that may have spent, of a term, under a limit that is not known. The last ones come first:
// a region shares its part of a template with those before.
func (l Ledger) unprovenLimits(m Members) (out []Holder) {
	for _, h := range slices.Backward(m.Lost) {
		if !h.LimitsKnown && l.Periods.Start() < h.Through {
			out = append(out, h.Holder)
		}
	}
	return out
}

// raise sets the limit of a run of periods. What lies above all that it ever had goes to those who may have spent it already.
func (l Ledger) raise(e *Entry, limit int64, lost []Holder) {
	rise := limit - e.Highest
	e.Limit, e.Highest = limit, max(e.Highest, limit)
	if rise <= 0 {
		return
	}
	counted := map[string]bool{}
	for _, h := range lost {
		// Where each instance has one home, every region's part is its own: what one has lost says nothing of the others.
		part := ""
		if l.perInstanceHome() {
			part = h.Region
		}
		if n := min(rise, l.unallocated(*e, h)); n > 0 && !counted[part] {
			counted[part] = true
			e.allocation(h, General).Granted += n
		}
	}
}

// RaiseWithheld is how much of a raise to a limit nobody would get in the period of index i, and the incarnation that may
// have spent it already.
func (l Ledger) RaiseWithheld(limit int64, i int, m Members) (Holder, int64) {
	lost := l.unprovenLimits(m)
	if rise := limit - l.EntryAt(i).Highest; rise > 0 && len(lost) > 0 {
		return lost[0], rise
	}
	return Holder{}, 0
}

// KnowLimits records that no limit of any budget was higher, in what etcd lost, than the ledgers know. Only a person can know
// it; Settle has counted all that the lost incarnations may then hold.
func (s Standing) KnowLimits() (next Standing, changed bool) {
	s.Lost = slices.Clone(s.Lost)
	for i := range s.Lost {
		changed = changed || !s.Lost[i].LimitsKnown
		s.Lost[i].LimitsKnown = true
	}
	return s, changed
}
