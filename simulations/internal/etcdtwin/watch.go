package etcdtwin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/world"
)

// progressEvery is how often a watch asks how far it is, as in coordinator/etcd.
const progressEvery = 250 * time.Millisecond

// watch is one watch of one process: up to which revision the cluster's word has come through.
type watch struct {
	store   *Store
	arrived int64
	wake    world.Wake
}

func (x *watch) arrive(revision int64) {
	if revision > x.arrived {
		x.arrived = revision
		if x.wake != nil {
			x.wake()
		}
	}
}

// Watch implements coordinator.Store. What the cluster sends may be lost with the connection; a watch connects again by
// itself, asks how far the cluster is, and goes on after the last change that it saw. Without a quorum nothing comes.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	c := s.cluster
	x := &watch{store: s, arrived: after}
	c.watches = append(c.watches, x)
	defer func() {
		c.watches = slices.DeleteFunc(c.watches, func(o *watch) bool { return o == x })
	}()
	for last := after; ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		if x.arrived > last || c.compactedUnder(last) {
			groups, known := c.keys.since(prefix, last, x.arrived)
			if !known {
				return fmt.Errorf("watch %s after revision %d: %w", prefix, last, coordinator.ErrCompacted)
			}
			last = s.deliver(groups, last, x.arrived, deliver)
			continue
		}
		c.askProgress(x)
		wait, cancel := s.process.WithTimeout(ctx, progressEvery)
		_ = c.world.Await(wait, "changes", func(wake world.Wake) { x.wake = wake })
		x.wake = nil
		cancel()
	}
}

// deliver makes one call of it: some whole revisions, or only the progress. It returns how far the watch is then.
func (s *Store) deliver(groups []group, last, arrived int64, deliver func([]coordinator.Event, int64)) int64 {
	s.cluster.world.Point()
	if len(groups) == 0 {
		if arrived > last {
			deliver(nil, arrived)
		}
		return arrived
	}
	var events []coordinator.Event
	for _, g := range groups[:1+s.cluster.random.IntN(len(groups))] {
		events, last = append(events, g.events...), g.revision
	}
	deliver(events, last)
	return last
}

// compactedUnder says whether a watch that has seen `last` has missed changes for good.
func (c *Cluster) compactedUnder(last int64) bool { return last+1 < c.keys.compacted }

// askProgress asks the cluster for its revision: the answer vouches that all before it was sent.
func (c *Cluster) askProgress(x *watch) {
	c.net.Post(x.store.process, c.server, "progress", func() {
		if c.NoQuorum || !c.server.Up() || c.server.Paused() {
			return
		}
		revision := c.keys.revision
		send := func() { c.net.Post(c.server, x.store.process, "progress", func() { x.arrive(revision) }) }
		if c.WatchLag > 0 {
			c.world.After(time.Duration(c.random.Int64N(int64(c.WatchLag))), send)
		} else {
			send()
		}
	})
}
