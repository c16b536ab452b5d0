package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// verdict is what is thought of a call before anything of it counts.
type verdict struct {
	err          error  // the call is wrong, or comes too early
	refusal      string // a Reason
	kind         string // of the contradiction
	detail       string
	contradicted []allocation.Mark // that were stated before and are not held any more
	newcomer     bool              // it asks for an incarnation
	confirmed    bool              // the incarnation was named before
	cleared      bool              // the region was flagged before, and this call clears it
}

func verdictOf(kind, format string, args ...any) verdict {
	return verdict{refusal: string(allocation.HistoryLost), kind: kind, detail: fmt.Sprintf(format, args...)}
}

func contradicted(err error) bool { return errors.Is(err, allocation.ErrContradicted) }

// hear judges a call and, if it fits what is known, remembers the contact. Both are one step: two calls of which one
// overtook the other must be judged against each other.
func (s *Service) hear(call allocation.SyncCall, arrived time.Time) verdict {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.deployment == nil {
		return verdict{err: errStarting}
	}
	if call.Deployment != s.state.deployment.value.ID {
		return verdict{err: errNoDeployment}
	}
	r := s.state.regions[call.Region]
	if r == nil || r.doc == nil {
		return verdict{err: notFound("region", call.Region)}
	}
	v := s.judge(r, call)
	if v.refusal != "" {
		return v
	}
	v.confirmed, v.cleared = r.doc.value.Confirmed, r.doc.value.fitsAgain(arrived)
	if !v.newcomer {
		r.measure(time.UnixMicro(call.Clock), arrived)
		r.contact = mergeContacts(contactOf(r.contact, call, arrived), r.contact)
		for _, k := range call.Known {
			r.acknowledge(s.state, k)
		}
	}
	return v
}

// judge looks for a contradiction between the call and what is known. What it knows may be old: the caller refreshes it
// before it believes a refusal.
func (s *Service) judge(r *region, call allocation.SyncCall) verdict {
	d, dep := r.doc.value, s.state.deployment.value
	switch {
	case call.History != (allocation.History{}) && call.History != dep.History:
		return verdictOf(contradictsHistory, "the owner has stored history %d·%s of etcd, and this is %d·%s: etcd was restored or replaced",
			call.History.Number, call.History.Stamp, dep.History.Number, dep.History.Stamp)
	case call.Config > dep.Config:
		return verdictOf(contradictsConfig, "the owner has stored configuration %d, and etcd has %d: etcd lost its latest changes", call.Config, dep.Config)
	case call.Incarnation == "" && d.Incarnation == "":
		return verdict{newcomer: true}
	case call.Incarnation == "" && !d.Confirmed && call.Home == d.Home:
		return verdict{newcomer: true} // the first answer was lost
	case call.Incarnation == "":
		return s.judgeNameless(r, call)
	case call.Incarnation != d.Incarnation:
		return verdictOf(contradictsIncarnation, "the call comes from incarnation %s in %s, and the present one of %s is %s in %s",
			call.Incarnation, homeText(call.Home), r.name, orNone(d.Incarnation), homeText(d.Home))
	case call.Home != d.Home:
		return verdictOf(contradictsHome, "incarnation %s is recorded to live in %s, and this call comes from %s: it was failed over, restored or copied",
			d.Incarnation, homeText(d.Home), homeText(call.Home))
	}
	if lost := lostMarks(r.contact, call); len(lost) > 0 {
		v := verdictOf(contradictsMarks, "writer %s had left mark %d, and the database does not show it any more: it lost commits (%d writers)",
			lost[0].Writer, lost[0].Count, len(lost))
		v.contradicted = lost
		return v
	}
	return s.judgeShares(r, call)
}

