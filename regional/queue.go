package regional

import (
	"context"
	"sync"
)

// queue holds the requests that wait for a lane, in order of arrival, at most queueMost.
type queue struct {
	mu    sync.Mutex
	calls []*call
	head  int
	kicks int // rises when every lane is to look up from its wait
	some  Signal
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

// push adds a call; false if the queue is full.
func (q *queue) push(c *call) bool {
	q.mu.Lock()
	if len(q.calls)-q.head >= queueMost {
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
