package regional

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"tranche/allocation"
)

// A refusal writes nothing, so only the node that made it can tell of it. A node counts, by budget, the requests that were
// refused for want of permits, and tells the coordinator the sums every few seconds if they rose: the stranded report sets
// them beside what was stranded. It is for people; nothing is decided by it.
const (
	refusalsTellEvery = 2 * time.Second
	refusalsTellIn    = 3 * time.Second
	maxRefusals       = 300 // budgets and reasons; others are not counted until the node starts anew
)

// RefusalTeller is a Coordinator that takes what nodes refused. One that does not is not told.
type RefusalTeller interface {
	TellRefusals(ctx context.Context, report allocation.RefusalReport) error
}

// refusals are a node's counts since it started.
type refusals struct {
	mu     sync.Mutex
	counts map[refusalOf]allocation.RefusalCount
	risen  bool // since they were told

	used map[string]int64 // keys that were admitted with since they were told, by fingerprint, Unix seconds
}

type refusalOf struct {
	budget string
	reason allocation.Reason
}

// lacksPermits says whether a reason is one that more permits would have helped.
func lacksPermits(r allocation.Reason) bool {
	return r == allocation.RegionShareSpent || r == allocation.CeilingReached || r == allocation.CapacityStranded
}

// count takes the refusals among decisions.
func (r *refusals) count(decisions []allocation.Decision) {
	for i := range decisions {
		d := &decisions[i]
		if d.Op != allocation.Spend && d.Op != allocation.Reserve || !lacksPermits(d.Reason) {
			continue
		}
		b := blamed(d)
		if b == nil {
			continue
		}
		r.mu.Lock()
		key := refusalOf{b.Budget, d.Reason}
		c, known := r.counts[key]
		if known || len(r.counts) < maxRefusals {
			if r.counts == nil {
				r.counts = map[refusalOf]allocation.RefusalCount{}
			}
			c.Budget, c.Reason = b.Budget, d.Reason
			c.Requests, c.Units = c.Requests+1, allocation.SumUp(c.Units, max(0, b.Requested))
			r.counts[key], r.risen = c, true
		}
		r.mu.Unlock()
	}
}

// rose returns the counts if they rose since they were taken last.
func (r *refusals) rose() []allocation.RefusalCount {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.risen {
		return nil
	}
	r.risen = false
	return slices.SortedFunc(maps.Values(r.counts), func(a, b allocation.RefusalCount) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Reason, b.Reason))
	})
}

// again takes back what could not be told.
func (r *refusals) again(risen bool, used map[string]int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.risen = r.risen || risen
	for fingerprint, at := range used {
		r.use(fingerprint, at)
	}
}

// tellRefusals tells the coordinator until ctx ends, and once more then.
func (n *Node) tellRefusals(ctx context.Context, to RefusalTeller) {
	run := strconv.FormatInt(n.now().UnixNano(), 36)
	for {
		n.cfg.Runtime.Sleep(ctx, refusalsTellEvery)
		counts, used, settled := n.refusals.rose(), n.refusals.takeUsed(), n.estimates.rose()
		if counts != nil || used != nil || settled != nil {
			within, cancel := n.cfg.Runtime.WithTimeout(context.WithoutCancel(ctx), refusalsTellIn)
			report := allocation.RefusalReport{Format: allocation.SyncFormat, Node: n.cfg.Name, Run: run, Counts: counts, Used: used, Estimates: settled}
			if err := to.TellRefusals(within, report); err != nil {
				n.refusals.again(counts != nil, used)
				n.estimates.again(settled != nil)
				n.log.Debug("tell what was refused", "error", err)
			}
			cancel()
		}
		if ctx.Err() != nil {
			return
		}
	}
}
