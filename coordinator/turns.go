package coordinator

import (
	"context"
	"fmt"
)

// turn is an act that waits for its turn.
type turn struct {
	ctx    context.Context
	decide func() (Change, error)
	done   chan error // holds one
}

// inTurn is act for the acts that raise a number of the deployment's document. All of them rest on that one document, so
// of several at once only one could be committed, and the slower would lose again and again: here they wait in line, and
// only another replica's act can be a conflict.
func (s *Service) inTurn(ctx context.Context, decide func() (Change, error)) error {
	t := &turn{ctx: ctx, decide: decide, done: make(chan error, 1)}
	select {
	case s.turns <- t:
	case <-ctx.Done():
		return fmt.Errorf("wait for a turn: %w", ctx.Err())
	case <-s.stopped:
		return ErrStopped
	}
	return <-t.done // an act ends with its context
}

// takeTurns does the acts one after the other, until ctx ends.
func (s *Service) takeTurns(ctx context.Context) error {
	defer close(s.stopped)
	for {
		select {
		case <-ctx.Done():
			return nil
		case t := <-s.turns:
			t.done <- s.act(t.ctx, t.decide)
		}
	}
}
