package scale

import (
	"context"
	"maps"
	"strings"
	"sync"

	"tranche/coordinator"
)

// restingStore is a store under which the background work can be made to rest, as it does while no replica leads. With very
// many budgets some term is opened at every moment; to see what a call costs when nothing changed, nothing may change.
type restingStore struct {
	coordinator.Store

	mu    sync.Mutex
	rests bool
	stop  func()        // ends the work under way
	woken chan struct{} // closed when the rest is over

	written map[string]Written // by kind of document
}

// Written is what was written to etcd.
type Written struct {
	Puts    int   `json:"puts"`
	Deletes int   `json:"deletes"`
	Bytes   int64 `json:"bytes"` // of keys and values that were put
}

func newRestingStore(s coordinator.Store) *restingStore {
	return &restingStore{Store: s, stop: func() {}, woken: make(chan struct{}), written: map[string]Written{}}
}

// Lead implements coordinator.Store.
func (s *restingStore) Lead(ctx context.Context, name string, work func(ctx context.Context) error) error {
	if name != "background" {
		return s.Store.Lead(ctx, name, work)
	}
	return s.Store.Lead(ctx, name, func(ctx context.Context) error {
		for ctx.Err() == nil {
			held, woken := s.begin(ctx)
			if woken == nil {
				if err := work(held); ctx.Err() != nil || err != nil {
					return err
				}
				continue
			}
			select {
			case <-ctx.Done():
			case <-woken:
			}
		}
		return nil
	})
}

// Commit implements coordinator.Store, and counts what is written.
func (s *restingStore) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	result, err := s.Store.Commit(ctx, txn)
	if err != nil || !result.Committed {
		return result, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range txn.Puts {
		w := s.written[kindOf(p.Key)]
		w.Puts, w.Bytes = w.Puts+1, w.Bytes+int64(len(p.Key)+len(p.Value))
		s.written[kindOf(p.Key)] = w
	}
	for _, key := range txn.Deletes {
		w := s.written[kindOf(key)]
		w.Deletes++
		s.written[kindOf(key)] = w
	}
	return result, nil
}

// counted is what was written since the start.
func (s *restingStore) counted() map[string]Written {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.written)
}

// kindOf is the kind of document of a key.
func kindOf(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, coordinator.Root), "/")
	return kind
}

// begin is the context of work that may begin now; or what is closed when it may.
func (s *restingStore) begin(ctx context.Context) (context.Context, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rests {
		return nil, s.woken
	}
	s.stop()
	ctx, s.stop = context.WithCancel(ctx)
	return ctx, nil
}

// rest ends the work under way, and lets none begin.
func (s *restingStore) rest() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rests = true
	s.stop()
}

// wake lets the work go on.
func (s *restingStore) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rests {
		s.rests = false
		close(s.woken)
		s.woken = make(chan struct{})
	}
}
