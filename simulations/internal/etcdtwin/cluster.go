package etcdtwin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// leaderRoot is where the candidates of leaderships stand.
const leaderRoot = "/tranche-leaders/"

// Faults are what is wrong with a cluster, to be changed at any time.
type Faults struct {
	Disk      time.Duration // a write takes up to so long to be on disk; 0: at once
	WatchLag  time.Duration // a change takes up to so long to be delivered to each watch, beside the network
	LeaderLag time.Duration // a leader whose lease is over may believe for up to so long that it still leads
	NoQuorum  bool          // nothing is read or committed, and watches hear nothing; set by SetQuorum
}

// Cluster is one simulated etcd.
type Cluster struct {
	Faults
	// OnCommit hears of every revision as it comes to be, for checkers.
	OnCommit func(who string, revision int64, events []coordinator.Event)

	world    *world.World
	net      *network.Net
	server   *world.Process
	random   *rand.Rand
	keys     *keys
	members  int
	watches  []*watch
	leases   map[int64]*lease
	lastID   int64
	waiting  []*proposal // writes that wait for a quorum
	changed  []world.Wake
	restores int
}

// lease is what a candidacy rests on.
type lease struct {
	id      int64
	key     string // of the candidate
	renewed int64  // counts; an expiry that was arranged before is void
}

// proposal is a write that has been proposed and waits for a quorum.
type proposal struct {
	apply func()
	wake  world.Wake
	done  bool
}

// Snapshot is a copy of what a cluster held at one moment.
type Snapshot struct{ keys *keys }

// Empty is the snapshot of a cluster that never held anything.
func Empty() Snapshot { return Snapshot{newKeys()} }

// New starts a cluster of so many members; the name is that of its process.
func New(n *network.Net, w *world.World, name string, members int) *Cluster {
	c := &Cluster{
		world: w, net: n, server: w.Process(name), random: w.Random("etcd " + name), keys: newKeys(), members: members,
		leases: map[int64]*lease{},
	}
	c.server.Serve()
	return c
}

// Server is the cluster's process, as the network knows it.
func (c *Cluster) Server() *world.Process { return c.server }

// Revision is the newest revision.
func (c *Cluster) Revision() int64 { return c.keys.revision }

// Items are all keys with a prefix as they truly are, for checkers: no call, no delay.
func (c *Cluster) Items(prefix string) []coordinator.Item { return c.keys.rangeOf(prefix) }

// Put writes one key behind everybody's back, for faults and tests.
func (c *Cluster) Put(key, value string) {
	c.commit("outside", coordinator.Txn{Puts: []coordinator.Item{{Key: key, Value: []byte(value)}}})
}

// Snapshot copies what the cluster holds.
func (c *Cluster) Snapshot() Snapshot { return Snapshot{c.keys.clone()} }

// Restore replaces everything by a snapshot, as `etcdutl snapshot restore` does: the members stop, and start again with
// the old data. Bump is how far the revision is raised, which hides the step back; what lies before is then compacted.
// Leases are gone, and with them the candidates.
func (c *Cluster) Restore(s Snapshot, bump int64) {
	c.restores++
	c.world.Trace("etcd.restore", fmt.Sprintf("revision %d -> %d+%d", c.keys.revision, s.keys.revision, bump))
	c.server.Crash()
	c.keys = s.keys.clone()
	c.leases, c.waiting = map[int64]*lease{}, nil
	var gone []string
	for _, item := range c.keys.rangeOf(leaderRoot) {
		gone = append(gone, item.Key)
	}
	c.keys.commit(coordinator.Txn{Deletes: gone})
	if bump > 0 {
		c.keys.revision += bump
		c.keys.compact(c.keys.revision)
	}
	c.server.Serve()
}

// Compact forgets all revisions before one, so that a watch that is behind must read everything again.
func (c *Cluster) Compact(revision int64) {
	c.world.Trace("etcd.compact", strconv.FormatInt(revision, 10))
	c.keys.compact(revision)
}

