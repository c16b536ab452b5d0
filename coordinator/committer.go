package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
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
	runtime Runtime
	random  *randomness
	refresh time.Duration
	memory  Memory // nil: none
	around  func() (string, allocation.History)
	tried   bool // the memory holds a mark that was tried, and not what became of it
	// unsettled: what became of the last write is not known, and Run is ending. The memory keeps what was tried.
	unsettled bool
	onLost    func() // hears that the own mark is gone; nil: nobody does

	line line // of those that Run has not taken into waiting yet

	// Only Run touches these.
	waiting []*pending
	known   Item      // own mark as the store is known to hold it; revision 0 before the first transaction
	heldAt  time.Time // start of the latest transaction that found the mark in place

	mu     sync.Mutex // never held across a call of the store
	writer string     // only Run changes it
	mark   allocation.Mark
	lost   error // ErrHistoryLost or errMarkExpired; Renew begins anew after the first

	lostDetail string // what is missing, for a person
	trusted    bool   // see Trust
	life       int

	sweep sweeper
}

var _ Writer = (*Committer)(nil)

// CommitterOption changes what NewCommitter takes by default.
type CommitterOption func(*Committer)

// WithRuntime is how the committer waits and tells the time. A mark says by its clock when the process wrote last; nothing's
// safety rests on it.
func WithRuntime(r Runtime) CommitterOption { return func(c *Committer) { c.runtime = r } }

// WithRandom is the source of the writer's id and of the marks' values, which must never come twice: crypto/rand, or a
// simulator's.
func WithRandom(from io.Reader) CommitterOption {
	return func(c *Committer) { c.random = newRandomness(from) }
}

// NewCommitter makes a new writer with an id that was never used. A process has one, and calls its Run.
func NewCommitter(store Store, log hclog.Logger, options ...CommitterOption) *Committer {
	if log == nil {
		log = hclog.NewNullLogger()
	}
	c := &Committer{store: store, log: log, runtime: Real{}, random: newRandomness(nil), refresh: markRefresh}
	for _, option := range options {
		option(c)
	}
	c.writer, c.life = newWriter(c.random), 1
	c.line.some = c.runtime.NewSignal()
	c.known, c.mark = Item{Key: markKey(c.writer)}, allocation.Mark{Writer: c.writer}
	c.heldAt = c.runtime.Now()
	return c
}

// newWriter is an id that was never used.
func newWriter(r *randomness) string { return uuid.Must(uuid.NewRandomFromReader(r)).String() }

// Mark is what this process last left in the store for certain. Its count is 0 before the first transaction.
func (c *Committer) Mark() allocation.Mark {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mark
}

// Lost says whether the store lost this process's own last write. It stays so until Renew.
func (c *Committer) Lost() bool { return errors.Is(c.ended(), ErrHistoryLost) }

// LostDetail says what was expected and what was found instead; empty while nothing is lost.
func (c *Committer) LostDetail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !errors.Is(c.lost, ErrHistoryLost) {
		return ""
	}
	return c.lostDetail
}

func (c *Committer) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Commit implements Writer. It waits for the truth until ctx ends: before the change was tried that is ctx's error,
// afterwards ErrUnknownOutcome.
func (c *Committer) Commit(ctx context.Context, change Change) (int64, error) {
	return c.commitIn(ctx, c.Life(), change)
}

// commitIn is Commit for a change that only the writer of this life may write.
func (c *Committer) commitIn(ctx context.Context, life int, change Change) (int64, error) {
	p := &pending{Change: change, ctx: ctx, life: life}
	var err error
	if p.bytes, err = c.check(change); err != nil {
		return 0, err
	}
	if err := c.ended(); err != nil {
		return 0, err
	}
	p.known = c.runtime.NewSignal()
	if !c.line.enter(p) {
		return 0, ErrStopped
	}
	p.wait()
	if p.result.Load() == nil && p.leave() {
		c.line.leave(p)
		return 0, fmt.Errorf("wait to write: %w", ctx.Err())
	}
	if r := p.result.Load(); r != nil { // maybe just in time
		return r.revision, r.err
	}
	return 0, fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
}

// Run writes what Commit brings, until ctx ends; then it takes its mark away and returns nil. A process whose mark was
// removed while it could not reach the store gets an error: it must start again, as a new writer. After ErrHistoryLost
// it goes on, to refuse every change, until ctx ends.
func (c *Committer) Run(ctx context.Context) error {
	defer c.refuseWaiting()
	for {
		idle := len(c.waiting) == 0 && !c.await(ctx)
		if ctx.Err() != nil {
			c.takeMarkAway(ctx)
			return nil
		}
		c.waiting = append(c.waiting, c.line.take(maxWaiting-len(c.waiting))...)
		c.doInRun()
		batch := c.gather()
		if len(batch) > 0 || idle && c.runtime.Now().Sub(c.heldAt) >= c.refresh {
			c.write(ctx, batch)
		}
		if len(c.waiting) == 0 {
			c.rememberHeld(ctx)
		}
		if err := c.ended(); errors.Is(err, errMarkExpired) {
			return err
		}
	}
}

// await waits for a change, but no longer than the mark may stand; false: there is none.
func (c *Committer) await(ctx context.Context) bool {
	ctx, cancel := c.runtime.WithTimeout(ctx, c.refresh)
	defer cancel()
	return c.line.wait(ctx)
}

// refuseWaiting answers those whose change was not tried, and lets nobody in any more.
func (c *Committer) refuseWaiting() {
	err := c.ended()
	if err == nil {
		err = ErrStopped
	}
	finish(append(c.waiting, c.line.close()...), 0, err)
	c.waiting = nil
}
