package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tranche/allocation"
)

// Memory is what outlives a coordinator's process: the marks that it left in etcd. A store of one process; two must not
// share one.
type Memory interface {
	// Load returns what was saved last; nothing was if the writer is empty.
	Load(ctx context.Context) (Remembered, error)
	// Save returns once it is durable. Before that it may or may not have taken effect.
	Save(ctx context.Context, r Remembered) error
}

// Remembered is what a coordinator knows of its own last writes. It is saved before each transaction, so that a process
// that starts again finds in etcd either what it left for certain or what it tried to leave; anything else is lost history.
type Remembered struct {
	Format     int                `json:"format"`
	Writer     string             `json:"writer"`
	At         time.Time          `json:"at"`
	Left       allocation.Mark    `json:"left"`
	Tried      []allocation.Mark  `json:"tried,omitempty"`
	Trusted    bool               `json:"trusted"`              // it had made sure that etcd did not go back before it started
	Deployment string             `json:"deployment,omitempty"` // its id
	History    allocation.History `json:"history,omitzero"`     // the newest that it knew
}

// WithMemory is what the committer remembers beyond its process; nil: nothing. Around tells of the deployment and of the
// history that it writes under.
func WithMemory(m Memory, around func() (deployment string, h allocation.History)) CommitterOption {
	return func(c *Committer) { c.memory, c.around = m, around }
}

// remember saves what is about to be tried.
func (c *Committer) remember(ctx context.Context, tried ...Item) error {
	if c.memory == nil {
		return nil
	}
	r := Remembered{Format: documentFormat, Writer: c.writer, At: c.runtime.Now().UTC(), Left: c.Mark()}
	c.mu.Lock()
	r.Trusted = c.trusted
	c.mu.Unlock()
	for _, item := range tried {
		r.Tried = append(r.Tried, c.markOf(item))
	}
	r.Deployment, r.History = c.around()
	c.tried = len(tried) > 0
	if err := c.memory.Save(context.WithoutCancel(ctx), r); err != nil {
		return fmt.Errorf("save the mark in the state directory, before anything is written: %w", err)
	}
	return nil
}

// rememberHeld saves what is known of the last write, when none follows it at once: an etcd that went back to just before
// that write would otherwise look as if it had never been made. A crash before this leaves one write that cannot be told.
func (c *Committer) rememberHeld(ctx context.Context) {
	if !c.tried || c.unsettled || c.ended() != nil {
		return
	}
	if err := c.remember(ctx); err != nil {
		c.log.Warn("the last mark is not saved", "error", err)
	}
}

// markOf reads a mark; one that is absent has count 0.
func (c *Committer) markOf(item Item) allocation.Mark {
	mark := allocation.Mark{Writer: keyName(item.Key)}
	var d markDocument
	if json.Unmarshal(item.Value, &d) == nil {
		mark.Count, mark.Value = d.Count, d.Value
	}
	return mark
}

// recollection is what a committer found when it compared its memory with the store.
type recollection struct {
	Remembered
	held bool   // its own last write is in place: etcd did not go back
	lost string // what it left and what it found instead; empty: it cannot tell
}

// recall compares the memory with the store, and goes on as the same writer if the mark is in place. Only Run calls it.
func (c *Committer) recall(ctx context.Context) (recollection, error) {
	if c.memory == nil {
		return recollection{}, nil
	}
	r, err := c.memory.Load(ctx)
	if err != nil || r.Writer == "" {
		return recollection{}, err
	}
	fresh := c.known
	c.known = Item{Key: markKey(r.Writer)}
	item, err := c.readMark(ctx)
	c.known = fresh
	if err != nil {
		return recollection{}, err
	}
	now, found := c.markOf(item), recollection{Remembered: r}
	is := func(tried allocation.Mark) bool {
		return allocation.MarkMemory{Left: r.Left, Tried: tried}.Judge(now) != allocation.MarkLost
	}
	held := is(allocation.Mark{}) || slices.ContainsFunc(r.Tried, is)
	if c.Mark().Writer == r.Writer && !(held && now.Count > 0) {
		c.renew() // an attempt before this one had found the mark in place
	}
	switch {
	case !r.Trusted:
		// It had found out nothing yet.
	case held && now.Count > 0:
		found.held = true
		c.mu.Lock()
		c.writer, c.mark, c.trusted = r.Writer, now, true
		c.mu.Unlock()
		c.known, c.heldAt = item, c.runtime.Now()
		if len(r.Tried) > 0 {
			return found, c.fenceRecalled(ctx, r)
		}
	case now.Count == 0 && r.Left.Count == 0:
		// It ended before its first write was answered, which may never have arrived.
	case now.Count == 0 && c.runtime.Now().Sub(r.At) > markKept/2:
		// Another process may have swept it.
	default:
		found.lost = missingMark(r.Writer, r.Left.Count, now.Count)
	}
	return found, nil
}

