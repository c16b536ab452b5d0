package regional

import (
	"sync"
	"sync/atomic"

	"tranche/allocation"
)

// doubt is the ids of which this node has told a caller that the outcome is unknown, and whose transaction has not ended
// yet. As long as an id stands here nobody is told that nothing was charged for it (invariant 11). It holds at most the
// requests of the batches in flight.
type doubt struct {
	mu  sync.Mutex
	ids map[allocation.IDKey]int
	few atomic.Int64 // of ids: nearly always there are none, and no lock is taken to see that
}

func (d *doubt) add(key allocation.IDKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ids == nil {
		d.ids = map[allocation.IDKey]int{}
	}
	d.ids[key]++
	d.few.Store(int64(len(d.ids)))
}

func (d *doubt) remove(key allocation.IDKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ids[key]--; d.ids[key] <= 0 {
		delete(d.ids, key)
	}
	d.few.Store(int64(len(d.ids)))
}

func (d *doubt) has(key allocation.IDKey) bool {
	if d.few.Load() == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.ids[key] > 0
}
