package mutants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/world"
)

// waitsAtMost is how long a writer may wait to see what it wrote, in a world in which nothing is lost: a few reads.
const waitsAtMost = 5 * time.Second

// seesWhatItWrote runs one real Mirror, and a writer that waits after each write until the mirror shows it, while etcd is put
// back to before that. Nobody else writes, so the revision never comes again: the wait must end by itself.
var seesWhatItWrote = drill{name: "etcd restored under one writer, before it sees what it wrote", play: func(d *drillWorld, mutant any) {
	wrap, _ := mutant.(func(coordinator.Store) coordinator.Store)
	x := &waitDrill{drillWorld: d, etcd: etcdtwin.New(d.net, d.w, "etcd", 1)}
	snapshot, random := x.etcd.Snapshot(), d.w.Random("restores")
	x.etcd.OnCommit = func(string, int64, []coordinator.Event) {
		if random.IntN(8) > 0 {
			return
		}
		back := snapshot
		d.w.After(time.Duration(random.IntN(int(20*time.Millisecond))), func() {
			x.etcd.Restore(back, 0)
			snapshot = x.etcd.Snapshot()
		})
	}
	d.net.Default.Late, d.net.Default.LateMost = 0.3, 300*time.Millisecond
	d.live("coordinator", func(ctx context.Context, p *world.Process) {
		store := coordinator.Store(x.etcd.Store(p))
		if wrap != nil {
			store = wrap(store)
		}
		x.write(ctx, p, store)
	})
}}

type waitDrill struct {
	*drillWorld
	etcd *etcdtwin.Cluster
}

// write writes again and again, each time as soon as it knows what became of the write before.
func (x *waitDrill) write(ctx context.Context, p *world.Process, store coordinator.Store) {
	mirror := coordinator.NewMirror(store, func([]coordinator.Event, int64, bool) {})
	mirror.Runtime = p
	p.Go("work", func() {
		for ctx.Err() == nil {
			p.Sleep(ctx, time.Duration(p.Random().IntN(int(100*time.Millisecond))))
			value := fmt.Appendf(nil, "%x", p.Random().Uint64())
			r, err := store.Commit(ctx, coordinator.Txn{Puts: []coordinator.Item{{Key: ledgersAt + "document", Value: value}}})
			if err == nil && r.Committed {
				x.see(ctx, mirror, r.Revision)
			}
		}
	})
	_ = mirror.Run(ctx)
}

func (x *waitDrill) see(ctx context.Context, mirror *coordinator.Mirror, revision int64) {
	over := false
	x.w.After(waitsAtMost, func() {
		x.must(over || ctx.Err() != nil, 0, "the coordinator waits for revision %d since %s, and etcd went back to before that", revision, waitsAtMost)
	})
	_ = mirror.WaitFor(ctx, revision)
	over = true
}

// unheard is a store whose reads do not tell that a revision is gone that was written, as long as no watch had shown it.
type unheard struct {
	coordinator.Store
	written, shown int64
}

func hearsNothing(s coordinator.Store) coordinator.Store { return &unheard{Store: s} }
func (u *unheard) Commit(ctx context.Context, t coordinator.Txn) (coordinator.TxnResult, error) {
	r, err := u.Store.Commit(ctx, t)
	if err == nil && r.Committed {
		u.written = r.Revision
	}
	return r, err
}

func (u *unheard) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	items, revision, err := u.Store.Range(ctx, prefix)
	switch {
	case err != nil:
	case prefix == coordinator.Root:
		u.shown = revision
	case prefix == historyAt && u.shown <= revision && revision < u.written:
		return nil, 0, errors.New("no answer")
	}
	return items, revision, err
}

func (u *unheard) Watch(ctx context.Context, prefix string, after int64, deliver func(events []coordinator.Event, revision int64)) error {
	return u.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		u.shown = revision
		deliver(events, revision)
	})
}
