package coordinator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
)

// A region is removed when nobody can miss what it holds: it is empty, or what it holds is written off.
//
//	registered ──drain──▶ draining ──it has returned and stated all──▶ empty ──remove──▶ removed ──register──▶ registered
//	                          └──it is gone──▶ stranded ──write off──────────────┘
//
// Its document stays, with the names of its incarnations. The ledgers keep what it was granted and has not returned: that
// stays out to each period's end. Its nodes, if there are any, are not heard any more, and go on with what they hold until
// their terms are over: the cap holds, whatever they do.

// maxBlocked bounds what an answer lists of the reasons why a region cannot be removed.
const maxBlocked = 20

// RemoveRequest says who answers for the removal of a region.
type RemoveRequest struct {
	Reason string `json:"reason"`
	By     string `json:"by"`
}

// RemovedRegion is one that was removed, and whose name was not registered again.
type RemovedRegion struct {
	Region string `json:"region"`
	Removal
}

// RemoveAnswer is a removal, or, with DryRun, what it would be.
type RemoveAnswer struct {
	Region     string             `json:"region"`
	DryRun     bool               `json:"dry_run,omitempty"`
	Removed    *Removal           `json:"removed,omitempty"`
	Blocked    []string           `json:"blocked,omitempty"` // why it cannot be removed now
	More       int                `json:"more_blocked,omitempty"`
	WrittenOff map[string]int64   `json:"written_off,omitempty"` // by unit, that stays out in the running periods
	Through    allocation.Instant `json:"through,omitempty"`     // the end of the last period in which something stays out
	Notes      []string           `json:"notes"`
}

func (a *RemoveAnswer) block(format string, args ...any) {
	if len(a.Blocked) == maxBlocked {
		a.More++
		return
	}
	a.Blocked = append(a.Blocked, fmt.Sprintf(format, args...))
}

// tombOf is the document of a region that was removed; nil: it was not.
func (s *state) tombOf(name string) *doc[RegionDocument] {
	if r := s.regions[name]; r != nil {
		return r.tomb
	}
	return nil
}

// removeRegion takes a region out for good. What it holds is looked at before the act: a draining region is given nothing,
// so it can only become emptier meanwhile.
func (s *Service) removeRegion(ctx context.Context, who actor, name string, q RemoveRequest, dry bool) (RemoveAnswer, error) {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return RemoveAnswer{}, err
	}
	who.reason = q.Reason
	if err := s.refresh(ctx); err != nil {
		return RemoveAnswer{}, err
	}
	holdings, err := s.holdingsOf(name)
	if err != nil {
		return RemoveAnswer{}, err
	}
	var answer RemoveAnswer
	act := s.inTurn
	if dry {
		act = s.act
	}
	err = act(ctx, func() (Change, error) {
		r := s.state.regions[name]
		if r == nil || r.doc == nil {
			return Change{}, notFound("region", name)
		}
		answer = holdings
		answer.Blocked = slices.Clone(holdings.Blocked)
		s.blockRemoval(&answer, r)
		answer.DryRun = dry
		if dry {
			return Change{}, nil
		}
		if len(answer.Blocked) > 0 {
			return Change{}, refused("`tranche regions remove "+name+"` previews it, and lists all that stands in the way", "region %s cannot be removed: %s", name, strings.Join(answer.Blocked[:min(3, len(answer.Blocked))], "; "))
		}
		next := r.doc.value.with(r.doc.value.residence().Replace("", allocation.Home{}))
		next.Handover = nil
		next.Removed = &Removal{At: s.now().UTC(), By: q.By, Reason: q.Reason}
		answer.Removed = next.Removed
		change, err := s.membersChange(who, "region.remove", r, next)
		if err != nil {
			return Change{}, err
		}
		s.state.onStanding(&change)
		if token := s.state.tokens[regionToken(name)]; token != nil {
			change.Reads, change.Deletes = append(change.Reads, token.item), append(change.Deletes, token.item.Key)
		}
		return change, nil
	})
	if err == nil && !dry {
		s.log.Warn("region is removed", "region", name, "by", q.By)
		s.nudgeBackground()
	}
	return answer, err
}

