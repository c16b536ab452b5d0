//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster/clustertest"
)

// renewed is a hub that does not know the region's token while it is so told.
type renewed struct {
	*hub
	unknown atomic.Bool
}

func (r *renewed) Sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	if r.unknown.Load() {
		return allocation.SyncAnswer{}, fmt.Errorf("status 401: %w", regional.ErrTokenUnknown)
	}
	return r.hub.Sync(ctx, call)
}

// Without this a region whose token was renewed elsewhere would look well until its terms are over, and then refuse all.
func TestATokenThatIsNotKnownIsSeen(t *testing.T) {
	h := &renewed{hub: newHub("eu")}
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	n := node(t, h, "eu", "n1", clustertest.Database(t))
	ready(t, n, 1)
	h.unknown.Store(true)
	eventually(t, "the status says so", func() bool {
		s := n.Status()
		return s.Sync.TokenUnknown && len(s.Warnings) == 1 && strings.Contains(s.Warnings[0], "does not know this region's token")
	})
	if d := decide(n, request(allocation.Spend, "alone", acme, nil)); !d.Admitted() {
		t.Errorf("the region does not go on with what it holds: %s", d.Reason)
	}
	h.unknown.Store(false)
	eventually(t, "and no more", func() bool { s := n.Status(); return !s.Sync.TokenUnknown && len(s.Warnings) == 0 })
}