// Restart stops all members and starts them again with what they hold.
func (c *Cluster) Restart() {
	c.server.Crash()
	c.waiting = nil
	c.server.Serve()
	for _, l := range c.sortedLeases() {
		c.renew(l) // a new leader extends all leases
	}
}

// SetQuorum takes the quorum away or gives it back. A write that waits for it then takes effect or never will, as the seed
// says: those who sent it have long stopped waiting.
func (c *Cluster) SetQuorum(has bool) {
	if has == !c.NoQuorum {
		return
	}
	c.NoQuorum = !has
	c.world.Trace("etcd.quorum", strconv.FormatBool(has))
	if !has {
		return
	}
	waiting := c.waiting
	c.waiting = nil
	for _, p := range waiting {
		if p.done = c.random.IntN(2) == 0; p.done {
			p.apply()
		}
		p.wake()
	}
	for _, l := range c.sortedLeases() {
		c.renew(l)
	}
}

func (c *Cluster) sortedLeases() []*lease {
	var all []*lease
	for _, l := range c.leases {
		all = append(all, l)
	}
	slices.SortFunc(all, func(a, b *lease) int { return int(a.id - b.id) })
	return all
}

// quorum waits until there is one, for a read; false if ctx ends first.
func (c *Cluster) quorum(ctx context.Context) bool {
	for c.NoQuorum {
		p := &proposal{apply: func() {}}
		if c.world.Await(ctx, "a quorum", func(wake world.Wake) { p.wake = wake; c.waiting = append(c.waiting, p) }) != nil {
			return false
		}
	}
	return true
}

// propose applies a write once it is on disk, and again later than anybody waits for if there is no quorum; false if it
// was dropped, or is not known to be applied.
func (c *Cluster) propose(ctx context.Context, apply func()) bool {
	if c.Disk > 0 {
		// What is proposed is not stopped by a caller who goes away.
		c.server.Sleep(context.Background(), time.Duration(c.random.Int64N(int64(c.Disk))))
	}
	if !c.NoQuorum {
		apply()
		return true
	}
	p := &proposal{apply: apply}
	err := c.world.Await(ctx, "a quorum", func(wake world.Wake) { p.wake = wake; c.waiting = append(c.waiting, p) })
	return err == nil && p.done
}

// commit applies a transaction and tells the watches.
func (c *Cluster) commit(who string, t coordinator.Txn) coordinator.TxnResult {
	before := c.keys.revision
	result := c.keys.commit(t)
	switch {
	case !result.Committed:
		c.world.Trace("etcd.refused", who+" at "+strconv.FormatInt(before, 10))
	case result.Revision > before:
		c.world.Trace("etcd.commit", who+" "+strconv.FormatInt(result.Revision, 10)+" "+firstKey(t))
		if c.OnCommit != nil {
			c.OnCommit(who, result.Revision, c.keys.log[len(c.keys.log)-1].events)
		}
		c.tell()
	}
	return result
}

func firstKey(t coordinator.Txn) string {
	switch {
	case len(t.Puts) > 0:
		return t.Puts[len(t.Puts)-1].Key
	case len(t.Deletes) > 0:
		return t.Deletes[0]
	}
	return ""
}

// tell sends the newest revision to every watch, each with a delay of its own, and lets the candidates look again.
func (c *Cluster) tell() {
	revision := c.keys.revision
	for _, x := range c.watches {
		if c.NoQuorum {
			break
		}
		send := func() { c.net.Post(c.server, x.store.process, "watch", func() { x.arrive(revision) }) }
		if c.WatchLag > 0 {
			c.world.After(time.Duration(c.random.Int64N(int64(c.WatchLag))), send)
		} else {
			send()
		}
	}
	changed := c.changed
	c.changed = nil
	for _, wake := range changed {
		wake()
	}
}