// blockRemoval adds what stands in the way beside what the region holds.
func (s *Service) blockRemoval(a *RemoveAnswer, r *region) {
	d := r.doc.value
	if s.state.frozen() {
		a.block("etcd's history is frozen, and waits for what regions hold: `tranche ledgers recover`")
	}
	if d.Incarnation == "" && len(d.Former) == 0 {
		a.Notes = append(a.Notes, "it has never called, and holds nothing")
	} else if !d.Draining {
		a.block("it takes part: drain it first, `tranche regions drain %s`", r.name)
	}
	var naming []string
	for _, name := range s.state.names {
		if b := s.state.budgets[name].value; !b.Deleted && namesRegion(b.Budget.Allocation, r.name) {
			naming = append(naming, name)
		}
	}
	if len(naming) > 0 {
		a.block("%d budgets name it in their allocation: change %s", len(naming), strings.Join(naming[:min(5, len(naming))], ", "))
	}
	if h := d.Handover; h != nil {
		a.Notes = append(a.Notes, fmt.Sprintf("its owner was stopped for a handover, by %s: `tranche regions handover %s --cancel --from-url URL` lets that database go on, also afterwards", h.By, r.name))
	}
	a.Notes = append(a.Notes,
		"its token ends; the name may be registered again with another token, and an old database that calls then begins anew, with nothing",
		"stop its nodes: they are not heard any more, and go on with what they hold until their terms are over")
}

func namesRegion(p allocation.Policy, region string) bool {
	for _, m := range []map[string]int64{p.Weights, p.Min, p.Max} {
		if _, named := m[region]; named {
			return true
		}
	}
	return p.Region == region
}

// holdingsOf looks at all that the region's incarnations hold, budget by budget, some at a time.
func (s *Service) holdingsOf(name string) (RemoveAnswer, error) {
	a, at := RemoveAnswer{Region: name, WrittenOff: map[string]int64{}, Notes: []string{}}, s.now()
	s.state.mu.Lock()
	r := s.state.regions[name]
	if r == nil || r.doc == nil {
		s.state.mu.Unlock()
		return a, notFound("region", name)
	}
	h, _ := r.holder()
	called := s.canBeAsked(h, at)
	if called && (r.queue.len() > 0 || s.state.countBehind(s.instant()) > 0) {
		a.block("it has yet to state %d shares, or ledgers follow a change: wait a moment", r.queue.len())
	}
	if called && r.contact.OpenReservations > 0 {
		a.block("%d reservations are open: they are settled, released, or lapse", r.contact.OpenReservations)
	}
	budgets := slices.Sorted(maps.Keys(s.state.terms))
	s.state.mu.Unlock()
	for part := range slices.Chunk(budgets, strandedAtOnce) {
		s.state.mu.Lock()
		for _, budget := range part {
			s.holdingOf(&a, r, budget, called, at)
		}
		s.state.mu.Unlock()
	}
	return a, nil
}

// holdingOf adds one budget.
func (s *Service) holdingOf(a *RemoveAnswer, r *region, budget string, called bool, at time.Time) {
	now := allocation.At(at)
	for _, l := range s.state.terms[budget] {
		for _, h := range holders(l.value) {
			if current, _ := r.holder(); called && h == current && l.value.Periods.End() <= now && !r.over(h, l.value.Periods.End(), s.state.descent().History) {
				a.block("it has yet to state the end of %s, term of %s: wait a moment", budget, l.value.Periods.Start())
			}
		}
	}
	for _, line := range s.linesOf(budget, at, func(l allocation.Ledger) (own []allocation.Holder) {
		for _, h := range holders(l) {
			if h.Region == r.name {
				own = append(own, h)
			}
		}
		return own
	}) {
		if !line.holdsSomething() {
			continue
		}
		line = s.withRecord(line, at)
		if w := line.WrittenOff; w != nil && w.Through >= line.heldThrough() {
			a.WrittenOff[line.Unit] = allocation.SumUp(a.WrittenOff[line.Unit], line.Exposed)
			a.Through = max(a.Through, line.heldThrough())
			continue
		}
		now, ahead := upTo(line.Exposed, line.Unseen), "0"
		if line.Ahead != nil {
			ahead = upTo(line.Ahead.Exposed, line.Ahead.Unseen)
		}
		if s.canBeAsked(allocation.Holder{Region: line.Region, Incarnation: line.Incarnation}, at) {
			a.block("it may still spend %s of %s now and %s in later periods: wait until it has returned them, or they are over", now, budget, ahead)
		} else {
			a.block("%s of %s are stranded there now and %s in later periods: `tranche stranded write-off --budget %s --region %s`, or wait until %s", now, budget, ahead, budget, r.name, line.heldThrough())
		}
	}
}

// upTo is how many permits a region may hold; of a template also those of instances that nobody has heard of.
func upTo(known, unseen int64) string {
	if unseen == 0 {
		return strconv.FormatInt(known, 10)
	}
	return fmt.Sprintf("%d and up to %d unseen", known, unseen)
}
