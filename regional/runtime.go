package regional

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Runtime is how a node starts its parts, waits, and tells the time. It is a seam: the simulator runs the same node under
// a scheduler of its own, in which only one part runs at a time and time is simulated. The real one is Real.
type Runtime interface {
	Now() time.Time
	// Go runs f as a part of this process.
	Go(name string, f func())
	// Sleep waits, less when ctx ends.
	Sleep(ctx context.Context, d time.Duration)
	// WithTimeout ends the context after d, by the process's clock.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
	// NewSignal makes a signal that is not set.
	NewSignal() Signal
	// Jitter is a random part of d.
	Jitter(d time.Duration) time.Duration
}

// Signal wakes a part that waits. It is sticky and coalesces: a Notify before the Wait is not lost, several count once.
// Of several that wait, one is woken.
type Signal = interface {
	Notify()
	// Wait returns at the next Notify, or when ctx ends.
	Wait(ctx context.Context)
}

// Real is the machine's own clock and Go's scheduler.
type Real struct{}

// Now is the time.
func (Real) Now() time.Time { return time.Now() }

// Go starts a goroutine.
func (Real) Go(_ string, f func()) { go f() }

// Sleep waits.
func (Real) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// WithTimeout is the context package's.
func (Real) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// NewSignal makes a signal on a channel.
func (Real) NewSignal() Signal { return make(channelSignal, 1) }

// Jitter is uniform over [0, d).
func (Real) Jitter(d time.Duration) time.Duration { return rand.N(max(d, 1)) }

type channelSignal chan struct{}

func (s channelSignal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func (s channelSignal) Wait(ctx context.Context) {
	select {
	case <-s:
	case <-ctx.Done():
	}
}

// timedSignal is a Signal that can end a wait by itself: every request waits once, and a context for that costs more than
// the wait.
type timedSignal interface {
	// WaitFor is Wait, for at most d.
	WaitFor(ctx context.Context, d time.Duration)
}

// timers are stopped, and nothing is left in their channels.
var timers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}}

func (s channelSignal) WaitFor(ctx context.Context, d time.Duration) {
	t := timers.Get().(*time.Timer)
	t.Reset(d)
	select {
	case <-s:
	case <-ctx.Done():
	case <-t.C:
	}
	t.Stop()
	timers.Put(t)
}

// parts are the running parts of a node; wait returns when all have ended.
type parts struct {
	runtime Runtime
	running atomic.Int64
	ended   Signal
}

func newParts(r Runtime) *parts { return &parts{runtime: r, ended: r.NewSignal()} }

func (p *parts) start(name string, f func()) {
	p.running.Add(1)
	p.runtime.Go(name, func() {
		defer p.ended.Notify()
		defer p.running.Add(-1)
		f()
	})
}

func (p *parts) wait() {
	for p.running.Load() > 0 {
		p.ended.Wait(context.Background())
	}
}
