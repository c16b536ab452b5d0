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
	err          error              // the call is wrong, or comes too early
	older        bool               // it was said before the region knew the present history: nothing of it counts
	etcdLost     bool               // it knows what etcd never had
	under        allocation.History // that it was judged under
	claim        allocation.Claim   // what its incarnation and home come to
	refusal      string             // a Reason
	kind         string             // of the contradiction
	detail       string
	contradicted []allocation.Mark // that were stated before and are not held any more
	confirmed    bool              // the incarnation was named before
	cleared      bool              // the region was flagged before, and this call clears it
}

func verdictOf(kind, format string, args ...any) verdict {
	return verdict{refusal: string(allocation.HistoryLost), kind: kind, detail: fmt.Sprintf(format, args...)}
}

// etcdLostOf is the verdict on a call by which it is etcd that lost history, and not the region.
func etcdLostOf(kind, format string, args ...any) verdict {
	v := verdictOf(kind, format, args...)
	v.etcdLost = true
	return v
}

func contradicted(err error) bool { return errors.Is(err, allocation.ErrContradicted) }

// hear judges a call and, if it fits what is known, remembers the contact. Both are one step: two calls of which one
// overtook the other must be judged against each other.
func (s *Service) hear(call allocation.SyncCall, arrived time.Time) verdict {
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	if s.state.deployment == nil || s.state.standing == nil {
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
	v.under = s.state.descent().History
	if v.refusal != "" || v.err != nil || v.older {
		return v
	}
	v.confirmed, v.cleared = r.doc.value.Confirmed, r.doc.value.fitsAgain(arrived)
	if v.claim == allocation.ClaimFits {
		r.measure(time.UnixMicro(call.Clock), arrived)
		r.contact = mergeContacts(contactOf(r.contact, call, arrived), r.contact)
		s.state.noteReached(r)
		for _, k := range call.Known {
			if !call.Starting {
				r.acknowledge(s.state, k)
			}
		}
	}
	return v
}

// judge looks for a contradiction between the call and what is known. What it knows may be old: the caller refreshes it
// before it believes a refusal. A region that has never stored a history has said nothing under another one.
func (s *Service) judge(r *region, call allocation.SyncCall) verdict {
	standing := s.state.descent()
	switch standing.History.Hear(call.History) {
	case allocation.OtherHistory:
		return etcdLostOf(contradictsHistory, "the owner has stored history %s of etcd, and this is %s: etcd was restored or replaced", call.History, standing.History)
	case allocation.OlderHistory:
		if call.History != (allocation.History{}) || call.Incarnation != "" {
			return verdict{older: true}
		}
	case allocation.SameHistory:
	}
	if v := s.judgeClaim(r, call); v.refusal != "" || v.claim != allocation.ClaimFits {
		return v
	}
	if standing.Freeze != nil {
		return verdict{} // what it states goes into the ledgers, whatever they hold
	}
	if config, theirs := s.state.deployment.value.Config, max(call.Config, call.DocumentsThrough); theirs > config {
		return etcdLostOf(contradictsConfig, "the owner has stored configuration %d, and etcd has %d: etcd lost its latest changes", theirs, config)
	}
	return s.judgeShares(call)
}

// judgeClaim judges who calls: see allocation.Residence. A database that takes the place of the recorded one gets an
// incarnation of its own, with nothing; one beside it is refused.
func (s *Service) judgeClaim(r *region, call allocation.SyncCall) verdict {
	d := r.doc.value
	v := verdict{claim: s.claimOf(r, call)}
	if d.lateFromLeft(v.claim, call) {
		v.err = refused("call again", "this database of region %s was handed over to %s for good", r.name, homeText(d.Home))
		return v
	}
	switch v.claim {
	case allocation.ClaimNew:
		if call.Incarnation == "" && d.Confirmed && call.Home == d.Home && (r.contact.Incarnation != d.Incarnation || len(r.contact.Marks) == 0) {
			if s.emptiedForLong(r, call) {
				return v
			}
			v.err = refused("call again", "the region has an incarnation, and this call may have been made before its database stored it")
		} else if overtaken(r, call) {
			v = verdictOf(contradictsEmpty, "region %s is known as incarnation %s, and this call was made before its database stored it, or that database lost its history", r.name, d.Incarnation)
			v.claim, v.contradicted = allocation.ClaimNew, r.contact.Marks
		} else if s.besideItself(r, call) {
			v = verdictOf(contradictsHome, "incarnation %s, which was replaced, asks for a new one from %s, where the present one, %s, lives and called a moment ago: one of the two databases is a copy of the other; stop it",
				call.Incarnation, homeText(call.Home), d.Incarnation)
			v.claim = allocation.ClaimSecondHome
		}
	case allocation.ClaimUnheard:
		v = etcdLostOf(contradictsIncarnation, "the call comes from incarnation %s in %s, which was never given out here, and the present one of %s is %s in %s",
			call.Incarnation, homeText(call.Home), r.name, orNone(d.Incarnation), homeText(d.Home))
		v.claim = allocation.ClaimUnheard
	case allocation.ClaimFormer:
		v = verdictOf(contradictsIncarnation, "the call comes from incarnation %s, which was replaced; the present one of %s is %s in %s",
			call.Incarnation, r.name, orNone(d.Incarnation), homeText(d.Home))
		v.claim = allocation.ClaimFormer
	case allocation.ClaimSecondHome:
		v = verdictOf(contradictsHome, "incarnation %s lives in %s, which called a moment ago, and this call comes from %s: a second database of the region, or a copy",
			orNone(d.Incarnation), homeText(d.Home), homeText(call.Home))
		v.claim = allocation.ClaimSecondHome
	case allocation.ClaimFits, allocation.ClaimMove:
		if lost := lostMarks(r.contact, call); len(lost) > 0 {
			claim := v.claim
			v = verdictOf(contradictsMarks, "writer %s had left mark %d, and the database does not show it any more: it lost commits (%d writers)",
				lost[0].Writer, lost[0].Count, len(lost))
			v.claim, v.contradicted = claim, lost
		}
	case allocation.ClaimAgain:
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
func (s *Service) judgeShares(call allocation.SyncCall) verdict {
	check := func(budget string, term allocation.Instant, g allocation.Generation) *verdict {
		ref := allocation.ShareRef{Budget: budget, Term: term}
		l := s.state.ledgers[ref]
		switch {
		case l == nil && !s.state.isClosed(ref):
			v := etcdLostOf(contradictsTerm, "the owner has a share of %s for the term of %s, which was never opened here: etcd lost it", budget, term)
			return &v
		case l != nil && l.value.Contradicts(g):
			v := etcdLostOf(contradictsGeneration, "the owner has generation %s of %s, term of %s, and the ledger is at %s", g, budget, term, l.value.Generation)
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
		r.want(s, ref, l.value)
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
		Documents: call.DocumentsThrough, Regions: call.Regions,
		Stopped: call.Stopped, OpenReservations: call.OpenReservations, OldestReservation: call.OldestReservation,
	}
	c.Marks = mergeMarks(before.Marks, call.Marks, before.Ended)
	if call.Node != "" {
		c.Nodes = []NodeSeen{{Node: call.Node, URL: call.NodeURL, Version: call.Version, Shadow: call.Shadow, At: arrived.UTC()}}
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
	if v.claim == allocation.ClaimFormer {
		a.Incarnation = "" // the recorded one may be a former one to the caller's database: see unheard
	}
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