// judgeNameless judges a call that names no incarnation, of a region that is known by one. From the recorded home it may
// have been made before the owner had it, by another node, and be late: an owner that still holds all marks that it ever
// stated can tell. While none are known here, nobody can.
func (s *Service) judgeNameless(r *region, call allocation.SyncCall) verdict {
	d := r.doc.value
	marks := r.contact.Marks
	if r.contact.Incarnation != d.Incarnation {
		marks = nil
	}
	if call.Home == d.Home && len(marks) == 0 {
		return verdict{err: refused("call again", "the region has an incarnation, and this call was made before its database stored it")}
	}
	v := verdictOf(contradictsEmpty, "region %s is known as incarnation %s in %s, and this call comes from a database that has none, %s: an empty database took its place",
		r.name, d.Incarnation, homeText(d.Home), homeText(call.Home))
	if call.Home == d.Home {
		v.contradicted = marks
	}
	return v
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func homeText(h allocation.Home) string {
	return fmt.Sprintf("database %d of system %s, timeline %d", h.Database, h.System, h.Timeline)
}

// lostMarks are the marks stated before that the owner does not hold any more. A writer that the call names as ended, or
// that is known to have ended, left on its own.
func lostMarks(c Contact, call allocation.SyncCall) []allocation.Mark {
	if c.Incarnation != call.Incarnation {
		return nil
	}
	now := make(map[string]allocation.Mark, len(call.Marks))
	for _, m := range call.Marks {
		now[m.Writer] = m
	}
	var lost []allocation.Mark
	for _, before := range c.Marks {
		if m, ok := now[before.Writer]; ok && before.Holds(m) || !ok && slices.Contains(call.Ended, before.Writer) {
			continue
		}
		lost = append(lost, before)
	}
	return lost
}

// judgeShares looks for a stated generation that its ledger never had, and for a term that was never opened.
func (s *Service) judgeShares(r *region, call allocation.SyncCall) verdict {
	check := func(budget string, term allocation.Instant, g allocation.Generation) *verdict {
		ref := allocation.ShareRef{Budget: budget, Term: term}
		l := s.state.ledgers[ref]
		switch {
		case l == nil && !s.state.isClosed(ref):
			v := verdictOf(contradictsTerm, "the owner has a share of %s for the term of %s, which was never opened here: etcd lost it", budget, term)
			return &v
		case l != nil && l.value.Contradicts(g):
			v := verdictOf(contradictsGeneration, "the owner has generation %s of %s, term of %s, and the ledger is at %s", g, budget, term, l.value.Generation)
			return &v
		}
		return nil
	}
	for _, st := range call.Statements {
		for _, sh := range st.Shares {
			if v := check(sh.Budget, sh.Term, sh.Generation); v != nil {
				return *v
			}
		}
	}
	for _, k := range call.Known {
		if v := check(k.Budget, k.Term, k.Generation); v != nil {
			return *v
		}
	}
	return verdict{}
}

// acknowledge notes that the owner has stored a generation of a share, without an account of it.
func (r *region) acknowledge(s *state, k allocation.ShareAck) {
	ref := allocation.ShareRef{Budget: k.Budget, Term: k.Term}
	if l := s.ledgers[ref]; l != nil && k.Generation.Number >= r.stated[ref].Number {
		r.stated[ref] = k.Generation
		r.want(ref, l.value)
	}
}

// contactOf is what one call says of the region.
func contactOf(before Contact, call allocation.SyncCall, arrived time.Time) Contact {
	heard := before.Heard + 1
	if before.Incarnation != call.Incarnation {
		before = Contact{}
	}
	c := Contact{
		Format: documentFormat, Region: call.Region, Incarnation: call.Incarnation, Heard: heard, At: arrived.UTC(),
		SkewMicros: call.Clock - arrived.UnixMicro(), ClosedBefore: call.ClosedBefore, Config: call.Config, History: call.History, Marks: call.Marks,
		Stopped: call.Stopped, OpenReservations: call.OpenReservations, OldestReservation: call.OldestReservation,
	}
	c.Marks = mergeMarks(before.Marks, call.Marks, before.Ended)
	if call.Node != "" {
		c.Nodes = []NodeSeen{{Node: call.Node, URL: call.NodeURL, Version: call.Version, At: arrived.UTC()}}
	}
	return c
}

// refuse answers a call that contradicts, and flags the region: see contradictions.go. One that was overtaken by a later
// call looks the same here, and the owner can tell by the marks in the answer.
func (s *Service) refuse(ctx context.Context, from string, call allocation.SyncCall, v verdict) (allocation.SyncAnswer, error) {
	s.metrics.refusals.Inc()
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", call.Region)
		}
		found := contradictionOf(r, call, v, s.now())
		next, write, audit := r.doc.value.contradict(found)
		if !write {
			return Change{}, nil
		}
		change := Change{Reads: []Item{r.doc.item}, Puts: []Item{put(regionKey(r.name), next)}}
		if audit {
			change.Puts = append(change.Puts, s.auditLine(nodeOf(call, from), "region.contradicted", r.name, nil, found))
		}
		return change, nil
	})
	if err != nil {
		return allocation.SyncAnswer{}, err
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	a := s.baseAnswer(s.state.regions[call.Region])
	a.Refusal, a.Detail, a.Contradicted = v.refusal, v.detail, v.contradicted
	a.Config = min(call.Config, s.state.deployment.value.Config)
	return a, nil
}

// unflag notes that a region's calls fit again.
func (s *Service) unflag(ctx context.Context, name string) error {
	return s.act(ctx, func() (Change, error) {
		r := s.state.regions[name]
		if r == nil || r.doc == nil || !r.doc.value.fitsAgain(s.now()) {
			return Change{}, nil
		}
		next, audit := r.doc.value.clear()
		change := Change{Reads: []Item{r.doc.item}, Puts: []Item{put(regionKey(r.name), next)}}
		if audit {
			change.Puts = append(change.Puts, s.auditLine(background, "region.fits", name, r.doc.value.Contradiction, nil))
		}
		return change, nil
	})
}
