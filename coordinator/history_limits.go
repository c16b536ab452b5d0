package coordinator

import (
	"context"
	"fmt"
	"slices"

	"tranche/allocation"
)

// KnowLimitsRequest declares that no budget had a higher limit, in what etcd lost, than the ledgers know.
type KnowLimitsRequest struct {
	Reason string `json:"reason"`
	By     string `json:"by"` // the person who answers for it
}

// LimitsKnown is of which lost incarnations that is declared.
type LimitsKnown struct {
	Lost   []allocation.LostHolder `json:"lost"`
	DryRun bool                    `json:"dry_run,omitempty"`
}

// knowLimits frees raises that come from now on: what the lost incarnations may hold is counted in full without them. If it
// is untrue, what one of them spent above the highest limit that the ledgers know may be spent once more.
func (s *Service) knowLimits(ctx context.Context, who actor, q KnowLimitsRequest, dry bool) (answer LimitsKnown, err error) {
	if err := checkReason(q.Reason, q.By, dry); err != nil {
		return LimitsKnown{}, err
	}
	err = s.inTurn(ctx, func() (Change, error) {
		if s.state.standing == nil {
			return Change{}, errStarting
		}
		before := s.state.standing.value
		answer = LimitsKnown{DryRun: dry, Lost: slices.DeleteFunc(slices.Clone(before.Lost), func(h allocation.LostHolder) bool { return h.LimitsKnown })}
		if before.Freeze != nil {
			return Change{}, refused("wait until every region has stated, or give up those that never will: `tranche ledgers recover`", "all is frozen, and what may be lost is not known yet")
		}
		next, changed := before, false
		if next.Standing, changed = before.KnowLimits(); !changed {
			return Change{}, refused("there is nothing to declare: no raise is withheld", "no incarnation is lost of which the limits are unknown")
		}
		if dry {
			return Change{}, nil
		}
		return Change{
			Reads: []Item{s.state.standing.item},
			Puts:  []Item{put(historyKey, next), s.auditLine(who, "history.limits-known", next.History.String(), before.Lost, map[string]any{"reason": q.Reason, "by": q.By, "lost": next.Lost})},
		}, nil
	})
	if err == nil && !dry {
		s.log.Warn("a person declared that no limit was higher in what etcd lost: raises are granted", "by", q.By)
	}
	return answer, err
}

// withheld is how much of a plan's raise nobody would get in the running period, or else in the first that is opened, and the
// incarnation that may have spent it already.
func (s *Service) withheld(plan budgetPlan) (lost allocation.Holder, units int64) {
	now := s.instant()
	for _, w := range plan.ledgers {
		if w.before == nil {
			continue
		}
		i := runningIndex(w.after, now)
		if h, n := w.before.value.RaiseWithheld(w.after.EntryAt(i).Limit, i, s.state.members()); n > 0 {
			return h, n
		}
	}
	return allocation.Holder{}, 0
}

const limitsKnownNext = "if you know that no limit was higher in what etcd lost: `tranche ledgers recover --limits-known`"

// withheldWarnings says what a raise does not give, and why.
func (s *Service) withheldWarnings(plan budgetPlan) []string {
	h, n := s.withheld(plan)
	if n == 0 {
		return nil
	}
	return []string{fmt.Sprintf("of the raise, %d of each opened period are stranded with incarnation %s of region %s: %s; %s", n, h.Incarnation, h.Region, lostLimitWhy, limitsKnownNext)}
}

const lostLimitWhy = "its history was lost together with etcd's, so it may have spent under a higher limit that nobody knows"

// lostLimitNote says of a line that raises go to it, too; empty: they do not.
func (s *Service) lostLimitNote(h allocation.Holder, l allocation.Ledger) string {
	for _, lost := range s.state.descent().Lost {
		if lost.Holder == h && !lost.LimitsKnown && l.Periods.Start() < lost.Through {
			return fmt.Sprintf("%s: a raise of the limit is stranded with it as well, in terms that begin before %s; %s", lostLimitWhy, lost.Through, limitsKnownNext)
		}
	}
	return ""
}
