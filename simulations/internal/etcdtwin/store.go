package etcdtwin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// callTimeout bounds one request, as in coordinator/etcd.
const callTimeout = 5 * time.Second

// Store is one process's client of the cluster.
type Store struct {
	cluster *Cluster
	process *world.Process
}

var _ coordinator.Store = (*Store)(nil)

// Store makes a client for a process. It serves all lives of the process.
func (c *Cluster) Store(p *world.Process) *Store { return &Store{cluster: c, process: p} }

// call makes a request that is served at the cluster, within the time that one may take.
func call[T any](ctx context.Context, s *Store, name string, serve func(ctx context.Context) T) (T, error) {
	ctx, cancel := s.process.WithTimeout(ctx, callTimeout)
	defer cancel()
	return network.Call(ctx, s.cluster.net, s.process, s.cluster.server, network.Connection, name, serve)
}

var errNoQuorum = errors.New("etcd has no quorum")

type rangeReply struct {
	items    []coordinator.Item
	revision int64
	ok       bool
}

// Range implements coordinator.Store.
func (s *Store) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	c := s.cluster
	reply, err := call(ctx, s, "etcd.range", func(ctx context.Context) rangeReply {
		if !c.quorum(ctx) {
			return rangeReply{}
		}
		return rangeReply{c.keys.rangeOf(prefix), c.keys.revision, true}
	})
	if err == nil && !reply.ok {
		err = errNoQuorum
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", prefix, err)
	}
	return reply.items, reply.revision, nil
}

type commitReply struct {
	result coordinator.TxnResult
	known  bool
}

// Commit implements coordinator.Store.
func (s *Store) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	if err := txn.Check(); err != nil {
		return coordinator.TxnResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return coordinator.TxnResult{}, fmt.Errorf("commit, before it was sent: %w", err)
	}
	c, who := s.cluster, s.process.Name()
	reply, err := call(ctx, s, "etcd.commit", func(ctx context.Context) (r commitReply) {
		r.known = c.propose(ctx, func() { r.result = c.commit(who, txn) })
		return r
	})
	switch {
	case err != nil: // also a refused connection: the real client does not tell that from one that broke
		c.world.Trace("etcd.unknown", err.Error())
		return coordinator.TxnResult{}, fmt.Errorf("%w: %w", coordinator.ErrUnknownOutcome, err)
	case !reply.known:
		c.world.Trace("etcd.unknown", errNoQuorum.Error())
		return coordinator.TxnResult{}, fmt.Errorf("%w: %w", coordinator.ErrUnknownOutcome, errNoQuorum)
	}
	return reply.result, nil
}

// Compact implements coordinator.Store.
func (s *Store) Compact(ctx context.Context, revision int64) error {
	c := s.cluster
	known, err := call(ctx, s, "etcd.compact", func(ctx context.Context) bool {
		return c.propose(ctx, func() { c.keys.compact(revision) })
	})
	if err == nil && !known {
		err = errNoQuorum
	}
	if err != nil {
		return fmt.Errorf("compact to revision %d: %w", revision, err)
	}
	return nil
}

// Members implements coordinator.Store.
func (s *Store) Members(ctx context.Context) ([]coordinator.Member, error) {
	c := s.cluster
	members, err := call(ctx, s, "etcd.members", func(context.Context) []coordinator.Member {
		var all []coordinator.Member
		for i := range c.members {
			m := coordinator.Member{Name: fmt.Sprintf("%s-%d", c.server.Name(), i), Healthy: !c.NoQuorum, Leader: i == 0 && !c.NoQuorum, Version: "twin"}
			if c.NoQuorum {
				m.Problem = "it knows no leader"
			}
			m.Endpoint = "http://" + m.Name + ":2379"
			all = append(all, m)
		}
		return all
	})
	if err == nil {
		return members, nil
	}
	for i := range c.members {
		m := coordinator.Member{Name: fmt.Sprintf("%s-%d", c.server.Name(), i), Problem: err.Error()}
		members = append(members, m)
	}
	return members, ctx.Err()
}
