package walk

import "tranche/allocation"

// confirm is what a cold coordinator does that waits for all regions under the history that etcd shows: it looks for a
// contradiction, and grants nothing before all have called.
func (m *machine) confirm(w *world, r int, c message) (message, bool) {
	for t, st := range c.statements {
		l := w.etcd.ledgers[t]
		if st != nil && !m.off(StampsCompared) && (l == nil || l.Contradicts(st.Generation)) {
			return m.refreeze(w, c)
		}
	}
	w.confirmed |= 1 << r
	w.waiting = w.confirmed&w.etcd.registered != w.etcd.registered
	return m.bare(w, c), true
}

// merge keeps of each writer the mark with the highest count.
func merge(before, now [writers]mark) [writers]mark {
	for i := range now {
		for _, b := range before {
			if b.writer == now[i].writer && b.count > now[i].count {
				now[i] = b
			}
		}
	}
	return now
}

// stated is a statement as the ledger is handed it.
func (m *machine) stated(l *allocation.Ledger, st *allocation.ShareStatement) allocation.ShareStatement {
	s := *st
	if m.off(StampsCompared) && l != nil {
		s.Generation = l.Generation
	}
	return s
}

type change struct {
	ledger *allocation.Ledger
	err    error
}

// count enters returns, and grants what came free. A ledger of a thawed history is settled first.
func (m *machine) count(w *world, r int, h allocation.Holder, c message) (a message, ok bool) {
	m.settle(w)
	for t, st := range c.statements {
		l := w.etcd.ledgers[t]
		switch {
		case st == nil:
			continue
		case l == nil && m.off(StampsCompared):
			continue
		case l == nil:
			return m.refreeze(w, c)
		}
		got := remember(m, [5]any{"count", l, h, st, w.etcd.line}, func() change {
			next, _, err := l.Count(h, m.stated(l, st), m.generation(*l, w.etcd.line))
			if err == nil && m.off(StatementsOnlyRaise) {
				next = overwrite(next, h, st)
			}
			return change{m.ledgers.keep(next), err}
		})
		if got.err != nil && !m.off(StampsCompared) {
			return m.refreeze(w, c)
		}
		if got.err == nil {
			w.etcd.ledgers[t] = got.ledger
		}
	}
	return message{}, true
}

// overwrite lets the last statement win, also where it states less.
func overwrite(l allocation.Ledger, h allocation.Holder, st *allocation.ShareStatement) allocation.Ledger {
	l.Entries = []allocation.Entry{l.Entries[0]}
	l.Entries[0].Allocations = append([]allocation.Allocation(nil), l.Entries[0].Allocations...)
	for i := range l.Entries[0].Allocations {
		if a := &l.Entries[0].Allocations[i]; a.Holder == h {
			a.Returned = 0
			for _, s := range st.Returned {
				a.Returned = s.Returned
			}
		}
	}
	return l
}

func (m *machine) refreeze(w *world, c message) (message, bool) {
	if !m.contradict(w, c.history) {
		return message{}, false
	}
	return m.bare(w, c), true
}

// settle makes the ledgers of a thawed history fit to be granted from.
func (m *machine) settle(w *world) {
	s := w.etcd.standing
	for t, l := range w.etcd.ledgers {
		if l == nil {
			continue
		}
		w.etcd.ledgers[t] = remember(m, [4]any{"settle", l, s, w.etcd.line}, func() *allocation.Ledger {
			next, _, err := l.Settle(*s, stamp(w.etcd.line))
			if err != nil {
				return l
			}
			return m.ledgers.keep(next)
		})
	}
}

// bringOn lets settled ledgers follow the members.
func (m *machine) bringOn(w *world) {
	m.settle(w)
	members := m.members(w)
	for t, l := range w.etcd.ledgers {
		if l == nil || l.Members >= members.Number || !l.Settled(*w.etcd.standing) {
			continue
		}
		w.etcd.ledgers[t] = remember(m, [4]any{"follow", l, text(members), w.etcd.line}, func() *allocation.Ledger {
			next, err := l.Follow(m.weighed(l.Policy), 1, 0, members, m.generation(*l, w.etcd.line))
			if err != nil {
				panic(err)
			}
			return m.ledgers.keep(next)
		})
	}
}
