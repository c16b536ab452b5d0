package scale

import (
	"context"
	"sync/atomic"
	"time"

	"tranche/coordinator"
)

// clock is a Runtime whose time can be driven ahead. What waits for its next turn waits a part of that only, so that an hour is
// over as soon as its work is done. Calls of etcd are bounded as ever: etcd does not go faster.
type clock struct {
	coordinator.Real
	ahead atomic.Int64 // of the machine's, nanoseconds
}

const (
	shortened   = 20          // how much shorter a wait is
	longestWait = time.Second // of those that WithTimeout bounds; what is longer bounds a call
)

// Now is the time that this clock shows.
func (c *clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Sleep waits a part of that.
func (c *clock) Sleep(ctx context.Context, d time.Duration) { c.Real.Sleep(ctx, d/shortened) }

// WithTimeout ends a wait sooner.
func (c *clock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= longestWait {
		d /= shortened
	}
	return c.Real.WithTimeout(ctx, d)
}

// drive drives the clock ahead.
func (c *clock) drive(d time.Duration) { c.ahead.Add(int64(d)) }
