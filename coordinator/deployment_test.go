package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/coordinator"
)

// unanswered is a store that fails the first writes of a deployment.
type unanswered struct {
	coordinator.Store
	left atomic.Int32
	fail func(ctx context.Context, txn coordinator.Txn) error
}

func (u *unanswered) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	makes := slices.ContainsFunc(txn.Puts, func(i coordinator.Item) bool { return strings.HasSuffix(i.Key, "/deployment") })
	if makes && u.left.Add(-1) >= 0 {
		return coordinator.TxnResult{}, u.fail(ctx, txn)
	}
	return u.Store.Commit(ctx, txn)
}

// The first start of a coordinator beside an etcd that is starting, too: a write that fails once, whatever became of it, must
// neither end the process, nor keep the only token from the person who waits for it.
func TestDeploymentIsMadeThroughLostWrites(t *testing.T) {
	besideOthers(t)
	for name, fail := range map[string]func(u *unanswered) func(context.Context, coordinator.Txn) error{
		"etcd does not answer": func(*unanswered) func(context.Context, coordinator.Txn) error {
			return func(context.Context, coordinator.Txn) error { return coordinator.ErrUnavailable }
		},
		"it never arrived, nor did the answer": func(*unanswered) func(context.Context, coordinator.Txn) error {
			return func(context.Context, coordinator.Txn) error {
				return fmt.Errorf("%w: by the test", coordinator.ErrUnknownOutcome)
			}
		},
		"only the answer was lost": func(u *unanswered) func(context.Context, coordinator.Txn) error {
			return func(ctx context.Context, txn coordinator.Txn) error {
				_, err := u.Store.Commit(ctx, txn)
				return errors.Join(err, coordinator.ErrUnknownOutcome)
			}
		},
		"the time was over": func(*unanswered) func(context.Context, coordinator.Txn) error {
			return func(context.Context, coordinator.Txn) error {
				return fmt.Errorf("%w: %w", coordinator.ErrUnknownOutcome, context.DeadlineExceeded)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 0)
			u := &unanswered{Store: w.store}
			u.left.Store(2)
			u.fail = fail(u)
			w.spoil = func(c *coordinator.Config) { c.Store = u }
			r := w.start() // it waits for the token, and until the replica is ready
			if u.left.Load() >= 2 {
				t.Fatal("no write failed")
			}
			if status, answer := w.ask(r, "GET", "/v1/status", nil); status != 200 || answer["deployment"] == "" {
				t.Errorf("%d %v", status, answer)
			}
		})
	}
}
