package regional

import (
	"context"
	"sync"

	"tranche/allocation"
)

// A refusal writes nothing, so it needs no lock either: requests for what was found spent are gathered into one read that
// begins after they came in. What that read refuses for want of permits is refused. Everything else, above all what might be
// admitted now, goes on into a transaction, undecided. Which rows to try this with is a guess from the last decisions; a
// wrong guess costs a read, and no answer is ever given from it.

// spentMost bounds the rows that are remembered as spent.
const spentMost = 4096

// spentRows are usage rows in which the last request found too few permits.
type spentRows struct {
	mu   sync.Mutex
	keys map[allocation.UsageKey]struct{}
}

// note remembers the rows for want of whose permits something was refused.
func (s *spentRows) note(decided []*call) {
	for i := range decided {
		d := &decided[i].decision
		if !lacksPermits(d.Reason) {
			continue
		}
		s.mu.Lock()
		if s.keys == nil || len(s.keys) >= spentMost {
			s.keys = map[allocation.UsageKey]struct{}{}
		}
		for j := range d.Budgets {
			if lacksPermits(d.Budgets[j].Reason) {
				s.keys[d.Budgets[j].UsageKey] = struct{}{}
			}
		}
		s.mu.Unlock()
	}
}

func (s *spentRows) none() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys) == 0
}

func (s *spentRows) anyOf(keys []allocation.UsageKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		if _, spent := s.keys[k]; spent {
			return true
		}
	}
	return false
}

func (s *spentRows) forget(keys []allocation.UsageKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		delete(s.keys, k)
	}
}

// refuseByRead answers the claimed calls that one read refuses for want of permits, and returns the others.
func (ln *lane) refuseByRead(ctx context.Context, batch []*call) []*call {
	n := ln.node
	if ln.slot.gone != "" || n.spent.none() {
		return batch
	}
	catalogue, now := n.catalogue.Load(), n.clock.instant()
	var asked, rest []*call
	for _, c := range batch {
		if !c.probe && admits(c.request.Op) && n.spent.anyOf(catalogue.Plan(c.request, now).Keys()) {
			asked = append(asked, c)
		} else {
			rest = append(rest, c)
		}
	}
	if len(asked) == 0 {
		return batch
	}
	want, kept := ln.want(asked)
	rest = append(rest, asked[len(kept):]...)
	within, cancel := n.cfg.Runtime.WithTimeout(ctx, beginWithin)
	defer cancel()
	seen, err := n.owner.Peek(within, want)
	if err != nil || seen.Behind || seen.Handover.ID != "" || seen.Incarnation != n.catalogueOf() {
		return append(rest, kept...) // the transaction finds the same, and knows what to do
	}
	n.clock.set(seen.Now)
	n.sees(&seen.Loaded)
	locked := ln.locked(&seen, want, n.advance(&seen.Loaded, want.Changes))
	var refused []*call
	for i, c := range kept {
		o := locked.Decide(c.plan)
		if o.Again || !lacksPermits(o.Decision.Reason) || o.Decision.State != "" {
			// What comes after it would be decided as if this one had been charged.
			n.spent.forget(c.plan.Keys())
			rest = append(rest, kept[i:]...)
			break
		}
		c.decision = o.Decision
		ln.record(locked, c, &c.decision)
		refused = append(refused, c)
	}
	n.noteDemand(locked, refused)
	ln.answer(refused)
	return rest
}

// catalogueOf is the incarnation that the catalogue is of.
func (n *Node) catalogueOf() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.incarnation
}
