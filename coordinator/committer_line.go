package coordinator

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// pending is one change on its way. Its caller may leave while it waits, not once it is part of a transaction.
type pending struct {
	Change
	ctx    context.Context
	bytes  int
	life   int    // of the writer that may write it
	do     func() // what Run is to do instead of writing; nil: it is a change
	state  atomic.Int32
	result atomic.Pointer[outcome] // nil: not known yet
	known  Signal                  // notified when it is
}

type outcome struct {
	revision int64
	err      error
}

const (
	stateWaiting = iota
	stateTaken   // part of a transaction that was or is being tried
	stateLeft    // the caller has gone, and was told that nothing happened
)

func (p *pending) take() bool { return p.state.CompareAndSwap(stateWaiting, stateTaken) }

func (p *pending) leave() bool { return p.state.CompareAndSwap(stateWaiting, stateLeft) }

func (p *pending) finish(revision int64, err error) {
	p.result.Store(&outcome{revision, err})
	p.known.Notify()
}

// wait returns when the outcome is known, or when the caller's ctx ends.
func (p *pending) wait() {
	for p.result.Load() == nil && p.ctx.Err() == nil {
		p.known.Wait(p.ctx)
	}
}

// line holds the changes that Run has not looked at yet, in the order in which they came. Each belongs to a caller that
// waits, and goes with it.
type line struct {
	mu     sync.Mutex
	list   []*pending
	closed bool
	some   Signal // for Run
}

// enter adds a change; false if Run has ended.
func (l *line) enter(p *pending) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	l.list = append(l.list, p)
	l.mu.Unlock()
	l.some.Notify()
	return true
}

// leave takes a change out whose caller has gone, if it is still here: while the store is away many come and go.
func (l *line) leave(p *pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = slices.DeleteFunc(l.list, func(o *pending) bool { return o == p })
}

// take returns at most n, those that came first.
func (l *line) take(n int) []*pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.list))
	taken := slices.Clone(l.list[:n])
	l.list = slices.Delete(l.list, 0, n)
	return taken
}

// wait returns with true when there is a change, and with false when ctx ends.
func (l *line) wait(ctx context.Context) bool {
	for {
		l.mu.Lock()
		some := len(l.list) > 0
		l.mu.Unlock()
		if some || ctx.Err() != nil {
			return some
		}
		l.some.Wait(ctx)
	}
}

// close lets nobody in any more, and returns those that are here.
func (l *line) close() []*pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	left := l.list
	l.list = nil
	return left
}
