package regional

import (
	"math"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// Under overload not everybody can be served, and who is refused should not be left to chance. So what waits for a lane
// stands in one of three lines, and a lane takes from the first one that has something:
//
//	first        essential requests, and what ends an earlier admission: it gives permits back, or makes a hold final
//	interactive  every other request
//	batch        batch work
//
// A line is refused at once what it cannot be served in time, by how fast it is emptied. One before which others always go is
// emptied slowly, or not at all: then what comes to it is refused at once.
type class int

const (
	classFirst class = iota
	classInteractive
	classBatch
	classes
)

// room is how many may wait in all for one more of the class to be taken: what is refused sooner cannot fill the queue.
func (c class) room() int {
	switch c {
	case classBatch:
		return queueMost / 2
	case classInteractive:
		return queueMost / 4 * 3
	case classFirst, classes:
	}
	return queueMost
}

// classOf is the line of a request. A caller's own key says essential only if it may: what it merely claims is found out
// when it is decided, and must not go before others until then.
func (n *Node) classOf(r *allocation.Request) class {
	switch {
	case !admits(r.Op):
		return classFirst
	case r.Priority == allocation.Batch:
		return classBatch
	case r.Priority != allocation.Essential:
		return classInteractive
	case r.Presented == (allocation.Presented{}):
		return classFirst
	}
	if k, known := n.catalogue.Load().KeyOf(r.Presented); !known || !k.Essential {
		return classInteractive
	}
	return classFirst
}

// crowd is how long the lines are and how fast they are emptied, for who only wants to know whether there is room at all:
// under overload that is asked much more often than anything is decided, and takes neither the lock nor memory.
type crowd struct {
	waiting atomic.Int64 // in all
	lines   [classes]struct {
		waiting atomic.Int64
		rate    atomic.Uint64 // the bits of drain.rate
	}
}

// note takes down what the queue is now; its lock is held.
func (c *crowd) note(q *queue, of class) {
	c.waiting.Store(int64(q.length))
	c.lines[of].waiting.Store(int64(q.lines[of].length()))
	c.lines[of].rate.Store(math.Float64bits(q.lines[of].drain.rate))
}

// noRoom says whether a call would be refused; push asks again, under its lock.
func (c *crowd) noRoom(of class, left time.Duration) bool {
	line := &c.lines[of]
	return int(c.waiting.Load()) >= of.room() ||
		late(int(line.waiting.Load()), math.Float64frombits(line.rate.Load()), left)
}

// crowdedOut is the decision for one request for which the queue has no room; false: it has.
func (n *Node) crowdedOut(r *allocation.Request, deadline time.Time) ([]allocation.Decision, bool) {
	if c := &n.waiting.crowd; c.waiting.Load() < MaxBatchRequests || !c.noRoom(n.classOf(r), deadline.Sub(n.now())) {
		return nil, false
	}
	return []allocation.Decision{n.cannot(*r, allocation.Overloaded)}, true
}