// fenceRecalled replaces the mark, so that a write of the life before, which may still be on its way, compares it in vain.
// Where it arrives first, its mark stands, and is as much our own. After an error all is to be compared anew.
func (c *Committer) fenceRecalled(ctx context.Context, r Remembered) error {
	fence := c.nextMark()
	next := r
	next.At, next.Tried = c.runtime.Now().UTC(), append(slices.Clone(r.Tried), c.markOf(fence))
	if err := c.memory.Save(context.WithoutCancel(ctx), next); err != nil {
		return fmt.Errorf("save the mark in the state directory: %w", err)
	}
	c.tried = false // until it is known which of them stands, nothing may be saved in the place of what was tried
	started := c.runtime.Now()
	result, err := c.commit(ctx, Txn{Compares: []Item{c.known}, Puts: []Item{fence}})
	switch {
	case err != nil:
		return err
	case result.Committed:
		c.hold(fence, result.Revision, started)
		c.tried = true
		return nil
	case slices.Contains(r.Tried, c.markOf(result.Current[0])):
		c.hold(result.Current[0], result.Current[0].Revision, started)
		c.tried = true
		return nil
	}
	return errors.New("the mark changed while it was compared")
}

// renew goes on as a new writer, which remembers nothing. Only Run calls it.
func (c *Committer) renew() {
	id := newWriter(c.random)
	c.known, c.heldAt = Item{Key: markKey(id)}, c.runtime.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.life++
	c.writer, c.mark, c.lost, c.trusted = id, allocation.Mark{Writer: id}, nil, false
}

// Recall is recall, done by Run between two transactions.
func (c *Committer) Recall(ctx context.Context) (found recollection, err error) {
	if waited := c.inRun(ctx, func() { found, err = c.recall(ctx) }); waited != nil {
		return recollection{}, waited
	}
	return found, err
}

// Renew is renew, done by Run between two transactions. It returns the number of the new life.
func (c *Committer) Renew(ctx context.Context) (life int, err error) {
	err = c.inRun(ctx, c.renew)
	return c.Life(), err
}

// Life counts the writers that this process was.
func (c *Committer) Life() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.life
}

// Trust notes that etcd is known not to have gone back before this writer: its memory is worth something from here on.
func (c *Committer) Trust() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trusted = true
}

// inRun has Run do something between two transactions.
func (c *Committer) inRun(ctx context.Context, do func()) error {
	p := &pending{ctx: ctx, do: do, known: c.runtime.NewSignal()}
	if !c.line.enter(p) {
		return ErrStopped
	}
	p.wait()
	if p.result.Load() == nil && p.leave() {
		c.line.leave(p)
		return ctx.Err()
	}
	for p.result.Load() == nil {
		p.known.Wait(context.WithoutCancel(ctx)) // it is being done
	}
	return nil
}

// doInRun does what inRun asks for.
func (c *Committer) doInRun() {
	c.waiting = slices.DeleteFunc(c.waiting, func(p *pending) bool {
		if p.do == nil {
			return false
		}
		if p.take() {
			p.do()
			p.finish(0, nil)
		}
		return true
	})
}

// errOtherLife: the change was decided by what an earlier writer of this process knew.
var errOtherLife = errors.New("etcd lost history since this was decided; nothing was written")
