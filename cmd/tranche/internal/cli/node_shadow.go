package cli

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"tranche/regional"
	"tranche/regional/postgres"
)

// shadowAgain is how long a node in shadow waits before it tries again to reach its database.
const shadowAgain = 2 * time.Second

// shadowed is a node that must answer whatever becomes of its database: it is made when that is reached, and it is only
// logged when it ends.
type shadowed struct {
	*regional.Late
	open func(context.Context) (*postgres.Store, error)
	make func(*postgres.Store) *regional.Node
	log  hclog.Logger
}

// run reaches the database, and runs the node over it, until ctx ends.
func (s *shadowed) run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.once(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Error("in shadow: nothing is decided, and everything is let through", "error", err)
		again := time.NewTimer(shadowAgain)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
		}
	}
	return nil
}

func (s *shadowed) once(ctx context.Context) error {
	owner, err := s.open(ctx)
	if err != nil {
		return err
	}
	defer owner.Shut()
	node := s.make(owner)
	s.Come(node)
	defer s.Come(nil)
	if err := node.Run(ctx); err != nil {
		return err
	}
	return errors.New("the node ended")
}
