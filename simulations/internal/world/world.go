package world

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// DefaultStart is when a world begins unless it is told otherwise.
var DefaultStart = time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC)

// DefaultRing is how many lines of the trace are kept in memory unless the world is told otherwise.
const DefaultRing = 4096

// Options says what a world is.
type Options struct {
	Seed  uint64
	Start time.Time // zero: DefaultStart
	Trace io.Writer // hears every line as it happens; nil: only the ring does
	Ring  int       // the latest lines that are kept; 0: DefaultRing, below 0: none
	// Switches puts a line into the trace each time that a task goes on: long, and the strictest comparison of two runs.
	Switches bool
}

// World is one simulated world. It is used by one goroutine, and by its own tasks.
type World struct {
	seed    uint64
	start   time.Time
	now     int64 // nanoseconds since start
	choices *rand.Rand
	stay    float64 // the chance that a task goes on although others could

	processes []*Process
	outside   *Process // of the world's own tasks
	ready     []*task
	timers    timers
	foreign   foreign // contexts that the world must look at, since it does not end them itself
	current   *task
	idle      []*worker
	err       error
	stopping  bool
	closed    bool

	trace     trace
	stats     Stats
	beat      atomic.Uint64 // rises with every step, for the watchdog
	runningIs atomic.Pointer[string]
	posts     chan func() // from other goroutines, while Serve runs
}

// Stats counts what a world did.
type Stats struct {
	Points   uint64 // calls at which a task gave way
	Switches uint64 // times that a task went on
	Timers   uint64 // timers that fired
	Tasks    uint64 // tasks that were started
}

// New makes a world in which nothing happens yet.
func New(o Options) *World {
	if o.Start.IsZero() {
		o.Start = DefaultStart
	}
	if o.Ring == 0 {
		o.Ring = DefaultRing
	}
	w := &World{seed: o.Seed, start: o.Start.UTC().Round(0), posts: make(chan func(), maxPosts)}
	w.choices = w.Random("choices")
	// Runs differ in kind: in some a task is interrupted at every point, in others seldom.
	w.stay = w.choices.Float64() * 0.9
	w.trace = trace{to: o.Trace, keep: max(0, o.Ring), switches: o.Switches}
	w.outside = w.Process("world")
	w.outside.begin()
	return w
}

// Random makes a source of random numbers that depends on the seed and the name only, so that what one part draws does not
// shift what another does.
func (w *World) Random(name string) *rand.Rand {
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// Elapsed is the world's own time since its start.
func (w *World) Elapsed() time.Duration { return time.Duration(w.now) }

// Now is the world's own time. Processes have clocks of their own.
func (w *World) Now() time.Time { return w.start.Add(time.Duration(w.now)) }

// Stats says what has happened so far.
func (w *World) Stats() Stats { return w.stats }

// Go starts a task of the world's own, which no fault hits: a script of faults, a checker.
func (w *World) Go(name string, f func()) { w.outside.spawn(name, f) }

// Outside is the process of the world's own tasks.
func (w *World) Outside() *Process { return w.outside }

// After calls f at a later time, within the scheduler: f must not give way.
func (w *World) After(d time.Duration, f func()) { w.timers.add(w.now+int64(max(0, d)), f, nil, 0) }

// Fail ends the run with an error, such as what a checker found. The first one counts.
func (w *World) Fail(err error) {
	if w.err == nil {
		w.err = err
		w.Trace("failed", err.Error())
	}
}

// Failed says whether anything failed.
func (w *World) Failed() bool { return w.err != nil }

// End makes Run return after this step.
func (w *World) End() { w.stopping = true }

// Run lets the world go on for so long by its own time, or until all tasks have ended, End was called, or something
// failed. It can be called again. The error is a task's panic, a *Deadlock, or what Fail was told.
func (w *World) Run(d time.Duration) error {
	if w.closed {
		return errors.New("run a world: it is closed")
	}
	until := w.now + int64(d)
	w.stopping = false
	defer w.watch()()
	for w.err == nil && !w.stopping {
		if len(w.ready) > 0 {
			w.step()
			continue
		}
		next, ok := w.timers.next()
		switch {
		case ok && next <= until:
			w.advance(next)
		case ok:
			w.now = until
			return nil
		default:
			if stuck := w.stuck(); stuck != nil {
				w.Fail(stuck)
			}
			return w.err
		}
	}
	return w.err
}

// step lets one task go on until it gives way.
func (w *World) step() {
	i := w.choices.IntN(len(w.ready))
	t := w.ready[i]
	last := len(w.ready) - 1
	w.ready[i] = w.ready[last]
	w.ready[last] = nil
	w.ready = w.ready[:last]
	w.resume(t)
}

// resume switches to a task and back.
func (w *World) resume(t *task) {
	t.queued = false
	w.stats.Switches++
	w.beat.Add(1)
	before := w.current
	w.current = t
	if w.trace.switches {
		w.Trace("run", "")
	}
	w.runningIs.Store(&t.label)
	t.worker.next()
	w.current = before
	if t.ended {
		w.finish(t)
	}
	w.foreign.look()
}

// advance moves time on and lets everything happen that is due then.
func (w *World) advance(to int64) {
	w.now = max(w.now, to)
	for {
		at, ok := w.timers.next()
		if !ok || at > w.now || w.err != nil {
			return
		}
		timer := w.timers.pop()
		w.stats.Timers++
		w.beat.Add(1)
		if timer.task != nil {
			w.wake(timer.task, timer.epoch)
			continue
		}
		timer.f()
		w.foreign.look()
	}
}

// Close ends every task, running what they deferred, and leaves no goroutine behind.
func (w *World) Close() {
	if w.closed {
		return
	}
	w.closed = true
	for _, p := range w.processes {
		p.kill()
	}
	for _, k := range w.idle {
		k.stop()
	}
	w.idle = nil
}

// String names the world by its seed and its time.
func (w *World) String() string {
	return fmt.Sprintf("world of seed %d at %s", w.seed, time.Duration(w.now))
}
