package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tranche/allocation"
)

// SealRequest ends a region's present incarnation, in two steps that each may be repeated. Without a seal it only ends it:
// from then on nobody is vouched for as that incarnation. Then its database is sealed and read, and the seal is sent: what
// it proves to be neither spent nor reserved is returned.
type SealRequest struct {
	Reason string           `json:"reason"`
	By     string           `json:"by"` // the person who answers for it
	Seal   *allocation.Seal `json:"seal,omitempty"`
}

// SealAnswer says which incarnation is sealed, and in which database the seal must be read.
type SealAnswer struct {
	Region      string          `json:"region"`
	Incarnation string          `json:"incarnation"` // that was ended
	Home        allocation.Home `json:"home"`        // where it lived
	Ledgers     int             `json:"ledgers"`     // that the seal changed
}

// seal does one step of a seal.
func (s *Service) seal(ctx context.Context, who actor, name string, q SealRequest) (SealAnswer, error) {
	if err := checkReason(q.Reason, q.By, false); err != nil {
		return SealAnswer{}, err
	}
	who.reason = q.Reason
	if q.Seal == nil {
		return s.endIncarnation(ctx, who, name, q)
	}
	return s.countSeal(ctx, who, name, q)
}

// endIncarnation records that the incarnation has ended, before its database is sealed. A seal that was made first could
// be read, the database restored to before it, and its nodes go on with what the seal proves to be returned.
func (s *Service) endIncarnation(ctx context.Context, who actor, name string, q SealRequest) (answer SealAnswer, err error) {
	err = s.inTurn(ctx, func() (Change, error) {
		r := s.state.regions[name]
		switch {
		case r == nil || r.doc == nil:
			return Change{}, notFound("region", name)
		case s.state.frozen():
			return Change{}, errFrozenNow()
		}
		d := r.doc.value
		if d.Handover != nil && d.Incarnation != "" {
			return Change{}, errHandingOver(name)
		}
		if d.Incarnation == "" && d.Sealing == "" {
			return Change{}, refused("", "region %s has no incarnation: there is nothing to seal", name)
		}
		next := d
		if d.Incarnation != "" {
			next = d.with(d.residence().End())
		}
		answer = SealAnswer{Region: name, Incarnation: next.Sealing, Home: next.Home}
		if d.Incarnation == "" {
			return Change{}, nil // it was ended before
		}
		change, err := s.membersChange(who, "region.end", r, next)
		change.Puts = append(change.Puts, s.auditLine(who, "region.seal", name, nil, map[string]any{"reason": q.Reason, "by": q.By, "incarnation": next.Sealing}))
		s.state.onStanding(&change)
		return change, err
	})
	s.nudgeBackground()
	return answer, err
}

func errFrozenNow() error {
	return refused("wait until every region has stated: `tranche status` says which are missing", "%s", allocation.ErrFrozen.Error())
}

// countSeal counts what a seal proves, some ledgers at a time. Repeating it changes nothing, or counts what ended since.
func (s *Service) countSeal(ctx context.Context, who actor, name string, q SealRequest) (SealAnswer, error) {
	answer := SealAnswer{Region: name, Incarnation: q.Seal.Incarnation, Home: q.Seal.Home}
	if q.Seal.Region != name {
		return answer, invalid("seal.region", fmt.Sprintf("is %.70q", q.Seal.Region), "send the seal of region "+name)
	}
	parts := slices.Collect(slices.Chunk(q.Seal.Shares, maxCountsPerTxn))
	if len(parts) == 0 {
		parts = append(parts, nil) // it holds nothing, and is sealed all the same
	}
	for _, part := range parts {
		counted := 0
		err := s.act(ctx, func() (change Change, err error) {
			change, counted, err = s.sealPart(who, name, q, part)
			return change, err
		})
		if err != nil {
			return answer, err
		}
		answer.Ledgers += counted
	}
	if err := s.enterSealed(ctx, *q.Seal); err != nil {
		return answer, err
	}
	s.nudgeBackground()
	return answer, nil
}

