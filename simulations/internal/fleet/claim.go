package fleet

import (
	"time"

	"tranche/allocation"
)

// claim is one admission id as its callers know it: what was asked, and what was answered.
type claim struct {
	region *region
	key    allocation.IDKey
	op     allocation.Op
	labels allocation.Labels
	costs  map[string]int64
	life   allocation.Duration
	made   time.Duration

	asked    []*asking
	first    *allocation.Decision // the first admission that somebody was told of
	firstAt  time.Duration        // when
	gone     time.Duration        // when somebody was first told that it was given back; 0: nobody was
	fresh    int                  // admissions that were told, replays aside
	over     bool                 // it was settled or given back, or that was tried
	doubtful bool                 // something was lost, or no one knows: it may yet be charged
}

// asking is one try of an admission: when it was sent, when it was answered, and what was said.
type asking struct {
	from, to time.Duration
	answered bool
	decision allocation.Decision
}

// open says whether the claim may be admitted although nobody was told so.
func (a *asking) open() bool { return !a.answered || a.decision.Reason == allocation.OutcomeUnknown }

// request is the claim's own admission, as it is sent each time.
func (c *claim) request(op allocation.Op) allocation.Request {
	r := allocation.Request{Op: op, Key: c.key}
	switch op {
	case allocation.Spend, allocation.Reserve, allocation.Check:
		r.Labels, r.Costs, r.Lifetime = c.labels, c.costs, c.life
	case allocation.Settle, allocation.Release, allocation.Extend, allocation.Lapse:
	}
	return r
}
