package etcdtwin

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/world"
)

const (
	leaseFor       = 10 * time.Second
	leadAgain      = time.Second
	releaseTimeout = 3 * time.Second
	campaignPoll   = 4 * time.Second // one request of a candidate that waits
)

var errNotRenewed = errors.New("the lease was not renewed")

// Lead implements coordinator.Store. The cluster lets a lease expire by its own time; the leader learns of it by its own
// clock, and maybe later: between the two, another one leads as well.
func (s *Store) Lead(ctx context.Context, name string, work func(ctx context.Context) error) error {
	for ctx.Err() == nil {
		if err := s.leadOnce(ctx, name, work); err != nil && ctx.Err() == nil {
			s.cluster.world.Trace("etcd.lead", name+": "+err.Error())
		}
		if ctx.Err() == nil {
			s.process.Sleep(ctx, leadAgain)
		}
	}
	return ctx.Err()
}

func (s *Store) leadOnce(ctx context.Context, name string, work func(ctx context.Context) error) error {
	c, p := s.cluster, s.process
	id, err := s.grant(ctx, name)
	if err != nil {
		return fmt.Errorf("campaign: %w", err)
	}
	defer s.revoke(ctx, id)
	held, lose := context.WithCancel(ctx)
	ended := p.NewSignal()
	p.Go("lease", func() {
		defer ended.Notify()
		s.keepAlive(held, id)
		lose()
	})
	defer func() {
		lose()
		ended.Wait(context.WithoutCancel(ctx))
	}()
	for first := false; !first; {
		if held.Err() != nil {
			return errNotRenewed
		}
		var answered bool
		first, answered = s.first(held, id)
		if !answered && held.Err() == nil {
			p.Sleep(held, leadAgain/4)
		}
	}
	c.world.Trace("etcd.lead", name+" taken by "+p.Name())
	err = work(held)
	if held.Err() != nil && ctx.Err() == nil {
		return errNotRenewed
	}
	return err
}

// grant makes a lease, and a candidate's key that stands as long as the lease.
func (s *Store) grant(ctx context.Context, name string) (int64, error) {
	c := s.cluster
	id, err := call(ctx, s, "etcd.campaign", func(ctx context.Context) (id int64) {
		c.propose(ctx, func() {
			c.lastID++
			id = c.lastID
			l := &lease{id: id, key: leaderRoot + name + "/" + strconv.FormatInt(id, 16)}
			c.leases[id] = l
			c.commit(s.process.Name(), coordinator.Txn{Puts: []coordinator.Item{{Key: l.key, Value: []byte(s.process.Name())}}})
			c.renew(l)
		})
		return id
	})
	if err == nil && id == 0 {
		err = errNoQuorum
	}
	return id, err
}

// renew arranges for the lease to expire unless it is renewed again. Without a quorum nothing expires.
func (c *Cluster) renew(l *lease) {
	l.renewed++
	renewed := l.renewed
	c.world.After(leaseFor, func() {
		if c.leases[l.id] == l && l.renewed == renewed && !c.NoQuorum {
			c.drop(l, "expired")
		}
	})
}

func (c *Cluster) drop(l *lease, how string) {
	delete(c.leases, l.id)
	c.world.Trace("etcd.lease", how+" "+l.key)
	c.commit("lease", coordinator.Txn{Deletes: []string{l.key}})
}

// first waits, for a while, until the candidate is the first in line.
func (s *Store) first(ctx context.Context, id int64) (first, answered bool) {
	c := s.cluster
	first, err := call(ctx, s, "etcd.first", func(ctx context.Context) bool {
		ctx, cancel := c.server.WithTimeout(ctx, campaignPoll)
		defer cancel()
		for ctx.Err() == nil && c.quorum(ctx) && c.leases[id] != nil && !c.isFirst(id) {
			_ = c.world.Await(ctx, "a leadership", func(wake world.Wake) { c.changed = append(c.changed, wake) })
		}
		return !c.NoQuorum && c.isFirst(id)
	})
	return first, err == nil
}

// isFirst says whether the candidate's key is the oldest of its leadership.
func (c *Cluster) isFirst(id int64) bool {
	l := c.leases[id]
	if l == nil {
		return false
	}
	mine := c.keys.values[l.key].Revision
	for _, item := range c.keys.rangeOf(l.key[:strings.LastIndexByte(l.key, '/')+1]) {
		if item.Revision < mine {
			return false
		}
	}
	return mine > 0
}

// keepAlive renews the lease until ctx ends or the lease is lost, as far as this process can tell.
func (s *Store) keepAlive(ctx context.Context, id int64) {
	c, p := s.cluster, s.process
	until := p.Now().Add(leaseFor)
	for ctx.Err() == nil {
		p.Sleep(ctx, leaseFor/3)
		started := p.Now()
		bounded, cancel := p.WithTimeout(ctx, leaseFor/3)
		there, err := call(bounded, s, "etcd.renew", func(ctx context.Context) bool {
			l := c.leases[id]
			if c.NoQuorum || l == nil {
				return false
			}
			c.renew(l)
			return true
		})
		cancel()
		if err == nil && there {
			until = started.Add(leaseFor)
			continue
		}
		if err == nil && !c.NoQuorum || !p.Now().Before(until) {
			break
		}
	}
	if c.LeaderLag > 0 {
		p.Sleep(ctx, time.Duration(c.random.Int64N(int64(c.LeaderLag))))
	}
}

// revoke gives the lease back. If the word does not get through, it expires by itself.
func (s *Store) revoke(ctx context.Context, id int64) {
	c := s.cluster
	ctx, cancel := s.process.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, _ = call(ctx, s, "etcd.revoke", func(ctx context.Context) bool {
		return c.propose(ctx, func() {
			if l := c.leases[id]; l != nil {
				c.drop(l, "given back")
			}
		})
	})
}
