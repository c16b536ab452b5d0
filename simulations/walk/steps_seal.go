package walk

import "tranche/allocation"

// sealSteps end a's incarnation: its database is sealed, and the coordinator is shown the seal, once or again later.
func (m *machine) sealSteps(add adder) {
	if !m.off(EndedBeforeSeal) {
		add(func(m *machine, w *world) bool {
			rec := &w.etcd.regions[0]
			if rec.residence.Incarnation != "a1" || !m.begin(w) || w.waiting {
				return false
			}
			rec.residence = m.residences.keep(rec.residence.End())
			w.etcd.members++
			return true
		}, "the coordinator records that a's incarnation has ended")
	}
	add(func(m *machine, w *world) bool { return m.sealAt(w, 0) }, "a's database is sealed, and the seal read")
	add(func(m *machine, w *world) bool {
		db := w.dbs[0]
		if w.seal == nil || !w.sealed || db.shares[0] == nil || !db.shares[0].Sealed {
			return false
		}
		next := m.read(w, 0)
		differs := next != w.seal
		w.seal = next
		return differs
	}, "a's seal is read again")
	if m.Copy {
		add(func(m *machine, w *world) bool { return m.sealAt(w, copied) }, "the copy is sealed, and the seal read")
	}
	add(func(m *machine, w *world) bool { return m.countSeal(w) }, "the coordinator counts the seal")
}

// sealAt is the seal's transaction: the share rows, then the usage rows.
func (m *machine) sealAt(w *world, d int) bool {
	db := &w.dbs[d]
	if w.sealed || !db.on || !m.off(EndedBeforeSeal) && w.etcd.regions[0].residence.Sealing == "" {
		return false
	}
	w.sealed = true
	for t := range terms {
		if db.shares[t] != nil && !m.off(SealLocksShares) {
			db.shares[t] = m.shares.keep(db.shares[t].Seal())
		}
		if db.usage[t] != nil {
			db.usage[t] = m.usage.keep(db.usage[t].Seal())
		}
	}
	w.seal = m.read(w, d)
	return true
}

// read is what the tool reads of a sealed database.
func (m *machine) read(w *world, d int) *allocation.Seal {
	db := w.dbs[d]
	s := allocation.Seal{
		Holder: allocation.Holder{Region: regionName(regionOf(d)), Incarnation: incarnation(regionOf(d), db.incarnation)},
		Home:   homeOf(db.home), Marks: realMarks(db.marks),
	}
	for t := range terms {
		if db.shares[t] == nil {
			continue
		}
		sh := allocation.SealedShare{Share: db.shares[t].Seal()}
		if db.usage[t] != nil {
			sh.Used = []allocation.Usage{*db.usage[t]}
		}
		s.Shares = append(s.Shares, sh)
	}
	return m.seals.keep(s)
}

func (m *machine) countSeal(w *world) bool {
	if w.seal == nil || !m.begin(w) || w.etcd.standing.Freeze != nil {
		return false
	}
	m.settle(w)
	rec := &w.etcd.regions[0]
	if m.off(EndedBeforeSeal) {
		rec.residence = m.residences.keep(rec.residence.End())
		w.etcd.members++
	}
	seal := *w.seal
	if m.off(SealFromHome) {
		seal.Home = rec.residence.Home
	}
	stated := realMarks(rec.marks)
	if m.off(SealShowsMarks) {
		stated = nil
	}
	if seal.Proves(*rec.residence, stated) != nil {
		return false
	}
	for _, sh := range seal.Shares {
		t := int(sh.Share.Term()-firstMinute) / 60
		l := w.etcd.ledgers[t]
		if l == nil || !l.Settled(*w.etcd.standing) {
			return false
		}
		if m.off(SealLeavesReserved) {
			for i := range sh.Used {
				sh.Used = append([]allocation.Usage(nil), sh.Used...)
				sh.Used[i].Reserved = 0
			}
		}
		next, _, err := l.CountSeal(seal.Holder, sh, m.generation(*l, w.etcd.line))
		if err != nil {
			return false
		}
		w.etcd.ledgers[t] = m.ledgers.keep(next)
	}
	// What a had goes to b: a gets its part again when it has a new incarnation.
	m.toOther(w)
	w.seal = nil
	return true
}

// toOther follows the members as if a were not coming back, so that what the seal freed is used.
func (m *machine) toOther(w *world) {
	members := m.members(w)
	members.Draining = []string{"a"}
	for t, l := range w.etcd.ledgers {
		if l != nil && l.Settled(*w.etcd.standing) {
			if next, err := l.Follow(m.budget, 1, 0, members, m.generation(*l, w.etcd.line)); err == nil {
				w.etcd.ledgers[t] = m.ledgers.keep(next)
			}
		}
	}
}
