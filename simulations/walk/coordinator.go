package walk

import (
	"errors"
	"fmt"

	"tranche/allocation"
)

// Every step of the coordinator is one transaction, which compares its own mark and all that it rests on; a replica whose
// picture is older is refused by that, and is no step at all.

// begin looks at the coordinator's own mark. ok is false at a bound of the walk.
func (m *machine) begin(w *world) (ok bool) {
	switch {
	case w.memory == 0 && (m.off(ColdIsFrozen) || w.etcd.standing.Trusts("new", nil)):
		w.memory = w.etcd.mark // trusts what it finds
	case w.memory == 0 && m.off(ColdBeginsHistory):
		s := *w.etcd.standing
		s.Freeze = &allocation.Freeze{Through: m.through()}
		w.etcd.standing = m.standings.keep(s)
	case w.memory == 0:
		if !m.contradict(w, history{}) {
			return false
		}
	default:
		left := mark{writer: 1, count: w.memory}
		if !m.off(CoordinatorChecks) && (allocation.MarkMemory{Left: left.real()}).Judge(mark{writer: 1, count: w.etcd.mark}.real()) == allocation.MarkLost {
			if !m.contradict(w, history{}) {
				return false
			}
		}
	}
	m.mark(w)
	return true
}

// mark leaves the next mark. Only equality of the three places that hold one matters: what etcd holds, what the snapshot
// holds, and what the coordinator remembers.
func (m *machine) mark(w *world) {
	next := uint8(1)
	if w.snapped && w.snapshot.mark == 1 {
		next = 2
	}
	w.etcd.mark, w.memory = next, next
}

// contradict freezes all under a new history.
func (m *machine) contradict(w *world, heard history) bool {
	if int(w.histories) >= m.Histories {
		return false
	}
	w.histories++
	s := w.etcd.standing.Contradict("", heard.real(), m.through(), fmt.Sprint("h", w.histories))
	w.etcd.standing = m.standings.keep(s)
	return true
}

func (w *world) history() history {
	h := w.etcd.standing.History
	var stamp uint8
	_, _ = fmt.Sscanf(h.Stamp, "h%d", &stamp)
	return history{uint8(h.Number), stamp}
}

// serve handles one call and answers it.
func (m *machine) serve(w *world, d int, c message) (a message, ok bool) {
	r := regionOf(d)
	if w.etcd.registered&(1<<r) == 0 || !m.begin(w) {
		return message{}, false
	}
	switch w.etcd.standing.History.Hear(c.history.real()) {
	case allocation.OtherHistory:
		if !m.contradict(w, c.history) {
			return message{}, false
		}
		return m.bare(w, c), true
	case allocation.OlderHistory:
		if !m.off(SameHistoryCounts) {
			return m.bare(w, c), true
		}
	case allocation.SameHistory:
	}
	if refusal, stop, ok := m.claim(w, r, c); !ok || stop {
		return refusal, ok
	}
	return m.believe(w, r, c)
}

// bare is an answer that says which history counts, and nothing else.
func (m *machine) bare(w *world, c message) message {
	return message{
		kind: answer, writer: c.writer, own: c.own, history: w.history(), incarnation: c.incarnation, asked: c.history,
		askedFor: c.incarnation, frozen: w.etcd.standing.Freeze != nil, known: w.etcd.registered,
	}
}

