package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Waits between two attempts to learn the truth about a lost answer.
const (
	settleFirstWait = 50 * time.Millisecond
	settleMaxWait   = 2 * time.Second
)

// errMarkExpired: the mark is gone, and it is so long ago that we refreshed it that another process may have swept it.
// That is no proof of a lost history, which would freeze everything; but this writer can no longer tell.
var errMarkExpired = errors.New("the coordinator could not reach etcd for so long that its mark may have been removed: start it again")

// write brings the batch to its end: every change of it has its answer when write returns. Without changes it refreshes
// the mark.
func (c *Committer) write(ctx context.Context, batch []*pending) {
	for first := true; first || len(batch) > 0; first = false {
		if err := c.ended(); err != nil {
			finish(batch, 0, err)
			return
		}
		next, started := c.nextMark(), c.runtime.Now()
		if err := c.remember(ctx, next); err != nil {
			finish(batch, 0, err)
			return
		}
		result, err := c.commit(ctx, c.transaction(batch, next))
		switch {
		case errors.Is(err, ErrUnknownOutcome):
			truth, revision := c.settle(ctx, next)
			c.unsettled = truth == truthUnknown
			if truth == truthFenced {
				batch = stillWanted(batch)
				continue // it never took effect and never will: the same as if it had not been tried
			}
			finish(batch, revision, c.settled(truth, err))
			return
		case err != nil:
			finish(batch, 0, err)
			return
		case result.Committed:
			c.hold(next, result.Revision, started)
			finish(batch, result.Revision, nil)
			return
		}
		batch = c.refused(batch, result.Current)
	}
}

// settled is what the callers hear of a settled transaction that was not fenced.
func (c *Committer) settled(truth truth, unknown error) error {
	if truth == truthUnknown {
		return fmt.Errorf("%w; the coordinator is stopping", unknown)
	}
	if err := c.ended(); errors.Is(err, errMarkExpired) { // that says nothing of the transaction
		return fmt.Errorf("%w; %w", unknown, err)
	}
	return c.ended()
}

// commit is not cancelled with Run's context: that would turn an answer that is on its way into an unknown outcome.
func (c *Committer) commit(ctx context.Context, txn Txn) (TxnResult, error) {
	ctx, cancel := c.runtime.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return c.store.Commit(ctx, txn)
}

func finish(batch []*pending, revision int64, err error) {
	if err != nil {
		revision = 0
	}
	for _, p := range batch {
		p.finish(revision, err)
	}
}

// stillWanted drops the changes whose callers were told meanwhile that the outcome is unknown: they will not look again.
func stillWanted(batch []*pending) (wanted []*pending) {
	for _, p := range batch {
		if p.ctx.Err() != nil {
			p.finish(0, fmt.Errorf("%w: %w", ErrUnknownOutcome, p.ctx.Err()))
			continue
		}
		wanted = append(wanted, p)
	}
	return wanted
}

// refused answers the changes whose own reads differ, and returns the others. Each time at least one is answered.
func (c *Committer) refused(batch []*pending, current []Item) (rest []*pending) {
	now := map[string]Item{}
	for _, item := range current {
		now[item.Key] = item
	}
	if mark := now[c.known.Key]; !same(mark, c.known) {
		c.lose(mark)
		finish(batch, 0, c.ended())
		return nil
	}
	for _, p := range batch {
		var found *conflict
		for _, read := range p.Reads {
			if is := now[read.Key]; !same(is, read) && (found == nil || is.Revision > 0) {
				found = &conflict{read.Key, is.Revision}
			}
		}
		if found == nil {
			rest = append(rest, p)
			continue
		}
		p.finish(0, found)
	}
	if len(rest) == len(batch) {
		finish(rest, 0, errors.New("the store refused a transaction and shows what it compares as it should be"))
		return nil
	}
	return rest
}

// conflict is ErrConflict, with the revision at which the document was written that is not what was read; 0: it is not there.
type conflict struct {
	key      string
	revision int64
}

func (c *conflict) Error() string { return ErrConflict.Error() + ": " + c.key }
func (c *conflict) Unwrap() error { return ErrConflict }

// same says whether two readings of a key are equal in all that is compared.
func same(a, b Item) bool {
	return a.Revision == b.Revision && (a.Revision == 0 || bytes.Equal(a.Value, b.Value))
}

// truth is what became of a transaction whose answer was lost.
type truth int

const (
	truthUnknown   truth = iota // Run is ending, and the store does not answer
	truthCommitted              // it stands
	truthFenced                 // it does not, and never will
	truthLost                   // the store holds a mark that is none of ours
)

// settle learns what became of the transaction that tried to leave this mark, however long the store is away. The same
// fence is tried each time, so that there are never more than two marks that may be ours.
func (c *Committer) settle(ctx context.Context, tried Item) (truth, int64) {
	c.log.Warn("answer to a write was lost", "writer", c.writer)
	fence := c.nextMark()
	for wait := settleFirstWait; ; wait = min(2*wait, settleMaxWait) {
		truth, revision, err := c.settleOnce(ctx, tried, fence)
		if err == nil {
			return truth, revision
		}
		c.runtime.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return truthUnknown, 0
		}
	}
}

// settleOnce reads before it fences: a store that is out of space takes no fence, but says what it holds.
func (c *Committer) settleOnce(ctx context.Context, tried, fence Item) (truth, int64, error) {
	started := c.runtime.Now()
	current, err := c.readMark(ctx)
	if err != nil {
		return truthUnknown, 0, err
	}
	if same(current, c.known) {
		if err := c.remember(ctx, tried, fence); err != nil {
			return truthUnknown, 0, err
		}
		result, err := c.commit(ctx, Txn{Compares: []Item{c.known}, Puts: []Item{fence}})
		if err != nil {
			return truthUnknown, 0, err
		}
		if result.Committed {
			c.hold(fence, result.Revision, started)
			return truthFenced, 0, nil
		}
		current = result.Current[0]
	}
	switch {
	case bytes.Equal(current.Value, tried.Value):
		c.hold(tried, current.Revision, started)
		return truthCommitted, current.Revision, nil
	case bytes.Equal(current.Value, fence.Value): // an attempt whose answer was lost as well
		c.hold(fence, current.Revision, started)
		return truthFenced, 0, nil
	}
	c.lose(current)
	return truthLost, 0, nil
}

func (c *Committer) readMark(ctx context.Context) (Item, error) {
	ctx, cancel := c.runtime.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	items, _, err := c.store.Range(ctx, c.known.Key)
	if err != nil {
		return Item{}, err
	}
	for _, item := range items {
		if item.Key == c.known.Key {
			return item, nil
		}
	}
	return Item{Key: c.known.Key}, nil
}
