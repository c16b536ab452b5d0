package regional

import (
	"context"
	"sync"
	"time"
)

// queue holds the requests that wait for a lane, at most queueMost. Lanes take them by class, and within one in order of
// arrival.
type queue struct {
	mu     sync.Mutex
	lines  [classes]line
	length int // of all lines
	kicks  int // rises when every lane is to look up from its wait
	some   Signal
	now    func() time.Time
	crowd  crowd
	flight flight
	within func(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// line is what waits of one class.
type line struct {
	calls []*call
	head  int
	drain drain
}

func (l *line) length() int { return len(l.calls) - l.head }

// take moves up to `most` calls to the end of batch.
func (l *line) take(batch []*call, most int) []*call {
	n := min(most, l.length())
	batch = append(batch, l.calls[l.head:l.head+n]...)
	clear(l.calls[l.head : l.head+n])
	l.head += n
	if l.length() == 0 || l.head > queueMost {
		l.calls = append(l.calls[:0], l.calls[l.head:]...)
		l.head = 0
	}
	return batch
}

// drainOver is the least time over which it is measured how fast a line is emptied.
const drainOver = 50 * time.Millisecond

// drain is how many calls a second the lanes took of late from a line that they could not empty; 0: they could.
type drain struct {
	rate  float64
	taken int
	since time.Time
}

// leastRate is that of a line from which nothing is taken: others always go before it.
const leastRate = 1.0

// took notes that a lane took n calls, and left so many.
func (d *drain) took(n, left int, now time.Time) {
	if left == 0 {
		*d = drain{since: now}
		return
	}
	d.taken += n
	if over := now.Sub(d.since); over >= drainOver {
		d.rate, d.taken, d.since = max(leastRate, float64(d.taken)/over.Seconds()), 0, now
	}
}

// patience is the part of what is left of a deadline that a call may spend in a line that the lanes cannot empty. A longer line
// serves nobody more: it makes all late, and each call in it holds its caller's memory. What waits while the lanes can empty
// their line, as after a burst, is not refused.
const patience = 4

// late says whether a call that is behind so many others would wait for too long. Fewer than one batch takes are no wait at all.
func late(before int, rate float64, left time.Duration) bool {
	return before >= MaxBatchRequests && rate > 0 && float64(before) > rate*left.Seconds()/patience
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

// push adds a call; false if there is no room for its class, or if its line is so long that the call's deadline would pass
// in it: then it is better to say so at once, and to work on what can still be answered in time.
func (q *queue) push(c *call) bool {
	q.mu.Lock()
	l := &q.lines[c.class]
	if n := l.length(); q.length >= c.class.room() || n >= MaxBatchRequests && late(n, l.drain.rate, c.deadline.Sub(q.now())) {
		q.mu.Unlock()
		return false
	}
	l.calls = append(l.calls, c)
	q.length++
	q.crowd.note(q, c.class)
	worth := q.arrived()
	q.mu.Unlock()
	if worth {
		q.some.Notify()
	}
	return true
}

// take moves up to `most` calls to the end of batch, those of the first class first.
func (q *queue) take(batch []*call, most int) []*call {
	q.mu.Lock()
	for i := range q.lines {
		l := &q.lines[i]
		before, waited := len(batch), l.length()
		batch = l.take(batch, most)
		n := len(batch) - before
		most -= n
		q.length -= n
		if waited > 0 || l.drain.rate > 0 {
			l.drain.took(n, l.length(), q.now())
			q.crowd.note(q, class(i))
		}
	}
	left := q.length
	q.flight.oldest = q.now()
	q.mu.Unlock()
	if left > 0 {
		q.some.Notify() // for another lane
	}
	return batch
}

// wait returns with at least one call, or with none when ctx ends or after a kick.
func (q *queue) wait(ctx context.Context, batch []*call, most int, seen *int) []*call {
	for {
		if ctx.Err() == nil && q.holdBack(ctx) {
			continue
		}
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