// claim judges who calls. stop says that the answer is all.
func (m *machine) claim(w *world, r int, c message) (a message, stop, ok bool) {
	rec := &w.etcd.regions[r]
	res := *rec.residence
	recorded := int(homeNumber(res.Home))
	inContact := w.dbs[recorded].on && w.nodes[recorded].on
	a = m.bare(w, c)
	switch res.Judge(incarnation(r, c.incarnation), homeOf(c.home), c.lost, inContact) {
	case allocation.ClaimFits:
	case allocation.ClaimMove:
		res = res.MoveTo(homeOf(c.home))
	case allocation.ClaimSecondHome:
		if !m.off(HomeRecorded) {
			a.refused = true
			return a, true, true
		}
	case allocation.ClaimFormer:
		if !m.off(FormerIgnored) {
			a.refused, a.incarnation = true, incarnationNumber(res.Incarnation)
			return a, true, true
		}
	case allocation.ClaimUnheard:
		return m.unheard(w, r, c)
	case allocation.ClaimNew:
		if int(w.incarnations[r]) >= m.Incarnations {
			return a, true, false
		}
		w.incarnations[r]++
		if !m.off(NoSpeakingFor) {
			w.etcd.standing = m.standings.keep(w.etcd.standing.Lose(allocation.Holder{Region: regionName(r), Incarnation: res.Incarnation}))
		}
		res = res.Replace(incarnation(r, w.incarnations[r]), homeOf(c.home))
		*rec = record{residence: m.residences.keep(res), known: rec.known}
		a.incarnation = w.incarnations[r]
		return a, true, true
	case allocation.ClaimAgain:
		a.incarnation = incarnationNumber(res.Incarnation)
		return a, true, true
	}
	rec.residence = m.residences.keep(res)
	if lost := allocation.LostMarks(realMarks(rec.marks), realMarks(c.marks), nil); len(lost) > 0 && !m.off(StatedMarks) {
		a.refused, a.contradicts = true, rec.marks
		return a, true, true
	}
	return a, false, true
}

// unheard is a call of an incarnation that etcd never gave out: etcd lost history. The owner is told to ask for another.
func (m *machine) unheard(w *world, r int, c message) (a message, stop, ok bool) {
	if w.etcd.standing.Freeze == nil {
		if !m.contradict(w, c.history) {
			return a, true, false
		}
	}
	rec := &w.etcd.regions[r]
	if !m.off(NoSpeakingFor) {
		w.etcd.standing = m.standings.keep(w.etcd.standing.Lose(allocation.Holder{Region: regionName(r), Incarnation: incarnation(r, c.incarnation)}))
	}
	rec.residence = m.residences.keep(rec.residence.Heard(incarnation(r, c.incarnation)))
	a = m.bare(w, c)
	a.refused, a.incarnation = true, incarnationNumber(rec.residence.Incarnation)
	return a, true, true
}

func homeNumber(h allocation.Home) uint8 {
	if h.Database == 0 {
		return 0
	}
	return uint8(h.Database - 1)
}

func incarnationNumber(name string) (n uint8) {
	if name != "" {
		_, _ = fmt.Sscanf(name[1:], "%d", &n)
	}
	return n
}

// believe takes what a fitting call says, and answers it.
func (m *machine) believe(w *world, r int, c message) (a message, ok bool) {
	rec := &w.etcd.regions[r]
	if !rec.residence.Confirmed && rec.residence.Incarnation == incarnation(r, c.incarnation) {
		res := *rec.residence
		res.Confirmed = true
		rec.residence = m.residences.keep(res)
		w.etcd.members++
	}
	h := allocation.Holder{Region: regionName(r), Incarnation: incarnation(r, c.incarnation)}
	if w.etcd.standing.Freeze != nil {
		a, ok = m.reconcile(w, r, h, c)
	} else {
		a, ok = m.count(w, r, h, c)
	}
	if !ok || a.kind != nothing {
		return a, ok
	}
	rec.marks = merge(rec.marks, c.marks)
	if c.known&^rec.known != 0 {
		rec.known |= c.known
		w.etcd.members++
	}
	a = m.bare(w, c)
	if w.etcd.standing.Freeze != nil {
		return a, true
	}
	m.bringOn(w)
	for t, l := range w.etcd.ledgers {
		if l != nil && l.Settled(*w.etcd.standing) {
			a.grants[t] = remember(m, [3]any{"grant", l, h}, func() *allocation.ShareGrant { return m.grants.keep(l.GrantTo(h)) })
		}
	}
	return a, true
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
