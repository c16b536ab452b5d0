package world

import (
	"context"
	"time"
)

// scope is the life of a context that the world ends. It has two faces: edge, the inner one, of a type of ours, whose end
// is reported with the right error; and context, made of edge by package context, so that all that is derived from it
// ends at the same moment, without a goroutine.
//
//	parent ◀── edge (ours: Err, Deadline, AfterFunc) ◀── context (package context's) ◀── whatever the services derive
type scope struct {
	world    *World
	context  context.Context
	cancel   context.CancelFunc // of context
	parent   *scope             // that ends this one; nil: none, or one that is not ours
	place    int                // among the parent's inner scopes
	inner    []*scope
	waiters  []waiter
	watched  *foreignWait // while a parent that is not ours must be looked at
	timer    *timer
	deadline time.Time

	done  chan struct{}
	err   error
	after func()
}

type waiter struct {
	task  *task
	epoch uint64
}

// edge is the face of a scope towards package context.
type edge struct {
	context.Context
	scope *scope
}

type scopeKey struct{}

func (e edge) Done() <-chan struct{} { return e.scope.done }
func (e edge) Err() error            { return e.scope.err }

func (e edge) Deadline() (time.Time, bool) {
	if e.scope.deadline.IsZero() {
		return e.Context.Deadline()
	}
	return e.scope.deadline, true
}

func (e edge) Value(key any) any {
	if key == (scopeKey{}) {
		return e.scope
	}
	return e.Context.Value(key)
}

// AfterFunc is how package context asks to hear of the end of a context that is not its own.
func (e edge) AfterFunc(f func()) (stop func() bool) {
	e.scope.after = f
	return func() bool { return true }
}

// newScope makes a scope that ends with its parent.
func (w *World) newScope(parent context.Context) *scope {
	s := &scope{world: w, done: make(chan struct{}), place: -1}
	if err := parent.Err(); err != nil {
		s.err = err
		close(s.done)
		s.context, s.cancel = context.WithCancel(edge{parent, s})
		return s
	}
	s.context, s.cancel = context.WithCancel(edge{parent, s})
	if p := scopeOf(parent); p != nil {
		s.parent, s.place = p, len(p.inner)
		p.inner = append(p.inner, s)
	} else if parent.Done() != nil {
		s.watched = w.foreign.add(parent, func() { s.end(parent.Err()) })
	}
	return s
}

// scopeOf is the scope that ctx ends with, exactly; nil if ctx is not one of ours, or was derived and may end earlier.
func scopeOf(ctx context.Context) *scope {
	s, _ := ctx.Value(scopeKey{}).(*scope)
	if s == nil || ctx.Done() != s.context.Done() {
		return nil
	}
	return s
}

// end ends the scope and all within it, once.
func (s *scope) end(err error) {
	if s.err != nil {
		return
	}
	s.err = err
	close(s.done)
	if s.after != nil {
		s.after()
	}
	s.cancel()
	w := s.world
	w.timers.remove(s.timer)
	if s.watched != nil {
		w.foreign.remove(s.watched)
		s.watched = nil
	}
	if p := s.parent; p != nil {
		last := len(p.inner) - 1
		p.inner[s.place] = p.inner[last]
		p.inner[s.place].place = s.place
		p.inner[last] = nil
		p.inner = p.inner[:last]
		s.parent = nil
	}
	for len(s.inner) > 0 {
		s.inner[len(s.inner)-1].end(err)
	}
	for _, x := range s.waiters {
		w.wake(x.task, x.epoch)
	}
	s.waiters = nil
}

func (s *scope) forget(t *task) {
	for i, x := range s.waiters {
		if x.task == t {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			return
		}
	}
}

// WithTimeout is a context that ends after d by the process's clock, with context.DeadlineExceeded.
func (p *Process) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	w := p.world
	w.alive()
	s := w.newScope(ctx)
	s.deadline = p.Now().Add(d)
	if outer, ok := ctx.Deadline(); ok && outer.Before(s.deadline) {
		s.deadline = outer
	}
	if s.err == nil {
		if d <= 0 {
			s.end(context.DeadlineExceeded)
		} else {
			s.timer = w.timers.add(w.now+p.worldly(d), func() { s.end(context.DeadlineExceeded) }, nil, 0)
		}
	}
	return s.context, func() { s.end(context.Canceled) }
}

// waitFor has a task woken when ctx ends. The result, if any, must forget the task after the wait.
func (w *World) waitFor(ctx context.Context, t *task) *scope {
	if s := scopeOf(ctx); s != nil {
		s.waiters = append(s.waiters, waiter{t, t.epoch})
		return s
	}
	if ctx.Done() != nil {
		epoch := t.epoch
		t.entry = w.foreign.add(ctx, func() { t.entry = nil; w.wake(t, epoch) })
	}
	return nil
}

// foreign are the contexts that something waits for and that the world does not end itself, such as one of
// context.WithCancel: they are looked at after every step, since only a step can have ended them.
type foreign struct{ waits []*foreignWait }

type foreignWait struct {
	ctx   context.Context
	ended func()
	place int
}

func (f *foreign) add(ctx context.Context, ended func()) *foreignWait {
	x := &foreignWait{ctx: ctx, ended: ended, place: len(f.waits)}
	f.waits = append(f.waits, x)
	return x
}

func (f *foreign) remove(x *foreignWait) {
	if x.place < 0 {
		return
	}
	last := len(f.waits) - 1
	f.waits[x.place] = f.waits[last]
	f.waits[x.place].place = x.place
	f.waits[last] = nil
	f.waits = f.waits[:last]
	x.place = -1
}

func (f *foreign) look() {
	for i := 0; i < len(f.waits); {
		x := f.waits[i]
		if x.ctx.Err() == nil {
			i++
			continue
		}
		f.remove(x)
		x.ended()
		i = 0 // others may have gone with it
	}
}
