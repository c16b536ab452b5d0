package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
)

// maxGivenUpLines bounds the budgets that an answer lists.
const maxGivenUpLines = 1000

// GiveUpRequest names a region that a frozen history is to wait for no longer, because it will never state what it holds.
type GiveUpRequest struct {
	Region string `json:"region"`
	Reason string `json:"reason"`
	By     string `json:"by"` // the person who answers for it
}

// GivenUp is what that means. Nobody gets what the region may hold: it is stranded to the end of each period.
type GivenUp struct {
	Region      string             `json:"region"`
	Incarnation string             `json:"incarnation,omitempty"` // that is lost; empty in a preview: nobody knows it
	Registered  bool               `json:"registered"`
	Through     allocation.Instant `json:"through"` // terms that begin before it are concerned
	Lines       []GivenUpLine      `json:"lines"`   // of running periods, by budget
	More        int                `json:"more,omitempty"`
	Missing     []string           `json:"missing"` // regions that it still waits for
	Thawed      bool               `json:"thawed"`
	DryRun      bool               `json:"dry_run,omitempty"`
}

// GivenUpLine is one budget in its running period. Held is what the ledger knows; of the rest that is not proven to be
// elsewhere, the region may hold all.
type GivenUpLine struct {
	Budget string `json:"budget"`
	Unit   string `json:"unit,omitempty"`
	Held   int64  `json:"held"`
	Most   int64  `json:"most"` // Held and all that is not proven to be elsewhere; regions that state lower it
}

// giveUp lets a freeze end without a region. Its incarnation is lost, and counts as holding all that is not proven to be
// elsewhere; it becomes a former one, so that nothing it says counts when it comes back: it begins anew. One that etcd has
// no name of gets one that nobody has, so that its part is counted all the same.
func (s *Service) giveUp(ctx context.Context, who actor, q GiveUpRequest, dry bool) (answer GivenUp, err error) {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return GivenUp{}, err
	}
	who.reason = q.Reason
	if !allocation.ValidRegion(q.Region) {
		return GivenUp{}, invalid("region", fmt.Sprintf("%.70q is not a region's name", q.Region), "name one that the freeze waits for: `tranche ledgers recover` lists them")
	}
	err = s.inTurn(ctx, func() (Change, error) {
		if err := s.mayGiveUp(q.Region); err != nil {
			return Change{}, err
		}
		r, change := s.state.regions[q.Region], Change{Reads: []Item{s.state.standing.item}}
		h := allocation.Holder{Region: q.Region}
		answer = GivenUp{Region: q.Region, Registered: r != nil && r.doc != nil, Through: s.state.descent().Freeze.Through, DryRun: dry}
		if answer.Registered {
			h.Incarnation = r.doc.value.Incarnation
		}
		answer.Incarnation = h.Incarnation
		s.listGivenUp(&answer, h)
		if h.Incarnation != "" {
			next := r.doc.value.with(r.doc.value.residence().Replace("", allocation.Home{}))
			if change, err = s.membersChange(who, "region.end", r, next); err != nil {
				return Change{}, err
			}
			s.state.onStanding(&change)
		}
		h.Incarnation = cmp.Or(h.Incarnation, s.random.hex(8))
		standing := s.state.standing.value
		standing.Standing = standing.Lose(h)
		standing, answer.Thawed = s.enterStated(standing, h, &change)
		answer.Missing = slices.DeleteFunc(s.state.awaited(), func(n string) bool { return n == q.Region })
		if dry {
			return Change{}, nil
		}
		answer.Incarnation = h.Incarnation
		change.Puts = append(change.Puts, put(historyKey, standing),
			s.auditLine(who, "history.give-up", q.Region, nil, map[string]any{"reason": q.Reason, "by": q.By, "incarnation": h.Incarnation, "thawed": answer.Thawed}))
		return change, nil
	})
	if err == nil && !dry {
		s.log.Warn("the freeze waits for a region no longer: what it may hold is stranded", "region", q.Region, "incarnation", answer.Incarnation, "thawed", answer.Thawed)
		s.nudgeBackground()
	}
	return answer, err
}

// mayGiveUp refuses what would help nobody.
func (s *Service) mayGiveUp(name string) error {
	switch r := s.state.regions[name]; {
	case s.state.standing == nil || s.state.deployment == nil:
		return errStarting
	case !s.state.frozen():
		return refused("there is nothing to give up; `tranche status` says what is wrong", "nothing is frozen")
	case !slices.Contains(s.state.awaited(), name):
		return refused("`tranche ledgers recover` lists those that it waits for", "the freeze does not wait for region %s: it has stated, or nobody knows of it", name)
	case r != nil && r.doc != nil && r.inContact(s.now(), s.config.ReportUnreachableAfter):
		return refused("wait until it has", "region %s calls, and is about to state what it holds", name)
	}
	return nil
}

// listGivenUp adds up what a holder may hold, in the running period of each budget.
func (s *Service) listGivenUp(answer *GivenUp, h allocation.Holder) {
	answer.Lines = []GivenUpLine{}
	now := s.instant()
	for _, ref := range sortedRefs(s.state.ledgers, nil) {
		l := s.state.ledgers[ref].value
		i, running := l.Periods.Find(now)
		if !running || l.Template {
			continue
		}
		line := GivenUpLine{Budget: l.Budget, Unit: l.Unit}
		line.Held, line.Most = l.MayHold(h, i)
		switch {
		case line.Most == 0:
		case len(answer.Lines) == maxGivenUpLines:
			answer.More++
		default:
			answer.Lines = append(answer.Lines, line)
		}
	}
}

// enterStated enters that a holder has stated all that it holds, or never will, and thaws when all have.
func (s *Service) enterStated(next StandingDocument, h allocation.Holder, change *Change) (StandingDocument, bool) {
	var thawed bool
	since := next.Since
	next.Standing, thawed = next.Stated(h, s.state.awaitable(next.Named))
	if thawed {
		next.Since, next.Named = since, nil
		change.Puts = append(change.Puts, s.auditLine(background, "history.thaw", next.History.String(), nil, next.Standing))
	}
	return next, thawed
}
