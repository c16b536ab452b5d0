package embedded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"go.etcd.io/etcd/server/v3/embed"
)

// ErrEnded says that a member ended without being asked to.
var ErrEnded = errors.New("etcd member ended by itself")

// Server is an etcd member in this process.
type Server struct {
	etcd      *embed.Etcd
	temporary string // removed at Close; empty if Dir was the caller's
	close     sync.Once
	closed    error
}

// Start runs a member and returns when it serves, which for one of several needs
// a majority of them. The context bounds the start only, not the member's life.
// If an error is returned nothing runs and no temporary folder is left.
func Start(ctx context.Context, options Options) (*Server, error) {
	options = options.withDefaults()
	s := &Server{}
	if options.Dir == "" {
		dir, err := os.MkdirTemp("", "tranche-etcd-")
		if err != nil {
			return nil, fmt.Errorf("start etcd: %w", err)
		}
		options.Dir, s.temporary = dir, dir
	}
	if err := s.start(ctx, options); err != nil {
		return nil, errors.Join(fmt.Errorf("start etcd in %s: %w", options.Dir, err), s.Close())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, options Options) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	cfg, err := options.config()
	if err != nil {
		return err
	}
	if s.etcd, err = embed.StartEtcd(cfg); err != nil {
		return err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case <-s.etcd.Server.StopNotify():
		return ErrEnded
	case err := <-s.etcd.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Endpoints is where clients reach this member.
func (s *Server) Endpoints() []string {
	var endpoints []string
	for _, listener := range s.etcd.Clients {
		endpoints = append(endpoints, "http://"+listener.Addr().String())
	}
	return endpoints
}

// wait returns why the member ended by itself, or nil when the context ends.
func (s *Server) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.etcd.Err():
		return fmt.Errorf("%w: %w", ErrEnded, err)
	case <-s.etcd.Server.StopNotify():
		return ErrEnded
	}
}

// Close ends the member in order and removes a temporary folder. Calls that are
// under way may hold it up for a few seconds. Closing again does nothing.
func (s *Server) Close() error {
	s.close.Do(func() {
		if s.etcd != nil {
			s.etcd.Close()
		}
		if s.temporary != "" {
			s.closed = os.RemoveAll(s.temporary)
		}
	})
	return s.closed
}

// RunMember runs a member until the context ends, which is no error, or until
// the member ends by itself, which is ErrEnded.
func RunMember(ctx context.Context, options Options) error {
	s, err := Start(ctx, options)
	if err != nil {
		return err
	}
	return errors.Join(s.wait(ctx), s.Close())
}
