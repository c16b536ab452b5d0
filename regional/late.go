package regional

import (
	"context"
	"sync/atomic"
	"time"

	"tranche/allocation"
)

// Late is a backend whose node comes later: a node in shadow answers also while it has no database yet. Until then nothing
// is decided, and every answer says so.
type Late struct {
	region, name string
	empty        *allocation.Catalogue
	now          atomic.Pointer[Node]
}

// NewLate is a backend without a node.
func NewLate(region, name string) *Late {
	return &Late{region: region, name: name, empty: allocation.NewCatalogue(region)}
}

// Come makes the node answer from now on.
func (l *Late) Come(n *Node) { l.now.Store(n) }

// Decide asks the node; without one nothing is decided, at once.
func (l *Late) Decide(ctx context.Context, requests []allocation.Request, deadline time.Time) []allocation.Decision {
	if n := l.now.Load(); n != nil {
		return n.Decide(ctx, requests, deadline)
	}
	out := make([]allocation.Decision, len(requests))
	for i, r := range requests {
		out[i] = allocation.Decision{
			Reason: allocation.DatabaseUnavailable, Action: allocation.ActionRefused, Op: r.Op, Key: r.Key, Region: l.region,
			Detail: "the node has not reached its database yet", Retry: 1, Evidence: allocation.Evidence{Correlation: r.Correlation, Node: l.name},
		}
	}
	return out
}

// Find asks the node.
func (l *Late) Find(ctx context.Context, key allocation.IDKey) (allocation.Decision, bool, error) {
	if n := l.now.Load(); n != nil {
		return n.Find(ctx, key)
	}
	return allocation.Decision{}, false, ErrNotReady
}

// Reservations asks the node.
func (l *Late) Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error) {
	if n := l.now.Load(); n != nil {
		return n.Reservations(ctx, after, limit)
	}
	return nil, ErrNotReady
}

// Export asks the node.
func (l *Late) Export(ctx context.Context, after string, limit int) (Account, error) {
	if n := l.now.Load(); n != nil {
		return n.Export(ctx, after, limit)
	}
	return Account{}, ErrNotReady
}

// PutDocument asks the node.
func (l *Late) PutDocument(ctx context.Context, d allocation.Document) (bool, error) {
	if n := l.now.Load(); n != nil {
		return n.PutDocument(ctx, d)
	}
	return false, ErrNotReady
}

// Records are the node's; nil: there is none yet.
func (l *Late) Records() Records {
	if n := l.now.Load(); n != nil {
		return n.Records()
	}
	return nil
}

// NoteRefusal tells the node.
func (l *Late) NoteRefusal(r allocation.Request, d *allocation.Decision) {
	if n := l.now.Load(); n != nil {
		n.NoteRefusal(r, d)
	}
}

// Status is the node's; without one it is not ready.
func (l *Late) Status() NodeStatus {
	if n := l.now.Load(); n != nil {
		return n.Status()
	}
	return NodeStatus{
		Region: l.region, Node: l.name, Stopped: allocation.Starting, StoppedDetail: "the database has not been reached yet",
		Reasons: []string{admitsNothing + "the database has not been reached yet"},
	}
}

// Catalogue is the node's, or empty.
func (l *Late) Catalogue() *allocation.Catalogue {
	if n := l.now.Load(); n != nil {
		return n.Catalogue()
	}
	return l.empty
}
