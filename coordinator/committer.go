package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"tranche/allocation"
)

const (
	// maxWaiting is how many changes wait for the transaction under way; more callers wait for a place.
	maxWaiting = 1024
	// writeTimeout bounds one call of the store also where the store itself does not.
	writeTimeout = 10 * time.Second
	// markRefresh is how long a mark may stand without a transaction before one is made that carries nothing else.
	markRefresh = 10 * time.Minute
)

// ErrStopped: the committer has ended; the change was not tried.
var ErrStopped = errors.New("the coordinator is stopping: nothing was written")

// Committer is the one way in which a process writes. It leaves a mark in every transaction and compares it in the next,
// so that a store that went back, or is another one, cannot be written to:
//
//	Commit ─┐  at most            one transaction at a time
//	Commit ─┼─▶ waiting ──gather──▶ if   own mark is as we left it, and all reads of all changes are
//	Commit ─┘                       then all puts and deletes, own mark: count+1, new random value
//
//	committed ──────────────────────▶ each change: its revision
//	refused, own mark differs ──────▶ ErrHistoryLost, for these and for ever
//	refused, some reads differ ─────▶ those: ErrConflict; the others again at once
//	answer lost ──▶ settle: read the mark, and replace it where it is still the old one
//	                 it is the one we tried ──▶ it was committed: each change: its revision
//	                 replaced ─────────────────▶ it never will be (it compares the mark that is gone): again
//	                 anything else ────────────▶ ErrHistoryLost
//
// An example. The mark is (7, aa) and a transaction that would make it (8, bb) gets no answer. The mark still reads
// (7, aa), but the write may be on its way. Once (7, aa) is replaced by (8, cc), the late write compares (7, aa) in vain;
// if the replacement is refused because (8, bb) is there, the write had taken effect. Nothing is ever tried again before
// one of the two is known, and while it is not, nobody is told anything but the truth: it is unknown.
//
// A change never shares a transaction with one that writes what it reads or writes; it waits for the next.
//
// Marks are one document per process that ever wrote. A process that ends in order takes its own away; what piles up are
// those of processes that crashed, about 200 bytes each, until SweepMarks removes them.
type Committer struct {
	store   Store
	log     hclog.Logger
	now     func() time.Time
	refresh time.Duration

	writer string
	queue  chan *pending
	done   chan struct{} // closed when Run has ended

	// Only Run's goroutine touches these.
	waiting []*pending
	known   Item      // own mark as the store is known to hold it; revision 0 before the first transaction
	heldAt  time.Time // start of the latest transaction that found the mark in place

	mu   sync.Mutex // never held across a call of the store
	mark allocation.Mark
	lost error // ErrHistoryLost or errMarkExpired, for good

	sweep sweeper
}

var _ Writer = (*Committer)(nil)

// CommitterOption changes what NewCommitter takes by default.
type CommitterOption func(*Committer)

// WithNow is the wall clock of marks: when a process wrote last. Nothing's safety rests on it.
func WithNow(now func() time.Time) CommitterOption { return func(c *Committer) { c.now = now } }

// NewCommitter makes a new writer with an id that was never used. A process has one, and calls its Run.
func NewCommitter(store Store, log hclog.Logger, options ...CommitterOption) *Committer {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	writer := uuid.NewString()
	c := &Committer{
		store: store, log: log, refresh: markRefresh,
		now:    func() time.Time { return time.Now().Round(0) }, // a machine that slept counts the time
		writer: writer,
		queue:  make(chan *pending),
		done:   make(chan struct{}),
		known:  Item{Key: markKey(writer)},
		mark:   allocation.Mark{Writer: writer},
	}
	for _, option := range options {
		option(c)
	}
	c.heldAt = c.now()
	return c
}

// Mark is what this process last left in the store for certain. Its count is 0 before the first transaction.
func (c *Committer) Mark() allocation.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

// Lost says whether the store lost this process's own last write. It never becomes false again.
func (c *Committer) Lost() bool { return errors.Is(c.ended(), ErrHistoryLost) }

// LostDetail says what was expected and what was found instead; empty while nothing is lost.
func (c *Committer) LostDetail() string {
	if err := c.ended(); errors.Is(err, ErrHistoryLost) {
		return err.Error()
	}
	return ""
}

func (c *Committer) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// pending is one change on its way. Its caller may leave while it waits, not once it is part of a transaction.
type pending struct {
	Change
	ctx    context.Context
	bytes  int
	state  atomic.Int32
	result chan outcome // holds one
}

type outcome struct {
	revision int64
	err      error
}

const (
	stateWaiting = iota
	stateTaken   // part of a transaction that was or is being tried
	stateLeft    // the caller has gone, and was told that nothing happened
)

func (p *pending) take() bool { return p.state.CompareAndSwap(stateWaiting, stateTaken) }

func (p *pending) leave() bool { return p.state.CompareAndSwap(stateWaiting, stateLeft) }

func (p *pending) finish(revision int64, err error) { p.result <- outcome{revision, err} }

// Commit implements Writer. It waits for the truth until ctx ends: before the change was tried that is ctx's error,
// afterwards ErrUnknownOutcome.
func (c *Committer) Commit(ctx context.Context, change Change) (int64, error) {
	p := &pending{Change: change, ctx: ctx, result: make(chan outcome, 1)}
	var err error
	if p.bytes, err = c.check(change); err != nil {
		return 0, err
	}
	if err := c.ended(); err != nil {
		return 0, err
	}
	select {
	case c.queue <- p:
	case <-ctx.Done():
		return 0, fmt.Errorf("wait to write: %w", ctx.Err())
	case <-c.done:
		return 0, ErrStopped
	}
	select {
	case r := <-p.result:
		return r.revision, r.err
	case <-ctx.Done():
		if p.leave() {
			return 0, fmt.Errorf("wait to write: %w", ctx.Err())
		}
	}
	select {
	case r := <-p.result: // it was known just in time
		return r.revision, r.err
	default:
		return 0, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
	}
}

// Run writes what Commit brings, until ctx ends; then it takes its mark away and returns nil. A process whose mark was
// removed while it could not reach the store gets an error: it must start again, as a new writer. After ErrHistoryLost
// it goes on, to refuse every change, until ctx ends.
func (c *Committer) Run(ctx context.Context) error {
	defer close(c.done)
	defer c.refuseWaiting()
	refresh := time.NewTicker(c.refresh)
	defer refresh.Stop()
	for {
		idle := false
		if len(c.waiting) == 0 {
			select {
			case <-ctx.Done():
			case p := <-c.queue:
				c.waiting = append(c.waiting, p)
			case <-refresh.C:
				idle = true
			}
		}
		if ctx.Err() != nil {
			c.takeMarkAway(ctx)
			return nil
		}
		c.drain()
		batch := c.gather()
		if len(batch) > 0 || idle && c.now().Sub(c.heldAt) >= c.refresh {
			c.write(ctx, batch)
		}
		if err := c.ended(); errors.Is(err, errMarkExpired) {
			return err
		}
	}
}

// refuseWaiting answers those whose change was not tried. Whoever comes later finds done closed.
func (c *Committer) refuseWaiting() {
	err := c.ended()
	if err == nil {
		err = ErrStopped
	}
	for _, p := range c.waiting {
		p.finish(0, err)
	}
	c.waiting = nil
}
