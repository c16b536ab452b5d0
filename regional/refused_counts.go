package regional

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"tranche/allocation"
)

// refusedCounts are a node's counts of refusals since they were written last, by the minute. Under load nearly every refusal is
// like one before it, and then it finds its count without a lock. The lock is taken to begin a count, and to take them all.
//
//	refusal ─▶ known[of] ─▶ compare and swap        take: swap each for nothing; those of minutes that are over are closed
//	               │ none, or closed                      and left out
//	               └─▶ lock: begin one
type refusedCounts struct {
	known atomic.Pointer[map[refusedOf]*refusedCount] // never changed, but replaced

	mu     sync.Mutex
	minute int64
	series map[seriesOf]bool // of the minute
}

type seriesOf struct{ capability, tenant string }

type refusedOf struct {
	at int64
	seriesOf
	priority allocation.Priority
	reason   allocation.Reason
	unit     string
}

type refusedSum struct{ requests, units int64 }

// refusedCount is one sum; nil: nothing.
type refusedCount struct{ sum atomic.Pointer[refusedSum] }

// closedCount stands in a count that nothing is added to any more.
var closedCount = &refusedSum{}

// add adds to a count, if it is not closed.
func (c *refusedCount) add(more refusedSum) bool {
	for {
		had := c.sum.Load()
		if had == closedCount {
			return false
		}
		sum := more
		if had != nil {
			sum.requests, sum.units = allocation.SumUp(had.requests, more.requests), allocation.SumUp(had.units, more.units)
		}
		if c.sum.CompareAndSwap(had, &sum) {
			return true
		}
	}
}

func (c *refusedCounts) find(k refusedOf) *refusedCount {
	if known := c.known.Load(); known != nil {
		return (*known)[k]
	}
	return nil
}

// add adds to a count, which may be the one of the others: of one minute a node tells so many tenants and capabilities apart.
func (c *refusedCounts) add(k refusedOf, more refusedSum) {
	if one := c.find(k); one != nil && one.add(more) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.at != c.minute || c.series == nil {
		c.minute, c.series = k.at, map[seriesOf]bool{}
	}
	if !c.series[k.seriesOf] {
		if len(c.series) >= maxSeries {
			k.seriesOf = seriesOf{otherSeries, otherSeries}
		}
		c.series[k.seriesOf] = true
	}
	if one := c.find(k); one != nil {
		one.add(more)
		return
	}
	known := c.copied()
	known[k] = &refusedCount{}
	known[k].add(more)
	c.known.Store(&known)
}

// copied is a copy of what is known, to be changed and stored. Under the lock none of its counts is closed.
func (c *refusedCounts) copied() map[refusedOf]*refusedCount {
	if known := c.known.Load(); known != nil {
		return maps.Clone(*known)
	}
	return map[refusedOf]*refusedCount{}
}

// take returns what was counted since the last time, in order, and forgets the minutes that are over.
func (c *refusedCounts) take() (counts []RefusedCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known.Load()
	if known == nil {
		return nil
	}
	left := make(map[refusedOf]*refusedCount, len(*known))
	for k, one := range *known {
		var sum *refusedSum
		if k.at == c.minute {
			sum, left[k] = one.sum.Swap(nil), one
		} else {
			sum = one.sum.Swap(closedCount)
		}
		if sum != nil {
			counts = append(counts, RefusedCount{
				At: k.at, Capability: k.capability, Tenant: k.tenant, Priority: k.priority, Reason: k.reason, Unit: k.unit,
				Requests: sum.requests, Units: sum.units,
			})
		}
	}
	if len(left) < len(*known) {
		c.known.Store(&left)
	}
	slices.SortFunc(counts, RefusedCount.compare)
	return counts
}

// again takes back what could not be written.
func (c *refusedCounts) again(counts []RefusedCount) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.copied()
	for _, one := range counts {
		k := refusedOf{one.At, seriesOf{one.Capability, one.Tenant}, one.Priority, one.Reason, one.Unit}
		if len(known) >= 4*maxSeries { // the database has been away for long: by reason only
			k.seriesOf = seriesOf{otherSeries, otherSeries}
		}
		if known[k] == nil {
			known[k] = &refusedCount{}
		}
		known[k].add(refusedSum{one.Requests, one.Units})
	}
	c.known.Store(&known)
}
