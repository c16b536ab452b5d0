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
	some  Signal
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

// wait returns with at least one call, or with none when ctx ends.
func (q *queue) wait(ctx context.Context, batch []*call, most int) []*call {
	for {
		if batch = q.take(batch, most); len(batch) > 0 || ctx.Err() != nil {
			return batch
		}
		q.some.Wait(ctx)
	}
}
