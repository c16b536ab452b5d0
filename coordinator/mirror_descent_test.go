package coordinator_test

import (
	"context"
	"testing"
	"time"

	"tranche/coordinator"
)

// gapStore has a watch that misses all changes of one key, as one does that goes on over an etcd that was taken back.
type gapStore struct {
	coordinator.Store
	key string
}

func (s gapStore) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	return s.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		heard := events[:0:0]
		for _, e := range events {
			if e.Key != s.key {
				heard = append(heard, e)
			}
		}
		deliver(heard, revision)
	})
}

// A replica whose watch went on over another line of descent would answer from what was lost, for good.
func TestAMirrorNoticesAHistoryThatItNeverSaw(t *testing.T) {
	store, key := openEtcd(t), coordinator.Root+"history"
	commitRaw(t, store, puts(key, `{"history":{"number":1,"stamp":"a"}}`))
	m, shown := mirroring(t, gapStore{store, key})
	waitFor(t, m, 0)
	commitRaw(t, store, puts(key, `{"history":{"number":2,"stamp":"b"}}`))
	written := read(t, store, key)
	commitRaw(t, store, puts(document("after"), "1"))
	waitFor(t, m, read(t, store, document("after")).Revision)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for give := time.After(patience); ; {
		if shown.of(key) == string(written.Value) {
			return
		}
		select {
		case <-tick.C:
		case <-give:
			t.Fatalf("it shows %s, and etcd holds %s", shown.of(key), written.Value)
		}
	}
}

func (c *copyOf) of(key string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.items[key]
}
