package walk

import (
	"fmt"

	"tranche/allocation"
)

// write is one transaction of a node: it compares its mark and leaves the next one. ok is false if the database does not
// hold what the node last left; then the node knows that history was lost.
func (m *machine) write(w *world, d, n int) (ok bool) {
	db, nd := &w.dbs[d], &w.nodes[n]
	if m.OwnerRestores == 0 && !m.Copy || regionOf(d) != 0 {
		return true // no mark is ever lost here: they need not be told apart
	}
	slot := db.row(nd.writer)
	if slot < 0 || int(db.marks[slot].count) >= m.Writes {
		if slot >= 0 {
			return false // a bound of the walk
		}
	}
	if !m.off(NodeChecksMark) {
		now := mark{}
		if slot >= 0 {
			now = db.marks[slot]
		}
		if (allocation.MarkMemory{Left: nd.left.real()}).Judge(now.real()) == allocation.MarkLost {
			nd.lost = true
			return false
		}
	}
	if slot < 0 {
		return false
	}
	next := mark{nd.writer, db.marks[slot].count + 1, db.line}
	db.marks[slot], nd.left = next, next
	return true
}

func (db *database) row(writer uint8) int {
	for i, k := range db.marks {
		if k.writer == writer {
			return i
		}
	}
	return -1
}

// enroll writes the first mark of a process into its own row.
func (m *machine) enroll(w *world, d, n int) bool {
	w.writersMade++
	first := mark{w.writersMade, 1, w.dbs[d].line}
	slot := w.dbs[d].row(0)
	if slot < 0 {
		return false
	}
	w.dbs[d].marks[slot] = first
	w.nodes[n] = node{on: true, writer: first.writer, left: first}
	return true
}

// decide makes one admission or ends a reservation, through the real decision over the real row. The row is made from the
// share when it is missing, as under the lock of the share row.
func (m *machine) decide(w *world, d, t int, op allocation.Op) bool {
	db := &w.dbs[d]
	share := db.shares[t]
	if share == nil {
		return false
	}
	type result struct {
		usage *allocation.Usage
		ok    bool
	}
	key := [5]any{"decide", share, db.usage[t], op, db.open[t] != 0}
	got := remember(m, key, func() result {
		u, ok := m.decideOn(share, db.usage[t], t, op, db.open[t] != 0)
		if !ok {
			return result{}
		}
		return result{m.usage.keep(u), true}
	})
	if got.ok {
		db.usage[t] = got.usage
	}
	return got.ok
}

func (m *machine) decideOn(share *allocation.Share, row *allocation.Usage, t int, op allocation.Op, held bool) (allocation.Usage, bool) {
	var u allocation.Usage
	if row != nil {
		u = *row
	} else if made, ok := share.Usage(usageKey(t)); ok {
		u = made
	}
	catalogue := allocation.NewCatalogue("a").With(1, []allocation.ConfiguredBudget{{Budget: m.budget, Version: 1}}, []allocation.Term{{
		Budget: budgetName, Policy: share.Policy, Regions: share.Regions, Periods: share.Periods,
	}}, nil)
	id := allocation.IDKey{ID: string(op)}
	l := allocation.Locked{
		Catalogue: catalogue, Now: int64(periodsOf(t).Start()+1) * 1_000_000,
		Usage: map[allocation.UsageKey]*allocation.Usage{usageKey(t): &u}, IDs: map[allocation.IDKey]*allocation.Admission{},
		LookedUp:     func(allocation.IDKey) bool { return true },
		ChangedUsage: map[allocation.UsageKey]bool{}, Inserted: map[allocation.IDKey]bool{}, Updated: map[allocation.IDKey]bool{},
	}
	if op == allocation.Settle || op == allocation.Release {
		a := &allocation.Admission{IDKey: id, State: allocation.StateReserved, Lines: []allocation.AdmissionLine{{
			UsageKey: usageKey(t), Until: periodsOf(t).End(), Unit: "requests", Requested: 1, Held: 1,
		}}}
		if !held { // counted as spent when its incarnation was replaced
			a.State, a.Lines[0].Held, a.Lines[0].Spent = allocation.StateLapsedSpent, 0, 1
		}
		l.IDs[id] = a
	}
	out := l.Decide(catalogue.Plan(allocation.Request{Op: op, Key: id, Costs: map[string]int64{"requests": 1}}, periodsOf(t).Start()+1))
	if out.Again {
		panic(fmt.Sprintf("%s is never decided", op))
	}
	return u, out.Decision.Admitted() && l.ChangedUsage[usageKey(t)]
}

