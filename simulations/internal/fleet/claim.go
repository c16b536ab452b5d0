package fleet

import (
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// claim is one admission id as its callers know it: what was asked, and what was answered.
type claim struct {
	region *region
	key    allocation.IDKey
	op     allocation.Op
	labels allocation.Labels
	costs  map[string]int64
	life   allocation.Duration
	rank   allocation.Priority
	shown  allocation.Presented // the caller's own key; zero: a gateway asks
	made   time.Duration

	asked         []*asking
	first         *allocation.Decision // the first admission that somebody was told of
	firstAt       time.Duration        // when
	gone          time.Duration        // when somebody was first told that it was given back; 0: nobody was
	goneElsewhere bool                 // by a node that works on a copy of the region's database
	firstOf       *ownertwin.Commit    // which that is of
	fresh         []*ownertwin.Commit  // of the admissions that were told, replays aside
	over          bool                 // it was settled or given back, or that was tried
	doubtful      bool                 // something was lost, or no one knows: it may yet be charged

	sent     map[string]bool // the names under which it was asked for, by the caller: see Request.Correlation
	underway int             // decisions that a node began and did not come to: it crashed, or goes on
	charged  bool            // some node came to a decision that it may be charged, whoever heard of it
}

// asking is one try of an admission: when it was sent, when it was answered, and what was said.
type asking struct {
	from, to time.Duration
	answered bool
	decision allocation.Decision

	elsewhere bool // a node answered that works on a copy of the region's database
}

// open says whether the claim may be admitted although nobody was told so.
func (a *asking) open() bool { return !a.answered || a.decision.Reason == allocation.OutcomeUnknown }

// request is the claim's own admission, as it is sent each time.
func (c *claim) request(op allocation.Op) allocation.Request {
	r := allocation.Request{Op: op, Key: c.key, Presented: c.shown}
	switch op {
	case allocation.Spend, allocation.Reserve, allocation.Check:
		r.Labels, r.Costs, r.Lifetime, r.Priority = c.labels, c.costs, c.life, c.rank
	case allocation.Settle, allocation.Release, allocation.Extend, allocation.Lapse:
	}
	return r
}

// serving notes that a node begins to decide, also a copy of a request that came before.
func (n *node) serving(requests []allocation.Request) []*claim {
	claims := make([]*claim, len(requests))
	for i, r := range requests {
		claims[i] = n.region.fleet.check.claims[claimKey{n.region.name, r.Key}] // nil: of a probe
		if claims[i] != nil {
			claims[i].underway++
		}
	}
	return claims
}

// served notes what a node came to.
func (c *claim) served(d allocation.Decision) {
	if c == nil {
		return
	}
	c.underway--
	c.charged = c.charged || d.Admitted() || d.Reason == allocation.OutcomeUnknown || d.Reason == allocation.AdmissionIDReleased
}
