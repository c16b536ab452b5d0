package world

import (
	"context"
	"math/rand/v2"
	"time"
)

// Process is one simulated process: what is lost together in a crash, and has one clock. It has the methods that the
// services ask of their runtime. They work only while the process runs.
type Process struct {
	*Clock
	world *World
	name  string

	random *rand.Rand
	lives  int
	up     bool
	root   *scope
	tasks  []*task
	held   []*task // would be ready if the process were not paused
	paused bool
	idle   func() // hears when the last task has returned
	onEnd  []func()
}

// Process makes a process that does not run yet. Names should be unique; the trace shows 16 bytes of them.
func (w *World) Process(name string) *Process {
	p := &Process{Clock: w.NewClock(), world: w, name: name, random: w.Random("process " + name)}
	w.processes = append(w.processes, p)
	return p
}

// World is where the process lives.
func (p *Process) World() *World { return p.world }

// Name is the process's name.
func (p *Process) Name() string { return p.name }

// Up says whether the process runs, paused or not.
func (p *Process) Up() bool { return p.up }

// Paused says whether the process stands still.
func (p *Process) Paused() bool { return p.paused }

// Lives counts how often the process was started.
func (p *Process) Lives() int { return p.lives }

// Random is the process's source of random numbers.
func (p *Process) Random() *rand.Rand { return p.random }

// Read fills b from the process's source of random numbers, for ids and stamps. It never fails.
func (p *Process) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(p.random.Uint32())
	}
	return len(b), nil
}

// OnEnd has f called whenever the process has crashed or has ended: what others notice of it, such as broken connections.
// It is called within the scheduler, or by the task that caused it.
func (p *Process) OnEnd(f func()) { p.onEnd = append(p.onEnd, f) }

// Start runs main as the process's first task, with a context that ends when the process is stopped. The process ends
// when all of its tasks have returned. It must not be running.
func (p *Process) Start(main func(ctx context.Context)) {
	if p.up {
		panic("world: process " + p.name + " is running already")
	}
	p.begin()
	p.world.trace.add(p.world.now, p.name, "-", "start", "")
	p.idle = func() { p.end("ended") }
	root := p.root.context
	p.spawn("main", func() { main(root) })
}

func (p *Process) begin() {
	p.up, p.paused = true, false
	p.lives++
	p.root = p.world.newScope(context.Background())
}

// Serve makes the process run without a task of its own: a server, whose tasks are made by what others ask of it.
func (p *Process) Serve() {
	if p.up {
		panic("world: process " + p.name + " is running already")
	}
	p.begin()
	p.idle = nil
	p.world.trace.add(p.world.now, p.name, "-", "start", "")
}

// Context ends when the process is stopped. It is nil before the first start.
func (p *Process) Context() context.Context {
	if p.root == nil {
		return nil
	}
	return p.root.context
}

// Stop ends the process's context. Its tasks return by themselves.
func (p *Process) Stop() {
	if p.up {
		p.world.trace.add(p.world.now, p.name, "-", "stop", "")
		p.root.end(context.Canceled)
	}
}

// Crash ends the process at once: none of its tasks runs again. If the task that calls is one of them, Crash does not
// return.
func (p *Process) Crash() {
	w := p.world
	w.alive()
	if !p.up {
		return
	}
	self := w.current != nil && w.current.process == p
	p.end("crash")
	p.kill()
	if self {
		w.current.dead = true
		panic(killed{})
	}
}

func (p *Process) end(how string) {
	p.up, p.paused, p.idle = false, false, nil
	p.world.trace.add(p.world.now, p.name, "-", how, "")
	for _, f := range p.onEnd {
		f()
	}
}

// kill unwinds all tasks, but for the one that runs.
func (p *Process) kill() {
	w := p.world
	p.idle = nil
	for len(p.tasks) > 0 {
		t := p.tasks[len(p.tasks)-1]
		t.dead = true
		w.forget(t)
		p.drop(t)
		if t == w.current {
			continue // it unwinds itself
		}
		before := w.current
		w.current = t
		t.worker.stop()
		w.current = before
	}
	p.held, p.up, p.paused = nil, false, false
	if p.root != nil {
		p.root.end(context.Canceled) // nobody is left to hear of it; this takes the timers away
	}
}

// forget takes a task out of whatever it waits in.
func (w *World) forget(t *task) {
	t.waiting = false
	t.epoch++
	if t.entry != nil {
		w.foreign.remove(t.entry)
		t.entry = nil
	}
	if !t.queued {
		return
	}
	for i, r := range w.ready {
		if r == t {
			w.ready = append(w.ready[:i], w.ready[i+1:]...)
			return
		}
	}
}

// Pause makes the process stand still: time goes on, its tasks do not. Connections stay.
func (p *Process) Pause() {
	if !p.up || p.paused {
		return
	}
	w := p.world
	p.paused = true
	w.trace.add(w.now, p.name, "-", "pause", "")
	kept := w.ready[:0]
	for _, t := range w.ready {
		if t.process == p {
			t.queued, t.held = false, true
			p.held = append(p.held, t)
			continue
		}
		kept = append(kept, t)
	}
	clear(w.ready[len(kept):])
	w.ready = kept
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	if !p.up || !p.paused {
		return
	}
	p.paused = false
	p.world.trace.add(p.world.now, p.name, "-", "resume", "")
	for _, t := range p.held {
		t.held = false
		p.world.enqueue(t)
	}
	p.held = nil
}

// Go starts another task of the process.
func (p *Process) Go(name string, f func()) {
	p.world.alive()
	if p.up {
		p.spawn(name, f)
	}
}

// Jitter is a random part of d, by the process's source of random numbers.
func (p *Process) Jitter(d time.Duration) time.Duration {
	return time.Duration(p.random.Int64N(int64(max(d, 1))))
}

// Sleep waits by the process's clock, or less when ctx ends.
func (p *Process) Sleep(ctx context.Context, d time.Duration) {
	w := p.world
	w.alive()
	if d <= 0 {
		w.Point()
		return
	}
	t := w.mine()
	at := w.now + p.worldly(d)
	timer := (*timer)(nil)
	_ = w.Await(ctx, "sleep", func(Wake) { timer = w.timers.add(at, nil, t, t.epoch) })
	w.timers.remove(timer)
}
