package coordinator

import (
	"context"
	"slices"

	"tranche/allocation"
)

// maxAskedWith is how many marks of the call that got an incarnation are kept.
const maxAskedWith = 64

// residence is what is recorded of the region's owner.
func (d RegionDocument) residence() allocation.Residence {
	return allocation.Residence{Incarnation: d.Incarnation, Home: d.Home, Confirmed: d.Confirmed, Former: d.Former, Sealing: d.Sealing}
}

// with is the document with another residence.
func (d RegionDocument) with(r allocation.Residence) RegionDocument {
	d.Incarnation, d.Home, d.Confirmed, d.Former, d.Sealing = r.Incarnation, r.Home, r.Confirmed, r.Former, r.Sealing
	return d
}

// settledWith takes the flag away that calls from this database raised: it is the recorded one from here on.
func (d RegionDocument) settledWith(home allocation.Home) RegionDocument {
	if c := d.Contradiction; c != nil && c.Home == home {
		d, _ = d.clear()
	}
	return d
}

// claimOf is what a call's incarnation and home come to. An incarnation that was given out in a line that was lost may have
// been named there: it is not given out again. Nor is it to a database that does not hold the marks that it was asked for with:
// that is a copy of the one that got it, or has lost history once more.
func (s *Service) claimOf(r *region, call allocation.SyncCall) allocation.Claim {
	d := r.doc.value
	claim := d.residence().Judge(call.Incarnation, call.Home, call.Lost, s.recordedCalls(r, call))
	if claim == allocation.ClaimAgain && (d.GivenUnder != s.state.descent().History || len(allocation.LostMarks(d.AskedWith, call.Marks, call.Ended)) > 0) {
		return allocation.ClaimNew
	}
	return claim
}

// overtaken says whether a call that asks for a new incarnation was made before its database had the present one, and is
// late. A database that truly lost its history shows marks that were never stated as soon as a node has written to it.
func overtaken(r *region, call allocation.SyncCall) bool {
	d := r.doc.value
	if call.Home != d.Home || !d.Confirmed || r.contact.Incarnation != d.Incarnation || len(r.contact.Marks) == 0 {
		return false
	}
	if call.Incarnation == "" {
		return !wentOn(r.contact, call)
	}
	earlier := func(m allocation.Mark) bool {
		return slices.ContainsFunc(d.AskedWith, func(asked allocation.Mark) bool { return m.Holds(asked) })
	}
	return call.Incarnation != d.Incarnation && len(d.AskedWith) > 0 && !slices.ContainsFunc(call.Marks, func(m allocation.Mark) bool { return !earlier(m) })
}

// besideItself says whether a call that asks for a new incarnation comes from one of two databases with one home, a copy and
// its original: its incarnation was replaced, and the one that took its place called a moment ago. Were it given another one,
// each of the two would take the other's away for as long as both call, and strand what it had got each time.
func (s *Service) besideItself(r *region, call allocation.SyncCall) bool {
	d := r.doc.value
	return call.Lost && call.Incarnation != "" && call.Incarnation != d.Incarnation && d.Confirmed && call.Home == d.Home &&
		r.contact.Incarnation == d.Incarnation && r.inContact(s.now(), wentOverQuiet)
}

// giveIncarnation records a new incarnation and its home, in one transaction; the one before it, if there was one, is
// former from then on, and what it was granted stays out. One that was given out and never named may be given out again,
// to the same database: nothing was granted to it, and no share was ever told.
func (s *Service) giveIncarnation(ctx context.Context, from string, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	err := s.inTurn(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", call.Region)
		}
		if v := s.judge(r, call); v.refusal != "" || v.err != nil || v.claim != allocation.ClaimNew {
			return Change{}, nil // another call was first, and the next one finds out whose it is
		}
		return s.replaceChange(nodeOf(call, from), r, call)
	})
	if err != nil {
		return allocation.SyncAnswer{}, err
	}
	s.nudgeBackground()
	if v := s.hear(call, s.now()); v.refusal != "" {
		return s.refuse(ctx, from, call, v)
	}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	answer := s.baseAnswer(s.state.regions[call.Region])
	answer.More = true
	return answer, nil
}

// replaceChange gives the region a new incarnation, which holds nothing. While all is frozen nobody can state any more what
// the one before held: it is lost, and what is not proven to be elsewhere is counted as its own.
func (s *Service) replaceChange(who actor, r *region, call allocation.SyncCall) (Change, error) {
	before, verb := r.doc.value, "region.incarnation"
	next := before.with(before.residence().Replace(s.random.hex(8), call.Home)).settledWith(call.Home)
	next.GivenUnder, next.AskedWith = s.state.descent().History, nil
	if len(call.Marks) <= maxAskedWith {
		next.AskedWith = call.Marks
	}
	if before.Incarnation == "" {
		change := Change{Reads: []Item{r.doc.item}, Puts: []Item{put(regionKey(r.name), next), s.auditLine(who, verb, r.name, before, next)}}
		s.state.onStanding(&change)
		return change, nil
	}
	verb = "region.replaced"
	s.log.Warn("region lost its history: it gets a new incarnation, which holds nothing", "region", r.name, "former", before.Incarnation, "incarnation", next.Incarnation)
	change, err := s.membersChange(who, verb, r, next)
	if err != nil {
		return Change{}, err
	}
	s.state.onStanding(&change)
	standing := s.state.standing.value
	standing.Standing = standing.Replace(allocation.Holder{Region: r.name, Incarnation: before.Incarnation}, s.instant())
	change.Puts = append(change.Puts, put(historyKey, standing))
	return change, nil
}

// move records that the incarnation lives in another home, before anything else of the call counts: its database holds
// every mark that was ever stated, and the recorded home is silent.
func (s *Service) move(ctx context.Context, from string, call allocation.SyncCall) error {
	return s.act(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", call.Region)
		}
		if v := s.judge(r, call); v.refusal != "" || v.err != nil || v.claim != allocation.ClaimMove {
			return Change{}, nil
		}
		next := r.doc.value.with(r.doc.value.residence().MoveTo(call.Home)).settledWith(call.Home)
		s.log.Warn("region lives in another database now, which holds all marks", "region", r.name, "home", homeText(call.Home))
		return Change{
			Reads: []Item{r.doc.item},
			Puts:  []Item{put(regionKey(r.name), next), s.auditLine(nodeOf(call, from), "region.moved", r.name, r.doc.value.Home, call.Home)},
		}, nil
	})
}

// confirm records that the owner has stored its incarnation. From here on it is a member, and the ledgers grant to it.
func (s *Service) confirm(ctx context.Context, from string, call allocation.SyncCall) error {
	err := s.inTurn(ctx, func() (Change, error) {
		r := s.state.regions[call.Region]
		if r == nil || r.doc == nil || r.doc.value.Incarnation != call.Incarnation {
			return Change{}, refused("call again", "the region's incarnation has changed meanwhile")
		}
		if r.doc.value.Confirmed {
			return Change{}, nil
		}
		next := r.doc.value
		next.Confirmed = true
		return s.membersChange(nodeOf(call, from), "region.join", r, next)
	})
	s.nudgeBackground()
	return err
}
