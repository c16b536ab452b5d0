package regional

import (
	"context"
	"time"
)

// holdMost bounds how long a lane holds back, whatever the batches before took.
const holdMost = 50 * time.Millisecond

// flight is what the lanes are at work on. A batch costs its database as much as some tens of requests do, and two that
// spend from one budget wait for each other in the database all the same. So while others are at work a lane begins with no
// less than they have each; else it leaves what came to the one that is done first. One that hangs keeps the others no longer
// than two batches take.
//
//	lane 0   ├── 128 in flight ──────┤├── 127 that came meanwhile ─┤
//	lane 1           40 wait: hold back
type flight struct {
	lanes, calls int
	took         estimate
	oldest       time.Time // since when something waits; what is left after a batch counts from there
}

// fair is how many calls a lane that others work beside begins with; 0: any.
func (f *flight) fair() int {
	if f.lanes == 0 {
		return 0
	}
	return f.calls / f.lanes
}

// began and ended are of a lane's work on so many calls.
func (q *queue) began(calls int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flight.lanes++
	q.flight.calls += calls
}

func (q *queue) ended(calls int, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flight.lanes--
	q.flight.calls -= calls
	q.flight.took.add(took, q.now())
}

// arrived notes that a call was added, and says whether a lane is to look; the lock is held.
func (q *queue) arrived() bool {
	if q.length == 1 {
		q.flight.oldest = q.now()
		return true // it holds back, if it must, and no longer than it may
	}
	return q.length >= q.flight.fair()
}

// holdBack waits a while if others are at work and too little waits to begin beside them, and says whether it did.
func (q *queue) holdBack(ctx context.Context) bool {
	q.mu.Lock()
	left, now := time.Duration(0), q.now()
	if q.length > 0 && q.length < q.flight.fair() {
		left = min(holdMost, 2*q.flight.took.typical(now)) - now.Sub(q.flight.oldest)
	}
	q.mu.Unlock()
	if left <= 0 {
		return false
	}
	ctx, cancel := q.within(ctx, left)
	defer cancel()
	q.some.Wait(ctx)
	return true
}
