package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

const (
	// leaderRoot is outside coordinator.Root: who leads is nothing that a mirror wants to hear.
	leaderRoot = "/tranche-leaders/"
	// leaseSeconds is how long the others wait for a leader that went away without a word.
	leaseSeconds = 10
	// leadAgain is the wait between two candidacies of one process.
	leadAgain = time.Second
	// releaseTimeout bounds what is done to give a leadership up after ctx has ended.
	releaseTimeout = 3 * time.Second
)

var errNotFirst = errors.New("the candidacy is gone")

// Lead implements coordinator.Store.
//
//	candidate ──campaign──▶ first in line, key still there ──▶ work(ctx) ──▶ lease given back
//	    ▲                        │ no                             │ the lease is not renewed: work's ctx ends
//	    └──── after leadAgain ◀──┴────────────────────────────────┘
//
// Work has ended before the lease is given back, so that two processes work at once only if one cannot reach etcd.
func (s *Store) Lead(ctx context.Context, name string, work func(ctx context.Context) error) error {
	problem := ""
	for ctx.Err() == nil {
		err := s.leadOnce(ctx, name, work)
		if ctx.Err() != nil {
			break
		}
		// While etcd is away each candidacy ends the same way: say so once.
		if err != nil && err.Error() != problem {
			s.log.Warn("leadership ended", "leadership", name, "error", err)
		}
		problem = ""
		if err != nil {
			problem = err.Error()
		}
		select {
		case <-ctx.Done():
		case <-time.After(leadAgain):
		}
	}
	return ctx.Err()
}

func (s *Store) leadOnce(ctx context.Context, name string, work func(ctx context.Context) error) error {
	// Campaign and Session clean up with the client's own context, which never ends: give them a client whose does.
	graceful, cancel := outlive(ctx, releaseTimeout)
	defer cancel()
	client := clientv3.NewCtxClient(graceful)
	client.KV, client.Lease, client.Watcher = s.client.KV, s.client.Lease, s.client.Watcher

	lease, err := s.grant(ctx)
	if err != nil {
		return fmt.Errorf("lease for leadership %s: %w", name, err)
	}
	defer s.revoke(ctx, lease)
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease), concurrency.WithTTL(leaseSeconds), concurrency.WithContext(graceful))
	if err != nil {
		return fmt.Errorf("session for leadership %s: %w", name, err)
	}
	if session == nil { // the client says so when it is closed
		return fmt.Errorf("session for leadership %s: the client is closed", name)
	}
	defer session.Orphan()

	held, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(session.Ctx(), stop)()
	election := concurrency.NewElection(session, leaderRoot+name)
	if err := election.Campaign(held, s.id); err != nil {
		return fmt.Errorf("campaign for leadership %s: %w", name, err)
	}
	if err := s.first(held, name, election); err != nil {
		return fmt.Errorf("check leadership %s: %w", name, err)
	}
	s.log.Info("leadership taken", "leadership", name)
	if err := work(held); err != nil && held.Err() == nil {
		return fmt.Errorf("work of leadership %s: %w", name, err)
	}
	if held.Err() != nil && ctx.Err() == nil {
		return fmt.Errorf("leadership %s: the lease was not renewed", name)
	}
	return nil
}

// first checks what Campaign does not: it waits for the keys before its own to go, and returns nil also when its own
// went with them, because the session had expired meanwhile.
func (s *Store) first(ctx context.Context, name string, election *concurrency.Election) error {
	answer, err := s.get(ctx, leaderRoot+name+"/", clientv3.WithFirstCreate()...)
	if err != nil {
		return err
	}
	if len(answer.Kvs) == 0 || string(answer.Kvs[0].Key) != election.Key() || answer.Kvs[0].CreateRevision != election.Rev() {
		return errNotFirst
	}
	return ctx.Err()
}

func (s *Store) grant(ctx context.Context) (clientv3.LeaseID, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	lease, err := s.client.Grant(ctx, leaseSeconds)
	if err != nil {
		return clientv3.NoLease, err
	}
	return lease.ID, nil
}

// revoke takes the key away at once. If it cannot, the lease expires by itself.
func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_, _ = s.client.Revoke(ctx, lease)
}

// outlive is a context that ends the given time after the other one.
func outlive(ctx context.Context, grace time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	armed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer = time.AfterFunc(grace, cancel)
		close(armed)
	})
	return longer, func() {
		cancel()
		if !stop() {
			<-armed
			timer.Stop()
		}
	}
}
