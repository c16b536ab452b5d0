package world

import "context"

// Signal is what the services call a signal. It is an alias, so that an alias of the same form elsewhere is the same type:
//
//	type Signal = interface {
//		Notify()
//		Wait(ctx context.Context)
//	}
type Signal = interface {
	// Notify lets one Wait return: the one that waits longest, or else the next. Several before that count as one. It
	// does not give way.
	Notify()
	// Wait returns at the next Notify after the last Wait returned, or when ctx ends.
	Wait(ctx context.Context)
}

type signal struct {
	world   *World
	set     bool
	waiting []waiter
}

// NewSignal makes a signal that nobody has notified yet.
func (p *Process) NewSignal() Signal { return &signal{world: p.world} }

func (s *signal) Notify() {
	s.world.alive()
	for len(s.waiting) > 0 {
		first := s.waiting[0]
		s.waiting = s.waiting[1:]
		if t := first.task; !t.dead && t.waiting && t.epoch == first.epoch {
			s.world.wake(t, first.epoch)
			return
		}
	}
	s.set = true
}

func (s *signal) Wait(ctx context.Context) {
	t := s.world.mine()
	if s.set {
		s.set = false
		s.world.Point()
		return
	}
	_ = s.world.Await(ctx, "a signal", func(Wake) { s.waiting = append(s.waiting, waiter{t, t.epoch}) })
}

// Lock is a lock that may be held across calls that take time. Who waits gets it in order.
type Lock struct {
	world   *World
	taken   bool
	waiting []waiter
}

// NewLock makes a lock that is free.
func (w *World) NewLock() *Lock { return &Lock{world: w} }

// Take waits for the lock; the error is ctx's.
func (l *Lock) Take(ctx context.Context) error {
	t := l.world.mine()
	if err := ctx.Err(); err != nil {
		return err
	}
	for l.taken {
		if err := l.world.Await(ctx, "a lock", func(Wake) { l.waiting = append(l.waiting, waiter{t, t.epoch}) }); err != nil {
			l.pass() // the turn may have been ours
			return err
		}
	}
	l.taken = true
	return nil
}

// Give frees the lock.
func (l *Lock) Give() {
	l.taken = false
	l.pass()
}

func (l *Lock) pass() {
	for !l.taken && len(l.waiting) > 0 {
		first := l.waiting[0]
		l.waiting = l.waiting[1:]
		if t := first.task; !t.dead && t.waiting && t.epoch == first.epoch {
			l.world.wake(t, first.epoch)
			return
		}
	}
}
