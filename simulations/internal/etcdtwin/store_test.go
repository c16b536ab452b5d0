package etcdtwin

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"tranche/coordinator"
	"tranche/coordinator/storetest"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// speed is how many times faster than real time the suite for real stores runs here.
const speed = 20

// served is a store of a world that runs on a goroutine of its own, for callers outside of it.
type served struct {
	store   *Store
	process *world.Process
}

func (s served) do(ctx context.Context, name string, f func(ctx context.Context) error) error {
	var result error
	if err := s.process.Do(ctx, name, func(ctx context.Context) { result = f(ctx) }); err != nil {
		return err
	}
	return result
}

func (s served) Range(ctx context.Context, prefix string) (items []coordinator.Item, revision int64, err error) {
	err = s.do(ctx, "range", func(ctx context.Context) error {
		items, revision, err = s.store.Range(ctx, prefix)
		return err
	})
	return items, revision, err
}

func (s served) Commit(ctx context.Context, txn coordinator.Txn) (result coordinator.TxnResult, err error) {
	err = s.do(ctx, "commit", func(ctx context.Context) error {
		result, err = s.store.Commit(ctx, txn)
		return err
	})
	return result, err
}

func (s served) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	return s.do(ctx, "watch", func(ctx context.Context) error {
		return s.store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
			s.process.World().Leave(func() { deliver(events, revision) })
		})
	})
}

func (s served) Lead(ctx context.Context, name string, work func(ctx context.Context) error) error {
	return s.do(ctx, "lead", func(ctx context.Context) error {
		return s.store.Lead(ctx, name, func(ctx context.Context) (err error) {
			s.process.World().Leave(func() { err = work(ctx) })
			return err
		})
	})
}

func (s served) Compact(ctx context.Context, revision int64) error {
	return s.do(ctx, "compact", func(ctx context.Context) error { return s.store.Compact(ctx, revision) })
}

func (s served) Members(ctx context.Context) (members []coordinator.Member, err error) {
	err = s.do(ctx, "members", func(ctx context.Context) error {
		members, err = s.store.Members(ctx)
		return err
	})
	return members, err
}

func open(t *testing.T) coordinator.Store {
	w := world.New(world.Options{Seed: 1})
	c := New(network.New(w), w, "etcd", 3)
	p := w.Process("client")
	p.Serve()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Serve(ctx, speed) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.Close()
	})
	return served{c.Store(p), p}
}

// The twin must keep the contract that the adapter for real etcd keeps, or what is proven in simulation says nothing.
func TestConformance(t *testing.T) { storetest.Run(t, open) }