// call is what a node says of its database, from one snapshot of it.
func (m *machine) call(w *world, d int) message {
	db, n := &w.dbs[d], &w.nodes[d]
	c := message{
		kind: request, writer: n.writer, history: db.history, incarnation: db.incarnation, home: db.home,
		lost: n.lost, marks: db.marks, known: db.known,
	}
	if db.holds(n.left) {
		c.own = n.left
	}
	if n.lost {
		return c // what a database says that lost its history counts for nothing
	}
	for t := range terms {
		if db.shares[t] != nil {
			c.statements[t] = m.statement(db.shares[t], db.usage[t])
		}
	}
	return c
}

func (m *machine) statement(s *allocation.Share, u *allocation.Usage) *allocation.ShareStatement {
	return remember(m, [3]any{"statement", s, u}, func() *allocation.ShareStatement {
		var used []allocation.Usage
		if u != nil {
			used = append(used, *u)
		}
		st := s.Statement(used, nil)
		st.Held = s
		return m.statements.keep(st)
	})
}

// hear is one transaction of an owner: it applies an answer.
func (m *machine) hear(w *world, d int, a message) bool {
	db, n := &w.dbs[d], &w.nodes[d]
	stored, take := db.history.real().Heed(a.history.real())
	if m.off(OwnerHeedsHistory) {
		take = true
	}
	if stored != db.history.real() {
		// An owner that lost its history stores the new one too, past its mark: it starts over anyway.
		if !n.lost && !m.write(w, d, d) && !n.lost {
			return false
		}
		db.history = a.history
	}
	if !take {
		return true
	}
	switch {
	case a.refused:
		for _, k := range a.contradicts {
			if k.writer > 0 && !db.holds(k) {
				n.lost = true
			}
		}
		n.lost = n.lost || a.contradicts == [writers]mark{} && a.incarnation != db.incarnation
		return true
	case a.incarnation != db.incarnation:
		if n.lost && a.incarnation > 0 && a.writer == n.writer {
			m.startOver(w, d, a.incarnation)
		}
		return true
	case n.lost:
		return true
	}
	next := *db
	next.known |= a.known
	m.apply(&next, a)
	if next != *db { // what says nothing new is no transaction
		if !m.write(w, d, d) {
			return true
		}
		next.marks = db.marks
		*db = next
	}
	said := allocation.SyncAnswer{History: a.history.real(), Incarnation: incarnation(regionOf(d), a.incarnation), Frozen: a.frozen}
	asked := allocation.SyncCall{
		History: a.asked.real(), Incarnation: incarnation(regionOf(d), a.askedFor), Marks: []allocation.Mark{a.own.real()},
	}
	n.vouched = n.vouched || said.Vouches(asked, mark{writer: n.writer, count: 1, line: a.own.line}.real())
	return true
}

func (db *database) holds(k mark) bool {
	slot := db.row(k.writer)
	return slot >= 0 && k.real().Holds(db.marks[slot].real())
}

// apply takes the grants of an answer: shares, and the rows of their periods that are used.
func (m *machine) apply(db *database, a message) {
	for t, g := range a.grants {
		if g == nil || len(g.Entries) == 0 {
			continue
		}
		before := db.shares[t]
		db.shares[t] = remember(m, [3]any{"apply", before, g}, func() *allocation.Share { return m.applyTo(before, *g) })
		if u, s := db.usage[t], db.shares[t]; u != nil && s != before {
			db.usage[t] = remember(m, [3]any{"take", u, s}, func() *allocation.Usage {
				next := u.Take(*s)
				if m.off(GenerationsRise) {
					e, _ := s.EntryFor(u.Period, u.Class)
					next.Granted, next.Returned, next.Target, next.Generation = e.Granted, e.Returned, e.Target, s.Generation.Number
				}
				return m.usage.keep(next)
			})
		}
	}
}

func (m *machine) applyTo(before *allocation.Share, g allocation.ShareGrant) *allocation.Share {
	var s allocation.Share
	if before != nil {
		s = *before
	}
	stated := s.Generation
	if m.off(SealedTakesNoGrant) {
		s.Sealed = false
	}
	if m.off(GenerationsRise) {
		s = allocation.Share{}
	}
	next, changed, err := s.Apply(g)
	if err != nil || !changed {
		return before // the owner states what it has, and the coordinator finds out
	}
	if m.off(LedgersStamp) && stated.Number > 0 {
		next.Generation = stated
	}
	return m.shares.keep(next)
}

// startOver makes the owner the new incarnation, with nothing. What it reserved counts as spent.
func (m *machine) startOver(w *world, d int, inc uint8) {
	db, n := &w.dbs[d], &w.nodes[d]
	db.incarnation = inc
	if !m.off(HoldsNothing) {
		for t := range terms {
			db.shares[t], db.open[t] = nil, 0
			if u := db.usage[t]; u != nil {
				db.usage[t] = m.usage.keep(u.StartOver())
			}
		}
	}
	db.marks = [writers]mark{}
	m.enroll(w, d, d)
	n.vouched = false
}
