package mutants

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/world"
)

// etcdBack runs real Committers that change a few documents, while etcd is restored from snapshots. Each transaction that
// takes effect is held against what its writer had read: all of it must have stood, with revision and value.
var etcdBack = drill{name: "etcd restored again and again", play: func(d *drillWorld, mutant any) {
	seam, _ := mutant.(func() storeSeam)
	x := &etcdDrill{drillWorld: d, etcd: etcdtwin.New(d.net, d.w, "etcd", 3), meant: map[string][]coordinator.Item{}, stands: map[string]coordinator.Item{}}
	x.etcd.OnCommit = x.committed
	d.net.Default.Lose, d.net.Default.Late, d.net.Default.LateMost = 0.005, 0.05, 400*time.Millisecond
	for i := range 3 {
		d.live(fmt.Sprint("coordinator-", i), func(ctx context.Context, p *world.Process) {
			store := coordinator.Store(x.etcd.Store(p))
			if seam != nil {
				s := seam()
				s.Store = store
				store = &s
			}
			x.write(ctx, p, &meaning{Store: store, drill: x})
		})
	}
	d.w.Go("restores", x.restore)
}}

type etcdDrill struct {
	*drillWorld
	etcd   *etcdtwin.Cluster
	meant  map[string][]coordinator.Item // by the mark's value: what the transaction that leaves it rests on
	stands map[string]coordinator.Item
}

// meaning notes what each transaction rests on, before anything changes it.
type meaning struct {
	coordinator.Store
	drill *etcdDrill
}

func (m *meaning) Commit(ctx context.Context, t coordinator.Txn) (coordinator.TxnResult, error) {
	for _, p := range t.Puts {
		if strings.HasPrefix(p.Key, marksAt) {
			m.drill.meant[string(p.Value)] = t.Compares
		}
	}
	return m.Store.Commit(ctx, t)
}

// committed judges one revision.
func (x *etcdDrill) committed(who string, revision int64, events []coordinator.Event) {
	for _, e := range events {
		if !strings.HasPrefix(e.Key, marksAt) || e.Deleted {
			continue
		}
		for _, read := range x.meant[string(e.Value)] {
			now := x.stands[read.Key]
			x.must(now.Revision == read.Revision && (now.Revision == 0 || bytes.Equal(now.Value, read.Value)), 8,
				"%s writes revision %d on the ground of %s at revision %d, and what stands there is of revision %d, or another value", who, revision, read.Key, read.Revision, now.Revision)
		}
	}
	for _, e := range events {
		if x.stands[e.Key] = e.Item; e.Deleted {
			delete(x.stands, e.Key)
		}
	}
}

// restore takes snapshots, and puts them back, some of them twice.
func (x *etcdDrill) restore() {
	random, out := x.w.Random("restores"), x.w.Outside()
	some := func() { out.Sleep(out.Context(), time.Duration(random.IntN(int(400*time.Millisecond)))) }
	for {
		some()
		snapshot := x.etcd.Snapshot()
		for range 1 + random.IntN(3) {
			some()
			x.etcd.Restore(snapshot, 0)
			clear(x.stands)
			for _, item := range x.etcd.Items("") {
				x.stands[item.Key] = item
			}
		}
	}
}

// write changes one document after the other, by what was read some time before.
func (x *etcdDrill) write(ctx context.Context, p *world.Process, store coordinator.Store) {
	c := coordinator.NewCommitter(store, nil, coordinator.WithRuntime(p), coordinator.WithRandom(p))
	p.Go("work", func() {
		for ctx.Err() == nil && !c.Lost() {
			p.Sleep(ctx, time.Duration(p.Random().IntN(int(20*time.Millisecond))))
			_ = x.change(ctx, p, store, c)
		}
		p.Stop()
	})
	if err := c.Run(ctx); err != nil && ctx.Err() == nil {
		p.Stop()
	}
}

func (x *etcdDrill) change(ctx context.Context, p *world.Process, store coordinator.Store, c *coordinator.Committer) error {
	bounded, cancel := p.WithTimeout(ctx, time.Second)
	defer cancel()
	items, _, err := store.Range(bounded, ledgersAt)
	if err != nil {
		return err
	}
	read := coordinator.Item{Key: fmt.Sprint(ledgersAt, "document-", p.Random().IntN(3))}
	for _, item := range items {
		if item.Key == read.Key {
			read = item
		}
	}
	if p.Random().IntN(3) == 0 {
		p.Sleep(ctx, time.Duration(p.Random().IntN(int(300*time.Millisecond))))
	}
	value := fmt.Appendf(nil, "%s %x", p.Name(), p.Random().Uint64())
	_, err = c.Commit(bounded, coordinator.Change{Reads: []coordinator.Item{read}, Puts: []coordinator.Item{{Key: read.Key, Value: value}}})
	return err
}

// compareRevisions takes whatever stands at the revision that was read for what was read.
func compareRevisions() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Compares {
			c := &t.Compares[i]
			items, _, err := s.Range(ctx, c.Key)
			if err != nil {
				return coordinator.TxnResult{}, fmt.Errorf("%w: %w", coordinator.ErrUnknownOutcome, err)
			}
			for _, item := range items {
				if item.Key == c.Key && item.Revision == c.Revision {
					c.Value = item.Value
				}
			}
		}
		return s.Commit(ctx, t)
	}}
}

// markBefore compares the mark in a transaction of its own, before the one that writes.
func markBefore() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		r, err := s.Commit(ctx, coordinator.Txn{Compares: t.Compares})
		if err != nil || !r.Committed {
			return r, err
		}
		return withoutMark().commit(ctx, s, t)
	}}
}

// withoutMark leaves the mark out of what is compared. What stands in its place is not told either.
func withoutMark() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		var mark coordinator.Item
		var rest []coordinator.Item
		for _, c := range t.Compares {
			if strings.HasPrefix(c.Key, marksAt) {
				mark = c
				continue
			}
			rest = append(rest, c)
		}
		t.Compares = rest
		r, err := s.Commit(ctx, t)
		if err == nil && !r.Committed {
			r.Current = append(r.Current, mark)
		}
		return r, err
	}}
}
