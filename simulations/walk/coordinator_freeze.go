package walk

import (
	"errors"

	"tranche/allocation"
)

// reconcile takes what a region states while all is frozen.
func (m *machine) reconcile(w *world, r int, h allocation.Holder, c message) (a message, ok bool) {
	for t, st := range c.statements {
		if st == nil {
			continue
		}
		l := w.etcd.ledgers[t]
		got := remember(m, [5]any{"reconcile", l, h, st, w.etcd.line}, func() change { return m.reconciled(l, h, st, w.etcd.line) })
		if errors.Is(got.err, allocation.ErrContradicted) {
			a = m.bare(w, c) // the owner lost history, or a copy of it speaks
			a.refused, a.contradicts = true, [writers]mark{{writer: 99, count: 1}}
			return a, true
		}
		w.etcd.ledgers[t] = got.ledger
	}
	waits := m.members(w).Regions
	for o := range regions {
		if c.known&(1<<o) != 0 && w.etcd.registered&(1<<o) == 0 {
			waits = append(waits, regionName(o))
		}
	}
	if m.off(AllRegionsState) {
		waits = []string{h.Region}
	}
	s, _ := w.etcd.standing.Stated(h, waits)
	w.etcd.standing = m.standings.keep(s)
	if m.off(NoGrantWhileFrozen) {
		return message{}, m.thawedCount(w, r, h, c)
	}
	return message{}, true
}

// thawedCount grants as if nothing were frozen, for the walk without that rule.
func (m *machine) thawedCount(w *world, r int, h allocation.Holder, c message) bool {
	frozen := w.etcd.standing
	s := *frozen
	s.Freeze = nil
	w.etcd.standing = m.standings.keep(s)
	_, ok := m.count(w, r, h, c)
	m.bringOn(w)
	w.etcd.standing = frozen
	return ok
}

func (m *machine) reconciled(l *allocation.Ledger, h allocation.Holder, st *allocation.ShareStatement, line uint8) change {
	held := *st.Held
	if l != nil && m.off(ReconcileByMaximum) {
		return change{ledger: l}
	}
	var base allocation.Ledger
	if l == nil {
		base = allocation.RebuildLedger(held, "requests")
	} else {
		base = *l
	}
	if m.off(StampsCompared) {
		held.Generation = base.Generation
	}
	next, _, err := base.Reconcile(h, held, *st, stamp(line))
	return change{m.ledgers.keep(next), err}
}
