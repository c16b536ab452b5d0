package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// patience is how long a test waits for what must happen, on a slow machine.
const patience = 30 * time.Second

func raw(t *testing.T, endpoints []string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// revokeAll ends all leases, as if nobody had renewed them.
func revokeAll(t *testing.T, client *clientv3.Client) {
	t.Helper()
	leases, err := client.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Leases {
		if _, err := client.Revoke(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
}

// holder is the lease of the key that is first in line; 0 if there is none.
func holder(t *testing.T, client *clientv3.Client) int64 {
	t.Helper()
	answer, err := client.Get(t.Context(), "/tranche-leaders/one/", clientv3.WithFirstCreate()...)
	if err != nil {
		t.Error(err)
	}
	if err != nil || len(answer.Kvs) == 0 {
		return 0
	}
	return answer.Kvs[0].Lease
}

func soon[T any](t *testing.T, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		t.Fatal("nothing came")
	}
	return value
}

// A leader whose lease is gone must stop working, since another may have begun; and it must be able to lead again.
func TestLeaderStopsWithItsLease(t *testing.T) {
	server := start(t)
	store, client := open(t, server.Endpoints()...), raw(t, server.Endpoints())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, ended, returned := make(chan int64), make(chan struct{}), make(chan error, 1)
	go func() {
		returned <- store.Lead(ctx, "one", func(ctx context.Context) error {
			begun <- holder(t, client)
			<-ctx.Done()
			ended <- struct{}{}
			return nil
		})
	}()
	first := soon(t, begun)
	revokeAll(t, client)
	soon(t, ended)
	if second := soon(t, begun); first == 0 || second == 0 || second == first {
		t.Fatalf("leases %x and %x", first, second)
	}
	cancel()
	soon(t, ended)
	if err := soon(t, returned); err != context.Canceled {
		t.Fatal(err)
	}
	if left := holder(t, client); left != 0 {
		t.Fatal("the leadership was not given back")
	}
}

// Campaign returns once the keys before its own are gone, also when its own went as well: a candidate that lost its
// lease while it waited must not begin to work.
func TestCandidateWithoutLeaseDoesNotLead(t *testing.T) {
	server := start(t)
	store, client := open(t, server.Endpoints()...), raw(t, server.Endpoints())
	const before = "/tranche-leaders/one/0"
	if _, err := client.Put(t.Context(), before, "somebody"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	line := client.Watch(ctx, "/tranche-leaders/one/", clientv3.WithPrefix(), clientv3.WithFilterDelete(), clientv3.WithRev(2))
	begun, returned := make(chan int64), make(chan error, 1)
	go func() {
		returned <- store.Lead(ctx, "one", func(ctx context.Context) error {
			begun <- holder(t, client)
			<-ctx.Done()
			return nil
		})
	}()
	var waiting int64
	for waiting == 0 {
		for _, e := range soon(t, line).Events {
			waiting = e.Kv.Lease
		}
	}
	revokeAll(t, client)
	if _, err := client.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if lease := soon(t, begun); lease == 0 || lease == waiting {
		t.Fatalf("works under lease %x, waited with %x, which is gone", lease, waiting)
	}
	cancel()
	soon(t, returned)
}
