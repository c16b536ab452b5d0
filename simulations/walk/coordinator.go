package walk

import (
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
		w.waiting, w.confirmed = true, 0 // waits for all regions, under the history that etcd shows
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
	w.waiting = false
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
	lost := allocation.LostMarks(realMarks(rec.marks), realMarks(c.marks), nil)
	if len(lost) > 0 && !m.off(StatedMarks) && incarnation(r, c.incarnation) == res.Incarnation {
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
	if w.waiting {
		return m.confirm(w, r, c)
	}
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
