package regional

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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

// refusals are a node's counts since it started. A lock is taken to begin a count only.
type refusals struct {
	counts atomic.Pointer[map[refusalOf]*refusedCount] // never changed, but replaced
	risen  atomic.Bool                                 // since they were told

	mu   sync.Mutex
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
		if one := r.of(refusalOf{b.Budget, d.Reason}); one != nil {
			one.add(refusedSum{1, max(0, b.Requested)})
			r.risen.Store(true)
		}
	}
}

func (r *refusals) known() map[refusalOf]*refusedCount {
	if known := r.counts.Load(); known != nil {
		return *known
	}
	return nil
}

// of is the count of a budget and a reason; nil: there are too many.
func (r *refusals) of(key refusalOf) *refusedCount {
	if one := r.known()[key]; one != nil {
		return one
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := r.known()
	if one := known[key]; one != nil || len(known) >= maxRefusals {
		return one
	}
	more := make(map[refusalOf]*refusedCount, len(known)+1)
	maps.Copy(more, known)
	more[key] = &refusedCount{}
	r.counts.Store(&more)
	return more[key]
}

// rose returns the counts if they rose since they were taken last.
func (r *refusals) rose() (counts []allocation.RefusalCount) {
	if !r.risen.Swap(false) {
		return nil
	}
	for key, one := range r.known() {
		if sum := one.sum.Load(); sum != nil {
			counts = append(counts, allocation.RefusalCount{Budget: key.budget, Reason: key.reason, Requests: sum.requests, Units: sum.units})
		}
	}
	slices.SortFunc(counts, func(a, b allocation.RefusalCount) int {
		return cmp.Or(cmp.Compare(a.Budget, b.Budget), cmp.Compare(a.Reason, b.Reason))
	})
	return counts
}

// again takes back what could not be told.
func (r *refusals) again(risen bool, used map[string]int64) {
	if risen {
		r.risen.Store(true)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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
