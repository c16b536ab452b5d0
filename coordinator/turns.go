package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// turns lets acts go one after the other, in the order in which they came.
type turns struct {
	mu      sync.Mutex // never held while an act is done
	taken   bool
	line    []*turn
	stopped bool // no turn is given any more
}

// turn is an act that waits for its turn.
type turn struct {
	mine  bool
	ahead Signal // notified when it is its turn, or when there will be none
}

// inTurn is act for the acts that raise a number of the deployment's document. All of them rest on that one document, so
// of several at once only one could be committed, and the slower would lose again and again: here they wait in line, and
// only another replica's act can be a conflict.
func (s *Service) inTurn(ctx context.Context, decide func() (Change, error)) error {
	if err := s.turns.take(ctx, s.runtime); err != nil {
		return err
	}
	defer s.turns.pass()
	return s.act(ctx, decide)
}

// take waits for a turn, which must be passed on.
func (t *turns) take(ctx context.Context, r Runtime) error {
	t.mu.Lock()
	if !t.taken && !t.stopped {
		t.taken = true
		t.mu.Unlock()
		return nil
	}
	own := &turn{ahead: r.NewSignal()}
	t.line = append(t.line, own)
	t.mu.Unlock()
	for {
		if mine, err := t.look(ctx, own); mine || err != nil {
			return err
		}
		own.ahead.Wait(ctx)
	}
}

// look says whether the turn has come. With an error it never will.
func (t *turns) look(ctx context.Context, own *turn) (mine bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case own.mine: // also if ctx has ended: whoever passed it on does not pass it again
		return true, nil
	case t.stopped:
		err = ErrStopped
	case ctx.Err() != nil:
		err = fmt.Errorf("wait for a turn: %w", ctx.Err())
	default:
		return false, nil
	}
	t.line = slices.DeleteFunc(t.line, func(o *turn) bool { return o == own })
	return false, err
}

// pass ends a turn, and gives it to whoever waits longest.
func (t *turns) pass() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.line) == 0 || t.stopped {
		t.taken = false
		return
	}
	next := t.line[0]
	t.line = slices.Delete(t.line, 0, 1)
	next.mine = true
	next.ahead.Notify()
}

// stop gives no turn any more. The one under way goes on to its end.
func (t *turns) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	for _, own := range t.line {
		own.ahead.Notify()
	}
}
