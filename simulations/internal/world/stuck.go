package world

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Deadlock is the error of a world in which some tasks wait for something that nothing will ever do.
type Deadlock struct {
	Seed  uint64
	At    time.Duration // by the world's time
	Tasks []StuckTask
}

// StuckTask is one task that waits for ever.
type StuckTask struct {
	Process string
	Task    string
	Reason  string
	Stack   string // the calls that led there, innermost first
	Paused  bool   // its process stands still, and nobody will let it go on
}

// Error lists the tasks and where they wait.
func (d *Deadlock) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "deadlock at %s, seed %d: nothing can run and nothing is due; %d tasks wait", d.At, d.Seed, len(d.Tasks))
	for _, t := range d.Tasks {
		what := "waits for " + t.Reason
		if t.Paused {
			what = "is paused"
		}
		fmt.Fprintf(&b, "\n%s %s %s\n%s", t.Process, t.Task, what, t.Stack)
	}
	return b.String()
}

// asked tells a task that waits to note its stack and to wait on.
const asked = "?"

// stuck lists the tasks that wait while nothing is due; nil if there are none.
func (w *World) stuck() *Deadlock {
	d := &Deadlock{Seed: w.seed, At: time.Duration(w.now)}
	for _, p := range w.processes {
		for _, t := range p.tasks {
			s := StuckTask{Process: p.name, Task: t.name, Reason: t.reason, Paused: p.paused}
			if t.waiting {
				t.where = asked
				before := w.current
				w.current = t
				t.worker.next()
				w.current = before
				s.Stack, t.where = t.where, ""
			}
			d.Tasks = append(d.Tasks, s)
		}
	}
	if len(d.Tasks) == 0 {
		return nil
	}
	return d
}

const (
	stackDepth = 32
	ownPackage = "tranche/simulations/internal/world."
)

// stackHere is the calls of a task outside of this package.
func stackHere() string {
	var pcs [stackDepth]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs[:])])
	var b strings.Builder
	for {
		f, more := frames.Next()
		inside := strings.HasPrefix(f.Function, ownPackage) && !strings.HasSuffix(f.File, "_test.go") || strings.HasPrefix(f.Function, "runtime.") || strings.HasPrefix(f.Function, "iter.")
		if !inside && f.Function != "" {
			fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			return b.String()
		}
	}
}

// watchdogAfter is how long, in real time, one step may take.
const watchdogAfter = 20 * time.Second

// watch looks from outside whether steps come to an end, until the result is called. A step that does not holds a mutex
// across a call that takes time, waits for a channel, or loops: it would hang without a word.
func (w *World) watch() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(watchdogAfter)
		defer tick.Stop()
		for last := w.beat.Load(); ; {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			now := w.beat.Load()
			if label := w.runningIs.Load(); now == last && label != nil && now > 0 {
				buffer := make([]byte, 1<<20)
				panic(fmt.Sprintf("world: the step of task %q does not end: a mutex held across a call that takes time, a channel, or a loop\n%s",
					*label, buffer[:runtime.Stack(buffer, true)]))
			}
			last = now
		}
	}()
	return func() { close(done); <-ended }
}
