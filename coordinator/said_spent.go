package coordinator

import "tranche/allocation"

// spentStated is what an incarnation has stated as spent, over all terms of a budget that are not closed.
func (s *Service) spentStated(h allocation.Holder, budget string) int64 {
	return s.saidSpent(h, budget, 0, allocation.Never)
}

// firstTerm is the first of them.
func (s *Service) firstTerm(budget string) allocation.Instant {
	for _, l := range s.state.terms[budget] {
		return l.value.Periods.Start()
	}
	return 0
}

// saidSpent is what an incarnation has stated as spent of the terms from one on that start before through, as is known now: of one
// that was closed meanwhile by its record. What a record only assumes nobody has stated, and one that has moved to the archive counts
// nothing. from 0 is a record of an older program, which did not say what it counted: those that are not closed, as it did.
func (s *Service) saidSpent(h allocation.Holder, budget string, from, through allocation.Instant) (spent int64) {
	for _, l := range s.state.terms[budget] {
		if l.value.Periods.Start() >= from && l.value.Periods.Start() < through {
			st, _ := s.lastStatement(h, refOf(l.value))
			spent = allocation.SumUp(spent, spentOf(st))
		}
	}
	for term := from; term > 0 && term < through; {
		if l := s.state.ledgers[allocation.ShareRef{Budget: budget, Term: term}]; l != nil {
			term = l.value.Periods.End()
			continue
		}
		c := s.state.closings[closingKey(budget, term)]
		if c == nil {
			break
		}
		spent, term = allocation.SumUp(spent, c.value.statedOf(h)), c.value.Periods.End()
	}
	return spent
}

// statedOf is what an incarnation stated to have spent of a closed term.
func (c Closing) statedOf(h allocation.Holder) int64 {
	for _, r := range c.Regions {
		if r.Holder == h && r.Unstated && r.Late == nil {
			return 0
		}
	}
	return c.saidOf(h)
}
