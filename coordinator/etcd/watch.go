package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/coordinator"
)

// progressEvery is how often a watch asks how far it is. A mirror counts a read only when its watch has got as far, so
// this is part of the age of the evidence.
const progressEvery = 250 * time.Millisecond

// Watch implements coordinator.Store. The client connects again by itself when a connection breaks, and goes on after
// the last change that it saw; a member that has no leader ends the watch with an error.
func (s *Store) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	// A stream of its own: progress is answered for all watches of a stream together, and only if none lags.
	watcher := clientv3.NewWatcher(s.client)
	defer watcher.Close()
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	changes := watcher.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithFragment(), clientv3.WithProgressNotify())
	ask := time.NewTicker(progressEvery)
	defer ask.Stop()
	last := after
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ask.C:
			requestProgress(ctx, watcher)
		case response, ok := <-changes:
			switch err := response.Err(); {
			case ctx.Err() != nil:
				return ctx.Err()
			case response.CompactRevision != 0 || errors.Is(err, rpctypes.ErrCompacted):
				return fmt.Errorf("watch %s after revision %d: %w", prefix, last, coordinator.ErrCompacted)
			case err != nil:
				return fmt.Errorf("watch %s: %w", prefix, err)
			case !ok:
				return fmt.Errorf("watch %s: the stream ended", prefix)
			}
			if events, revision := delivery(response); revision > last {
				last = revision
				deliver(events, revision)
			}
		}
	}
}

// requestProgress waits a little only: a stream that is connecting takes no requests, and its changes come later anyhow.
func requestProgress(ctx context.Context, watcher clientv3.Watcher) {
	ctx, cancel := context.WithTimeout(ctx, progressEvery)
	defer cancel()
	_ = watcher.RequestProgress(ctx) // without an answer the evidence ages, which says all there is to say
}

// delivery translates a response; the client has put its fragments together, so it holds whole revisions. A watch that
// catches up gets the store's revision in the header of each part: only a progress answer vouches for that one.
func delivery(response clientv3.WatchResponse) (events []coordinator.Event, revision int64) {
	if response.IsProgressNotify() {
		return nil, response.Header.Revision
	}
	for _, e := range response.Events {
		item := coordinator.Item{Key: string(e.Kv.Key), Revision: e.Kv.ModRevision}
		deleted := e.Type == mvccpb.Event_DELETE
		if !deleted {
			item.Value = e.Kv.Value
		}
		events = append(events, coordinator.Event{Item: item, Deleted: deleted})
		revision = item.Revision
	}
	return events, revision
}
