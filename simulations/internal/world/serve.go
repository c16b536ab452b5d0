package world

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxPosts is how many calls of other goroutines wait for the world.
const maxPosts = 1024

// Serve runs the world for other goroutines, which call it through Do, at so many times real time, until ctx ends. It is
// how a suite that was written for real stores runs on simulated ones. The order of such calls is not the seed's.
func (w *World) Serve(ctx context.Context, speed float64) error {
	for w.err == nil {
		if len(w.ready) == 0 && !w.pause(ctx, speed) {
			break
		}
		select {
		case f := <-w.posts:
			f()
			w.foreign.look()
		default:
			if len(w.ready) > 0 {
				w.step()
			}
		}
		if ctx.Err() != nil {
			break
		}
	}
	return w.err
}

// pause waits for a call, or until the next timer is due; false when ctx has ended.
func (w *World) pause(ctx context.Context, speed float64) bool {
	var due <-chan time.Time
	next, ok := w.timers.next()
	if ok {
		timer := time.NewTimer(time.Duration(float64(next-w.now) / speed))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case f := <-w.posts:
		f()
		w.foreign.look()
	case <-due:
		w.advance(next)
	case <-ctx.Done():
		return false
	}
	return true
}

// ErrProcessEnded: the process that a call ran in has crashed.
var ErrProcessEnded = errors.New("the simulated process has ended")

// Do runs f as a task of the process, for a goroutine outside of the world, and waits for its end. F's context ends with
// ctx. While it runs, Serve must run.
func (p *Process) Do(ctx context.Context, name string, f func(ctx context.Context)) error {
	w := p.world
	ended := make(chan error, 1)
	var s *scope // touched by the world's goroutine only
	err := w.post(ctx, func() {
		if !p.up {
			ended <- ErrProcessEnded
			return
		}
		s = w.newScope(p.root.context)
		p.spawn(name, func() {
			result := ErrProcessEnded
			defer func() { ended <- result }()
			f(s.context)
			s.end(context.Canceled)
			result = nil
		})
	})
	if err != nil {
		return err
	}
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	w.posts <- func() {
		if s != nil {
			s.end(ctx.Err())
		}
	}
	return <-ended
}

func (w *World) post(ctx context.Context, f func()) error {
	select {
	case w.posts <- f:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("call the world: %w", ctx.Err())
	}
}

// Leave runs f on a goroutine of its own, for a task: f may wait for whatever it likes. The task goes on when f has
// returned. Only while Serve runs.
func (w *World) Leave(f func()) {
	t := w.mine()
	t.waiting, t.reason = true, "a call outside of the world"
	epoch := t.epoch
	go func() {
		f()
		w.posts <- func() { w.wake(t, epoch) }
	}()
	w.giveWay(t)
}
