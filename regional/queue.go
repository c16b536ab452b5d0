package regional

import (
	"context"
	"sync"
	"time"
)

// queue holds the requests that wait for a lane, in order of arrival, at most queueMost.
type queue struct {
	mu    sync.Mutex
	calls []*call
	head  int
	kicks int // rises when every lane is to look up from its wait
	some  Signal
	now   func() time.Time
	drain drain
}

// drainOver is the least time over which it is measured how fast the queue is emptied.
const drainOver = 50 * time.Millisecond

// drain is how many calls a second the lanes took of late from a queue that they could not empty; 0: they could.
type drain struct {
	rate  float64
	taken int
	since time.Time
}

// took notes that a lane took n calls, and left so many.
func (d *drain) took(n, left int, now time.Time) {
	if left == 0 {
		*d = drain{since: now}
		return
	}
	d.taken += n
	if over := now.Sub(d.since); over >= drainOver {
		d.rate, d.taken, d.since = float64(d.taken)/over.Seconds(), 0, now
	}
}

// late says whether a call that is behind so many others would be taken too late: within what is left of its deadline it
// must be taken, and decided too. Fewer than one batch takes are no wait at all.
func (d *drain) late(before int, left time.Duration) bool {
	return before >= MaxBatchRequests && d.rate > 0 && float64(before) > d.rate*left.Seconds()/2
}

// kick makes every lane that waits look up, once.
func (q *queue) kick() {
	q.mu.Lock()
	q.kicks++
	q.mu.Unlock()
	q.some.Notify()
}

// kicked says whether there was a kick since the one that the caller saw last.
func (q *queue) kicked(last *int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	news := q.kicks != *last
	*last = q.kicks
	return news
}

// push adds a call; false if the queue is full, or so long that the call's deadline would pass in it: then it is better to
// say so at once, and to work on what can still be answered in time.
func (q *queue) push(c *call) bool {
	q.mu.Lock()
	if n := len(q.calls) - q.head; n >= queueMost || n >= MaxBatchRequests && q.drain.late(n, c.deadline.Sub(q.now())) {
		q.mu.Unlock()
		return false
	}
	q.calls = append(q.calls, c)
	q.mu.Unlock()
	q.some.Notify()
	return true
}

// take moves up to `most` calls to the end of batch.
func (q *queue) take(batch []*call, most int) []*call {
	q.mu.Lock()
	n := min(most, len(q.calls)-q.head)
	batch = append(batch, q.calls[q.head:q.head+n]...)
	clear(q.calls[q.head : q.head+n])
	q.head += n
	left := len(q.calls) - q.head
	q.drain.took(n, left, q.now())
	if left == 0 || q.head > queueMost {
		q.calls = append(q.calls[:0], q.calls[q.head:]...)
		q.head = 0
	}
	q.mu.Unlock()
	if left > 0 {
		q.some.Notify() // for another lane
	}
	return batch
}

// wait returns with at least one call, or with none when ctx ends or after a kick.
func (q *queue) wait(ctx context.Context, batch []*call, most int, seen *int) []*call {
	for {
		if batch = q.take(batch, most); len(batch) > 0 || ctx.Err() != nil {
			return batch
		}
		if q.kicked(seen) {
			q.some.Notify() // for another lane
			return batch
		}
		q.some.Wait(ctx)
	}
}
