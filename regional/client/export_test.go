package client

import (
	"context"
	"time"
)

// SetSleep replaces the waits between tries.
func SetSleep(c *Client, f func(time.Duration)) {
	c.sleep = func(_ context.Context, d time.Duration) error { f(d); return nil }
}

// Advance makes the next node the one that is asked.
func Advance(c *Client) { c.next.Add(1) }