func (s *Service) sealPart(who actor, name string, q SealRequest, part []allocation.SealedShare) (change Change, counted int, err error) {
	r := s.state.regions[name]
	switch {
	case r == nil || r.doc == nil:
		return Change{}, 0, notFound("region", name)
	case s.state.frozen():
		return Change{}, 0, errFrozenNow()
	case r.contact.Incarnation != q.Seal.Incarnation:
		return Change{}, 0, refused("", "the marks of incarnation %s are not known any more: %s", orNone(q.Seal.Incarnation), allocation.ErrNoProof)
	}
	if err := q.Seal.Proves(r.doc.value.residence(), r.contact.Marks); err != nil {
		return Change{}, 0, refused("end the incarnation first, then seal and read its recorded home", "%s", err.Error())
	}
	change.Reads = append(change.Reads, r.doc.item)
	for _, sh := range part {
		ref := allocation.ShareRef{Budget: sh.Share.Budget, Term: sh.Share.Term()}
		l := s.state.ledgers[ref]
		if l == nil && s.state.isClosed(ref) {
			continue
		}
		if l == nil {
			return Change{}, 0, refused("", "the seal holds a term of %s that was never opened here: etcd or that database lost history", ref.Budget)
		}
		next, changed, err := s.sealShare(q.Seal.Holder, l.value, sh)
		if err != nil {
			return Change{}, 0, refused("", "%s", err.Error())
		}
		if changed {
			s.state.addLedger(&change, ledgerWrite{before: l, after: next})
			counted++
		}
	}
	if counted > 0 || len(q.Seal.Shares) == 0 {
		change.Puts = append(change.Puts, s.auditLine(who, "region.sealed", name, nil,
			map[string]any{"reason": q.Reason, "by": q.By, "incarnation": q.Seal.Incarnation, "ledgers": counted}))
	}
	return change, counted, nil
}

func (s *Service) sealShare(h allocation.Holder, l allocation.Ledger, sh allocation.SealedShare) (allocation.Ledger, bool, error) {
	before, err := s.settled(l)
	if err != nil {
		return l, false, err
	}
	next, changed, err := before.CountSeal(h, sh, s.generation(before))
	if err == nil && changed && len(encode(next)) > maxLedgerBytes {
		err = errors.New("the ledger would be too large: try again when the runs of periods that differ are over")
	}
	return next, changed, err
}

// AdoptRequest declares that another database is the region's owner, although the recorded one called lately: that nothing
// acknowledged is missing in it, and that the old one can never commit again. Its marks must be in place all the same.
type AdoptRequest struct {
	Reason string           `json:"reason"`
	By     string           `json:"by"`             // the person who answers for it
	Home   *allocation.Home `json:"home,omitempty"` // absent: the one whose calls are refused as a second database
}

// adoptFailover records the declared home. The database's next call is served from there, if it shows every mark.
func (s *Service) adoptFailover(ctx context.Context, who actor, name string, q AdoptRequest) (RegionAnswer, error) {
	if err := checkReason(q.Reason, q.By, false); err != nil {
		return RegionAnswer{}, err
	}
	who.reason = q.Reason
	err := s.act(ctx, func() (Change, error) {
		r := s.state.regions[name]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", name)
		}
		d, home := r.doc.value, q.Home
		if c := d.Contradiction; home == nil && c != nil && c.Kind == contradictsHome {
			home = &c.Home
		}
		switch {
		case home == nil:
			return Change{}, refused("start its nodes, so that they call; or name its home", "no second database calls for region %s", name)
		case d.Incarnation == "":
			return Change{}, refused("", "region %s has no incarnation that could move", name)
		case *home == d.Home:
			return Change{}, nil
		}
		next, _ := d.with(d.residence().MoveTo(*home)).clear()
		return Change{
			Reads: []Item{r.doc.item},
			Puts: []Item{put(regionKey(name), next), s.auditLine(who, "region.adopt-failover", name, d.Home,
				map[string]any{"reason": q.Reason, "by": q.By, "declared": "nothing acknowledged is missing, and the old primary can never commit again", "home": *home})},
		}, nil
	})
	if err != nil {
		return RegionAnswer{}, err
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	return s.answerRegion(s.state.regions[name]), nil
}
