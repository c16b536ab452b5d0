package walk

import "tranche/allocation"

func (m *machine) ledgerSteps(add adder, t int) {
	if m.Demand {
		for _, to := range []string{"a", "b", "ab"} {
			if len(to) == 1 || m.Limit > 1 {
				add(func(m *machine, w *world) bool { return m.give(w, t, to) }, "what is unallocated of period %d goes to %s", t, to)
			}
		}
	}
	for giver := range regions {
		if m.Moves > 0 && !m.Demand {
			add(func(m *machine, w *world) bool { return m.move(w, t, giver) }, "one permit of period %d is moved from %s to %s",
				t, regionName(giver), regionName(1-giver))
		}
	}
	if m.Ahead {
		for _, to := range []string{"a", "b"} {
			add(func(m *machine, w *world) bool {
				if w.opens == 2 || w.etcd.ledgers[1] != nil || !m.begin(w) || w.waiting || !m.openFor(w, 1, to) {
					return false
				}
				w.opens++
				return true
			}, "the term of period 1 is opened, all for %s", to)
		}
	}
	if m.Join {
		add(func(m *machine, w *world) bool {
			if w.etcd.registered&2 != 0 || w.registered || !m.begin(w) {
				return false
			}
			w.registered = true
			w.etcd.registered |= 2
			w.etcd.members++
			w.etcd.regions[1].residence = m.residences.keep(allocation.Residence{Incarnation: "b1", Home: homeOf(1), Confirmed: true})
			w.etcd.regions[1].known = 3
			return true
		}, "b is registered")
	}
	if m.off(NoRegrantOnAbsence) {
		add(func(m *machine, w *world) bool { return m.takeBack(w) }, "b is silent for too long: what it holds is granted to others")
	}
}

// move is a manual rebalance of one permit.
func (m *machine) move(w *world, t, giver int) bool {
	if int(w.moves) >= m.Moves || w.etcd.ledgers[t] == nil || !m.begin(w) || w.waiting {
		return false
	}
	m.settle(w)
	m.bringOnUnlessFrozen(w)
	l := w.etcd.ledgers[t]
	if !l.Settled(*w.etcd.standing) && !m.off(NoGrantWhileFrozen) {
		return false
	}
	from := allocation.Holder{Region: regionName(giver), Incarnation: w.etcd.regions[giver].residence.Incarnation}
	to := allocation.Holder{Region: regionName(1 - giver), Incarnation: w.etcd.regions[1-giver].residence.Incarnation}
	if from.Incarnation == "" || to.Incarnation == "" || w.etcd.registered != 3 {
		return false
	}
	got := remember(m, [5]any{"move", l, from, to, w.etcd.line}, func() change {
		next, err := l.Move(from, to, 1, 0, m.generation(*l, w.etcd.line))
		if err == nil && m.off(NoTaking) {
			// Code that takes at once counts the permit as returned without the giver's word.
			st := allocation.ShareStatement{Budget: budgetName, Term: l.Periods.Start(), Returned: []allocation.ReturnedStatement{{
				From: l.Periods.Start(), Until: l.Periods.End(), Class: allocation.General, Returned: returnedBy(next, from) + 1,
			}}}
			if taken, _, err := next.Count(from, st, m.generation(next, w.etcd.line)); err == nil {
				next = taken
			}
		}
		return change{m.ledgers.keep(next), err}
	})
	if got.err != nil {
		return false
	}
	w.moves++
	w.etcd.ledgers[t] = got.ledger
	return true
}

// give follows other weights.
func (m *machine) give(w *world, t int, to string) bool {
	if int(w.moves) >= m.Moves || len(m.Gives) > 0 && m.Gives[w.moves] != to || w.etcd.ledgers[t] == nil || !m.begin(w) || w.waiting {
		return false
	}
	m.settle(w)
	l := w.etcd.ledgers[t]
	if !l.Settled(*w.etcd.standing) && !m.off(NoGrantWhileFrozen) {
		return false
	}
	weights := map[string]int64{}
	for _, r := range to {
		weights[string(r)] = 1
	}
	members := m.members(w)
	next := remember(m, [5]any{"give", l, to, text(members), w.etcd.line}, func() *allocation.Ledger {
		next, err := l.Follow(m.weighed(allocation.Policy{Policy: allocation.PolicyFixed, Weights: weights}), 1, 0, members, m.generation(*l, w.etcd.line))
		if err != nil {
			panic(err)
		}
		return m.ledgers.keep(next)
	})
	w.moves++
	w.etcd.ledgers[t] = next
	return true
}

func (m *machine) bringOnUnlessFrozen(w *world) {
	if w.etcd.standing.Freeze == nil {
		m.bringOn(w)
	}
}

func returnedBy(l allocation.Ledger, h allocation.Holder) (n int64) {
	for _, a := range l.EntryAt(0).Allocations {
		if a.Holder == h {
			n = a.Returned
		}
	}
	return n
}

// takeBack counts all that b holds as returned, because b is silent.
func (m *machine) takeBack(w *world) bool {
	l := w.etcd.ledgers[0]
	h := allocation.Holder{Region: "b", Incarnation: w.etcd.regions[1].residence.Incarnation}
	if w.absent || l == nil || !m.begin(w) {
		return false
	}
	w.absent = true
	for _, a := range l.EntryAt(0).Allocations {
		if a.Holder == h && a.Held() > 0 {
			st := allocation.ShareStatement{Budget: budgetName, Term: l.Periods.Start(), Returned: []allocation.ReturnedStatement{{
				From: l.Periods.Start(), Until: l.Periods.End(), Class: allocation.General, Returned: a.Granted,
			}}}
			next, _, err := l.Count(h, st, m.generation(*l, w.etcd.line))
			if err == nil {
				members := m.members(w)
				members.Holders = members.Holders[:1]
				followed := m.budget
				followed.Allocation.Weights = map[string]int64{"a": 1}
				if next, err = next.Follow(followed, 1, 0, members, m.generation(next, w.etcd.line)); err == nil {
					w.etcd.ledgers[0] = m.ledgers.keep(next)
					return true
				}
			}
		}
	}
	return false
}
