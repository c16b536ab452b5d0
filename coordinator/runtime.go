package coordinator

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"
)

// Runtime is how a replica starts its parts, waits, bounds its calls and tells the time. It is a seam: the simulator runs
// the same replica under a scheduler of its own, in which only one part runs at a time and time is simulated; a part that
// waited for a channel there would stop the world. The real one is Real.
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
// Of several that wait, one is woken. An alias, so that a Runtime elsewhere need not name this package.
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

// parts are running parts of a replica; wait returns when all have ended, also those that were started meanwhile.
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

// waiters are the calls that wait for one change. A signal wakes one, so each has its own. The mutex of what they wait
// for guards them: a call adds itself under the hold under which it saw that it has to wait, so that it misses nothing.
type waiters []Signal

func (w *waiters) add(s Signal) { *w = append(*w, s) }

// drop forgets a call that has stopped waiting.
func (w *waiters) drop(s Signal) { *w = slices.DeleteFunc(*w, func(o Signal) bool { return o == s }) }

// wake lets all go on, in the order in which they came. Whoever has to wait again adds itself again.
func (w *waiters) wake() {
	for _, s := range *w {
		s.Notify()
	}
	clear(*w)
	*w = (*w)[:0]
}

// rest is how long to wait after a round that began at `started`, so that rounds begin `every` apart. It is never longer
// than that: a clock may go back.
func rest(r Runtime, started time.Time, every time.Duration) time.Duration {
	return min(every, max(0, every-r.Now().Sub(started)))
}
