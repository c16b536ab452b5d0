package etcdtwin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// play runs a client against a cluster in simulated time.
func play(t *testing.T, seed uint64, client func(ctx context.Context, c *Cluster, p *world.Process, s *Store)) {
	t.Helper()
	w := world.New(world.Options{Seed: seed})
	defer w.Close()
	c := New(network.New(w), w, "etcd", 3)
	p := w.Process("client")
	p.Start(func(ctx context.Context) { client(ctx, c, p, c.Store(p)) })
	if err := w.Run(24 * time.Hour); err != nil {
		t.Fatal(err)
	}
}

func put(key, value string) coordinator.Txn {
	return coordinator.Txn{Puts: []coordinator.Item{{Key: key, Value: []byte(value)}}}
}

func read(c *Cluster, key string) string {
	if items := c.Items(key); len(items) == 1 {
		return string(items[0].Value)
	}
	return ""
}

// A lost answer must leave open what happened: over the seeds, all three endings must come, also the write that lands
// after its sender was told that nobody knows.
func TestLostAnswers(t *testing.T) {
	endings := map[string]int{}
	for seed := range uint64(60) {
		play(t, seed, func(ctx context.Context, c *Cluster, p *world.Process, s *Store) {
			there := c.net.Link("client", "etcd")
			there.Lose, c.net.Link("etcd", "client").Lose = 0.3, 0.3
			there.Late, there.LateMost = 0.3, time.Hour
			_, err := s.Commit(ctx, put("k", "1"))
			at := read(c, "k")
			p.Sleep(ctx, 2*time.Hour)
			switch later := read(c, "k"); {
			case err == nil && at == "1":
				endings["known"]++
			case !errors.Is(err, coordinator.ErrUnknownOutcome):
				t.Errorf("seed %d: %v", seed, err)
			case at == "1":
				endings["after"]++
			case later == "1":
				endings["late"]++
			default:
				endings["before"]++
			}
		})
	}
	if len(endings) != 4 {
		t.Fatal(endings)
	}
}

// Without a quorum nothing may be read or committed, and a watch must stay silent rather than fail; what was proposed may
// still land later.
func TestNoQuorum(t *testing.T) {
	landed := map[string]int{}
	for seed := range uint64(20) {
		play(t, seed, func(ctx context.Context, c *Cluster, p *world.Process, s *Store) {
			delivered := int64(0)
			watching, stop := context.WithCancel(ctx)
			p.Go("watch", func() {
				err := s.Watch(watching, "", c.Revision(), func(_ []coordinator.Event, revision int64) { delivered = revision })
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			})
			p.Sleep(ctx, time.Second)
			c.SetQuorum(false)
			c.Put("behind", "x") // what the silent members hold
			if _, _, err := s.Range(ctx, "k"); err == nil {
				t.Error("a read was answered")
			}
			if _, err := s.Commit(ctx, put("k", "1")); !errors.Is(err, coordinator.ErrUnknownOutcome) {
				t.Error(err)
			}
			if members, err := s.Members(ctx); err != nil || len(members) != 3 || members[0].Healthy {
				t.Error(members, err)
			}
			p.Sleep(ctx, time.Minute)
			if read(c, "k") != "" || delivered >= c.Revision() {
				t.Error("something happened without a quorum")
			}
			c.SetQuorum(true)
			p.Sleep(ctx, time.Minute)
			landed[read(c, "k")]++
			if delivered != c.Revision() {
				t.Errorf("the watch is at %d of %d", delivered, c.Revision())
			}
			stop()
		})
	}
	if landed[""] == 0 || landed["1"] == 0 {
		t.Fatal(landed)
	}
}

// A restored cluster goes back, also twice to the same snapshot, with the revision raised, and to nothing; a mod revision
// can come again.
func TestRestore(t *testing.T) {
	play(t, 1, func(ctx context.Context, c *Cluster, _ *world.Process, s *Store) {
		first, err := s.Commit(ctx, put("k", "1"))
		if err != nil {
			t.Fatal(err)
		}
		snapshot := c.Snapshot()
		for i := range 2 {
			second, err := s.Commit(ctx, put("k", fmt.Sprint("lost ", i)))
			if err != nil || second.Revision != first.Revision+1 {
				t.Fatal(second, err)
			}
			c.Restore(snapshot, 0)
			items, revision, err := s.Range(ctx, "k")
			if err != nil || len(items) != 1 || string(items[0].Value) != "1" || revision != first.Revision {
				t.Fatal(items, revision, err)
			}
		}
		c.Restore(snapshot, 1000)
		if err := s.Watch(ctx, "", first.Revision, func([]coordinator.Event, int64) {}); !errors.Is(err, coordinator.ErrCompacted) {
			t.Error(err)
		}
		if next, err := s.Commit(ctx, put("k", "3")); err != nil || next.Revision != first.Revision+1001 {
			t.Error(next, err)
		}
		c.Restore(Empty(), 0)
		if items, revision, err := s.Range(ctx, ""); err != nil || len(items) != 0 || revision != 1 {
			t.Error(items, revision, err)
		}
	})
}

// A leader that stands still goes on believing while another one leads: if that never came about, the simulator would not
// show that nothing rests on leadership.
func TestTwoLeaders(t *testing.T) {
	leading, most := 0, 0
	lead := func(p *world.Process, s *Store) func(ctx context.Context) {
		return func(ctx context.Context) {
			_ = s.Lead(ctx, "x", func(ctx context.Context) error {
				leading++
				defer func() { leading-- }()
				for ctx.Err() == nil {
					most = max(most, leading)
					p.Sleep(ctx, time.Second)
				}
				return nil
			})
		}
	}
	play(t, 1, func(ctx context.Context, c *Cluster, p *world.Process, s *Store) {
		other := p.World().Process("other")
		other.Start(lead(other, c.Store(other)))
		p.Sleep(ctx, 5*time.Second)
		p.Go("lead", func() { lead(p, s)(ctx) })
		p.Sleep(ctx, 20*time.Second)
		if leading != 1 {
			t.Errorf("%d lead", leading)
		}
		p.World().After(0, other.Pause)
		p.World().After(time.Minute, other.Resume)
		p.Sleep(ctx, 90*time.Second)
		if most != 2 || leading != 1 {
			t.Errorf("at most %d led at once, now %d", most, leading)
		}
		other.Stop()
		p.Stop()
	})
}
