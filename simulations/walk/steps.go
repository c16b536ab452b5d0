package walk

import (
	"fmt"

	"tranche/allocation"
)

// step is one thing that may happen now, in words. do makes it; false says that it cannot happen after all, or that it
// lies beyond a bound.
type step struct {
	words func() string
	do    func(m *machine, w *world) bool
}

// steps lists all that may happen, in an order that does not depend on what happened before.
func (m *machine) steps() []step {
	var all []step
	add := func(do func(m *machine, w *world) bool, format string, args ...any) {
		all = append(all, step{func() string { return fmt.Sprintf(format, args...) }, do})
	}
	period := 0
	if m.Ahead {
		period = 1
	}
	for d := range databases {
		if d == copied && !m.Copy {
			continue
		}
		m.ownerSteps(add, d, period)
		m.messageSteps(add, d)
	}
	if m.SecondNode {
		add(func(m *machine, w *world) bool { return m.use(w, 0, second, 0, allocation.Spend) }, "a's second node admits one permit")
		add(func(m *machine, w *world) bool { return m.wentOn(w, second) }, "a's second node sees that all others went on")
		add(func(m *machine, w *world) bool { return m.wentOn(w, 0) }, "a's node sees that all others went on")
	}
	m.lossSteps(add)
	m.ledgerSteps(add, period)
	if m.Seal {
		m.sealSteps(add)
	}
	return all
}

type adder func(do func(m *machine, w *world) bool, format string, args ...any)

func databaseName(d int) string {
	if d == copied {
		return "the copy of a"
	}
	return regionName(d)
}

func (m *machine) ownerSteps(add adder, d, t int) {
	ops := []allocation.Op{allocation.Spend}
	if m.Reserve > 0 {
		ops = append(ops, allocation.Reserve, allocation.Settle, allocation.Release)
	}
	for _, op := range ops {
		add(func(m *machine, w *world) bool { return m.use(w, d, d, t, op) }, "%s: %s one permit of period %d", databaseName(d), op, t)
	}
}

// use is one committed transaction of node n on database d that spends, reserves, settles or releases.
func (m *machine) use(w *world, d, n, t int, op allocation.Op) bool {
	db, nd := &w.dbs[d], &w.nodes[n]
	ends := op == allocation.Settle || op == allocation.Release
	switch {
	case !db.on || !nd.on || nd.lost || !nd.vouched:
		return false
	case op == allocation.Reserve && (db.open[t] != 0 || int(w.reservations) >= m.Reserve):
		return false
	case ends && db.open[t] == 0:
		return false
	}
	sealed := db.shares[t] != nil && db.shares[t].Sealed || db.usage[t] != nil && db.usage[t].Sealed
	next := *w
	if !m.write(&next, d, n) {
		w.nodes[n].lost = next.nodes[n].lost
		return next.nodes[n].lost
	}
	if !m.decide(&next, d, t, op) {
		return false
	}
	next.account(d, t, op)
	if sealed && op != allocation.Settle && op != allocation.Release {
		next.truth[t].spent = 200 // sealed is sealed: seen by the check
	}
	*w = next
	return true
}

// account keeps the truth, which no restore takes back.
func (w *world) account(d, t int, op allocation.Op) {
	tr, open := &w.truth[t], &w.dbs[d].open[t]
	switch op {
	case allocation.Spend:
		tr.spent++
	case allocation.Reserve:
		w.reservations++
		*open = w.reservations
		tr.open |= 1 << *open
	case allocation.Settle, allocation.Release:
		if op == allocation.Settle {
			tr.spent++
		}
		tr.open &^= 1 << *open
		*open = 0
	}
}

func (m *machine) messageSteps(add adder, d int) {
	name := databaseName(d)
	if m.Whole && !(m.Late && d == 0) {
		add(func(m *machine, w *world) bool {
			if !w.dbs[d].on || !w.nodes[d].on {
				return false
			}
			a, ok := m.serve(w, d, m.call(w, d))
			return ok && m.hear(w, d, a)
		}, "%s calls, is answered, and applies the answer", name)
		return
	}
	// A message is lost, if it ever is, when the next call is made: before that, a lost one and a slow one are the same.
	add(func(m *machine, w *world) bool {
		if !w.dbs[d].on || !w.nodes[d].on {
			return false
		}
		w.calls[d] = m.call(w, d)
		return true
	}, "%s calls the coordinator", name)
	add(func(m *machine, w *world) bool {
		if w.calls[d].kind != request {
			return false
		}
		var ok bool
		w.calls[d], ok = m.serve(w, d, w.calls[d])
		return ok
	}, "the coordinator answers %s", name)
	add(func(m *machine, w *world) bool {
		if w.calls[d].kind != answer || !w.nodes[d].on {
			return false
		}
		ok := m.hear(w, d, w.calls[d])
		w.calls[d] = message{}
		return ok
	}, "%s applies the answer", name)
	if m.off(ReturnsAreDurable) {
		add(func(m *machine, w *world) bool {
			if w.calls[d].kind != answer || w.late[d].kind != nothing {
				return false
			}
			lost := *w
			ok := m.hear(&lost, d, w.calls[d])
			w.late[d] = m.call(&lost, d)
			return ok
		}, "%s states what it returns, and the commit of it is lost", name)
		m.lateSteps(add, d, name)
	}
	if !m.Late || d != 0 {
		return
	}
	add(func(_ *machine, w *world) bool {
		if w.calls[d].kind == nothing || w.late[d].kind != nothing {
			return false
		}
		w.late[d], w.calls[d] = w.calls[d], message{}
		return true
	}, "the message of %s is held back", name)
	m.lateSteps(add, d, name)
}

func (m *machine) lateSteps(add adder, d int, name string) {
	add(func(m *machine, w *world) bool {
		if w.late[d].kind != request {
			return false
		}
		_, ok := m.serve(w, d, w.late[d])
		w.late[d] = message{}
		return ok
	}, "the late call of %s arrives; its answer is lost", name)
	add(func(m *machine, w *world) bool {
		if w.late[d].kind != answer || !w.nodes[d].on {
			return false
		}
		ok := m.hear(w, d, w.late[d])
		w.late[d] = message{}
		return ok
	}, "%s applies a late answer", name)
}
