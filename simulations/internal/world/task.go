package world

import (
	"context"
	"fmt"
	"iter"
	"runtime/debug"
)

// killed is what unwinds a task of a crashed process. Nobody but the worker may recover it.
type killed struct{}

// Crashed says whether a recovered value is the end of a crashed process: whoever recovers panics of its own must pass
// this one on.
func Crashed(recovered any) bool {
	_, is := recovered.(killed)
	return is
}

// task is one function on its way.
type task struct {
	process *Process
	name    string
	label   string // process and name, for reports
	f       func()
	worker  *worker
	place   int // among the tasks of its process

	epoch   uint64 // rises whenever a wait ends: a later wake-up of that wait is nobody's
	waiting bool
	queued  bool // among the ready ones
	held    bool // would be ready, but its process is paused
	reason  string
	entry   *foreignWait // while it waits for a context of somebody else

	ended bool
	dead  bool
	where string // of a deadlock: the stack at which it waits
}

// worker is a coroutine that runs one task after the other.
type worker struct {
	world *World
	task  *task
	yield func(struct{}) bool
	next  func() (struct{}, bool)
	stop  func()
}

func (w *World) newWorker() *worker {
	k := &worker{world: w}
	k.next, k.stop = iter.Pull(func(yield func(struct{}) bool) {
		k.yield = yield
		for k.runTask() && yield(struct{}{}) {
		}
	})
	return k
}

// runTask runs the task at hand to its end; false if it was killed, and the worker with it.
func (k *worker) runTask() (alive bool) {
	t := k.task
	defer func() {
		t.ended = true
		switch r := recover(); {
		case r == nil:
			alive = !t.dead
		case t.dead || Crashed(r):
			// Whatever a deferred function of a dead task says is not heard.
		default:
			k.world.Fail(fmt.Errorf("task %s: panic: %v\n%s", t.label, r, debug.Stack()))
			alive = true
		}
	}()
	t.f()
	return true
}

// spawn makes a task of a process; it can run from now on.
func (p *Process) spawn(name string, f func()) {
	w := p.world
	w.stats.Tasks++
	t := &task{process: p, name: name, label: p.name + " " + name, f: f, place: len(p.tasks)}
	p.tasks = append(p.tasks, t)
	if n := len(w.idle); n > 0 {
		t.worker = w.idle[n-1]
		w.idle = w.idle[:n-1]
	} else {
		t.worker = w.newWorker()
	}
	t.worker.task = t
	w.enqueue(t)
}

// finish takes a task that has returned off its process, and its worker back.
func (w *World) finish(t *task) {
	t.process.drop(t)
	if !t.dead && w.err == nil {
		t.worker.task = nil
		w.idle = append(w.idle, t.worker)
	} else if !t.dead {
		t.worker.stop()
	}
}

func (p *Process) drop(t *task) {
	if t.place < 0 {
		return
	}
	last := len(p.tasks) - 1
	p.tasks[t.place] = p.tasks[last]
	p.tasks[t.place].place = t.place
	p.tasks[last] = nil
	p.tasks = p.tasks[:last]
	t.place = -1
	if last == 0 && p.idle != nil {
		p.idle()
	}
}

// enqueue makes a task ready, or holds it while its process is paused.
func (w *World) enqueue(t *task) {
	if t.process.paused {
		if !t.held {
			t.held = true
			t.process.held = append(t.process.held, t)
		}
		return
	}
	t.queued = true
	w.ready = append(w.ready, t)
}

// wake ends a wait, unless that one has ended already.
func (w *World) wake(t *task, epoch uint64) {
	if t.dead || !t.waiting || t.epoch != epoch {
		return
	}
	t.waiting = false
	t.epoch++
	if t.entry != nil {
		w.foreign.remove(t.entry)
		t.entry = nil
	}
	w.enqueue(t)
}

// mine is the task that runs. Calls that give way are for tasks only.
func (w *World) mine() *task {
	t := w.current
	if t == nil {
		panic("world: a call that takes time was made outside of all tasks")
	}
	if t.dead {
		panic(killed{})
	}
	return t
}

// alive panics in a dead task: whatever it does, it does not do it any more.
func (w *World) alive() {
	if w.current != nil && w.current.dead {
		panic(killed{})
	}
}

// giveWay switches back to the scheduler, until the task is chosen again.
func (w *World) giveWay(t *task) {
	w.stats.Points++
	for {
		if !t.worker.yield(struct{}{}) {
			t.dead = true
			panic(killed{})
		}
		if t.where != asked {
			return
		}
		t.where = stackHere()
	}
}

// Point gives way: others may run before this task goes on. Time does not pass.
func (w *World) Point() {
	t := w.mine()
	if len(w.ready) == 0 && !t.process.paused || w.choices.Float64() < w.stay && !t.process.paused {
		w.stats.Points++
		return
	}
	w.enqueue(t)
	t.reason = "its turn"
	w.giveWay(t)
}

// Wake lets a task go on that waits in Await. It may be called more than once.
type Wake func()

// Await waits until wake is called, or ctx ends. Begin arranges for wake to be called; it runs before the task gives way.
// The reason is for reports. It returns ctx's error if ctx had ended by then, whatever else happened.
func (w *World) Await(ctx context.Context, reason string, begin func(wake Wake)) error {
	t := w.mine()
	if err := ctx.Err(); err != nil {
		w.Point() // whoever asks again and again must let others run
		return err
	}
	t.waiting, t.reason = true, reason
	epoch := t.epoch
	scoped := w.waitFor(ctx, t)
	begin(func() { w.wake(t, epoch) })
	w.giveWay(t)
	if scoped != nil {
		scoped.forget(t)
	}
	return ctx.Err()
}
