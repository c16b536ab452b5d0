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
	periods := 1
	if m.Ahead {
		periods = terms
	}
	for d := range databases {
		if d == copied && !m.Copy {
			continue
		}
		m.ownerSteps(add, d, periods)
		m.messageSteps(add, d)
	}
	if m.SecondNode {
		add(func(m *machine, w *world) bool { return m.use(w, 0, second, 0, allocation.Spend) }, "a's second node admits one permit")
		add(func(m *machine, w *world) bool { return m.wentOn(w, second) }, "a's second node sees that all others went on")
		add(func(m *machine, w *world) bool { return m.wentOn(w, 0) }, "a's node sees that all others went on")
	}
	m.lossSteps(add)
	m.ledgerSteps(add, periods)
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

func (m *machine) ownerSteps(add adder, d, periods int) {
	ops := []allocation.Op{allocation.Spend}
	if m.Reserve > 0 {
		ops = append(ops, allocation.Reserve, allocation.Settle, allocation.Release)
	}
	for t := range periods {
		for _, op := range ops {
			add(func(m *machine, w *world) bool { return m.use(w, d, d, t, op) }, "%s: %s one permit of period %d", databaseName(d), op, t)
		}
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
	if !m.Late {
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

// lossSteps are what goes back, and what starts anew. By symmetry only a's database does.
func (m *machine) lossSteps(add adder) {
	if m.OwnerRestores > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.ownerRestores) >= m.OwnerRestores || w.backed {
				return false
			}
			w.backup, w.backed = w.dbs[0], true
			return true
		}, "a's database is backed up")
		add(func(m *machine, w *world) bool { return m.restoreOwner(w) }, "a's database is restored from the backup")
	}
	if m.Restarts > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.restarts) >= m.Restarts || !w.holdsAll() {
				return false
			}
			w.restarts++
			w.calls[0] = message{}
			return m.restart(w)
		}, "a's node starts anew, without memory; all that it wrote was stated")
	}
	if m.EtcdRestores > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.etcdRestores) >= m.EtcdRestores || w.snapped {
				return false
			}
			w.snapshot, w.snapped = w.etcd, true
			return true
		}, "etcd is saved in a snapshot")
		add(func(m *machine, w *world) bool { return m.restoreEtcd(w) }, "etcd is restored from the snapshot")
	}
	if m.Copy {
		m.copySteps(add)
	}
}

// holdsAll says that the coordinator was told all that a's node remembers to have written.
func (w *world) holdsAll() bool {
	left := w.nodes[0].left
	for _, k := range w.etcd.regions[0].marks {
		if k == left {
			return true
		}
	}
	return false
}

// wentOn lets a node on that has seen every other writer commit since it connected.
func (m *machine) wentOn(w *world, n int) bool {
	nd := &w.nodes[n]
	now := realMarks(w.dbs[0].marks)
	if nd.vouched || nd.lost || nd.seen == [writers]mark{} || !allocation.WentOn(realMarks(nd.seen), now, mark{writer: nd.writer}.real().Writer) {
		return false
	}
	nd.vouched = true
	return true
}

func (m *machine) restart(w *world) bool {
	if !m.enroll(w, 0, 0) {
		return false
	}
	w.nodes[0].vouched = m.off(NodesAreVouchedFor)
	return true
}

func (m *machine) restoreOwner(w *world) bool {
	if !w.backed || int(w.ownerRestores) >= m.OwnerRestores || m.Told && !w.holdsAll() {
		return false
	}
	w.ownerRestores++
	w.lines++
	w.dbs[0] = w.backup
	w.dbs[0].line = w.lines
	w.backup, w.backed = database{}, false
	if !m.off(BrokenConnections) {
		for _, n := range []int{0, second} {
			w.nodes[n].vouched, w.nodes[n].seen = false, w.dbs[0].marks
		}
	}
	switch {
	case m.off(NewIncarnation), m.Forgetful && m.off(NodesAreVouchedFor):
		// It goes on with what it finds.
		w.calls[0] = message{}
		for i, k := range w.dbs[0].marks {
			if k.writer == w.nodes[0].writer {
				w.nodes[0].left = w.dbs[0].marks[i]
			}
		}
		w.nodes[0].lost, w.nodes[0].vouched = false, true
	case m.Forgetful:
		w.calls[0] = message{}
		return m.restart(w)
	}
	return true
}

func (m *machine) restoreEtcd(w *world) bool {
	if !w.snapped || int(w.etcdRestores) >= m.EtcdRestores {
		return false
	}
	w.etcdRestores++
	w.etcdLines++
	w.etcd = w.snapshot
	w.etcd.line = w.etcdLines
	w.snapshot, w.snapped = store{}, false
	if m.Cold {
		w.memory = 0
	}
	return true
}

func (m *machine) copySteps(add adder) {
	add(func(m *machine, w *world) bool {
		if w.copies {
			return false
		}
		w.copies = true
		w.lines++
		w.dbs[copied] = w.dbs[0]
		w.dbs[copied].line = w.lines
		if !m.CopyAtHome {
			w.dbs[copied].home = copied
		}
		return true
	}, "a's database is copied")
	add(func(m *machine, w *world) bool {
		marks := allocation.LostMarks(realMarks(w.etcd.regions[0].marks), realMarks(w.dbs[copied].marks), nil)
		if !w.copies || w.nodes[copied].on || m.CopyAtHome && len(marks) == 0 {
			return false
		}
		if !m.enroll(w, copied, copied) {
			return false
		}
		w.nodes[copied].vouched = m.off(NodesAreVouchedFor)
		return true
	}, "the copy is started beside the original, which has stated something since")
}

func (m *machine) ledgerSteps(add adder, periods int) {
	if m.Demand {
		for t := range periods {
			for _, to := range []string{"a", "b", "ab"} {
				if len(to) == 1 || m.Limit > 1 {
					add(func(m *machine, w *world) bool { return m.give(w, t, to) }, "what is unallocated of period %d goes to %s", t, to)
				}
			}
		}
	}
	for t := range periods {
		for giver := range regions {
			if m.Moves > 0 && !m.Demand {
				add(func(m *machine, w *world) bool { return m.move(w, t, giver) }, "one permit of period %d is moved from %s to %s",
					t, regionName(giver), regionName(1-giver))
			}
		}
	}
	if m.Ahead {
		add(func(m *machine, w *world) bool {
			return w.opens < 2 && w.etcd.ledgers[1] == nil && m.begin(w) && m.openTerm(w, 1) && func() bool { w.opens++; return true }()
		}, "the term of period 1 is opened")
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
	if int(w.moves) >= m.Moves || w.etcd.ledgers[t] == nil || !m.begin(w) {
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
	if int(w.moves) >= m.Moves || w.etcd.ledgers[t] == nil || !m.begin(w) {
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
