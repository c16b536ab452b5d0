package ownertwin

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/world"
)

// writer keeps the memory of one slot, by the rules of regional/postgres: after an unknown outcome the row may hold any of
// the possible marks; Resolve looks under the row's lock, and replaces the mark, so that a transaction that comes later
// finds one that it does not expect.
type writer struct {
	owner *Owner
	slot  *world.Lock

	last      allocation.Mark // what it last wrote for certain
	possible  []possible
	committed bool
	unknown   []*transaction // that an unknown outcome is about
	lost      error
	asked     *asked // what its last call said of the owner
	vouched   string // the lineage that it is vouched for in; or empty
}

// asked is what a call said of the owner: the answer to it is for that.
type asked struct {
	incarnation string
	home        allocation.Home
}

type possible struct {
	mark      allocation.Mark
	committed bool
}

var _ regional.Writer = (*writer)(nil)

func (o *Owner) random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = o.process.Read(b)
	return hex.EncodeToString(b)
}

// NewWriter implements regional.Owner.
func (o *Owner) NewWriter(ctx context.Context, name string) (regional.Writer, error) {
	mark := allocation.Mark{Writer: o.random(16), Count: 1, Value: o.random(16)}
	x, err := o.start(ctx, "writer", switchFree, nil)
	if err != nil {
		return nil, fmt.Errorf("register writer %s: %w", name, err)
	}
	err = o.commitWithout(ctx, x, func() error {
		if err := x.notHandedOver(); err != nil {
			return err
		}
		x.change(putWriter(writerRow{name: name, mark: mark, seen: x.db.Clock().Micros()}))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("register writer %s: %w", name, err)
	}
	return &writer{owner: o, slot: o.process.World().NewLock(), last: mark}, nil
}

// ResumeWriter implements regional.Owner.
func (o *Owner) ResumeWriter(mark allocation.Mark) regional.Writer {
	return &writer{owner: o, slot: o.process.World().NewLock(), last: mark, possible: []possible{{mark: mark, committed: true}}}
}

// Vouch implements regional.Writer.
func (w *writer) Vouch(lineage string) { w.vouched = lineage }

// Mark implements regional.Writer.
func (w *writer) Mark() allocation.Mark { return w.last }

// take waits for the writer's slot, and refuses a writer that cannot go on.
func (o *Owner) take(ctx context.Context, rw regional.Writer) (*writer, error) {
	w, ok := rw.(*writer)
	if !ok || w.owner != o {
		return nil, errors.New("the writer belongs to another store")
	}
	if err := w.slot.Take(ctx); err != nil {
		return nil, fmt.Errorf("wait for the writer's transaction to end: %w", err)
	}
	switch {
	case w.lost != nil:
		w.slot.Give()
		return nil, w.lost
	case len(w.possible) > 0:
		w.slot.Give()
		return nil, fmt.Errorf("%w: the one before this transaction; resolve it first", regional.ErrUnknownOutcome)
	}
	if o.endpoint.db.Breaks.MarkOutside {
		if err := w.look(ctx); err != nil {
			w.slot.Give()
			return nil, err
		}
	}
	return w, nil
}

// look compares the mark in a statement of its own.
func (w *writer) look(ctx context.Context) error {
	found, err := read(ctx, w.owner, "mark", func(_ *Database, t *tables) (allocation.Mark, error) { return t.writers[w.last.Writer].mark, nil })
	if err == nil && found != w.last {
		w.lost = fmt.Errorf("%w: writer %s found count %d", regional.ErrHistoryLost, w.last.Writer, found.Count)
		err = w.lost
	}
	return err
}

// next is a mark that no transaction of this writer ever tried before.
func (w *writer) next() allocation.Mark {
	count := w.last.Count
	for _, p := range w.possible {
		count = max(count, p.mark.Count)
	}
	return allocation.Mark{Writer: w.last.Writer, Count: count + 1, Value: w.owner.random(16)}
}

// commit ends a transaction with the writer's mark, and then the slot is free again.
func (w *writer) commit(ctx context.Context, x *transaction, body func() error) error {
	from, to, vouched := w.last, w.next(), w.vouched
	x.record.Writer = to.Writer
	return w.owner.commit(ctx, x, func() error {
		if body != nil {
			if err := body(); err != nil {
				return err
			}
		}
		return x.mark(from, to, vouched)
	}, func(f fate, err error) error {
		switch f {
		case fateCommitted:
			w.last, w.possible, w.committed = to, nil, true
		case fateUncommitted:
			w.committed = false
			if errors.Is(err, regional.ErrHistoryLost) {
				w.lost = err
			}
		case fateUnknown:
			w.possible = []possible{{mark: w.last}, {mark: to, committed: true}}
			w.unknown = append(w.unknown, x)
		}
		w.slot.Give()
		return err
	})
}

// Resolve implements regional.Writer.
func (w *writer) Resolve(ctx context.Context) (bool, error) {
	if err := w.slot.Take(ctx); err != nil {
		return false, fmt.Errorf("wait for the writer's transaction to end: %w", err)
	}
	if w.lost != nil || len(w.possible) == 0 {
		w.slot.Give()
		return w.committed, w.lost
	}
	var found allocation.Mark
	x, err := w.owner.start(ctx, "resolve", switchFree, func(x *transaction) error {
		if err := x.take(lockKey{kind: lockWriter, a: w.last.Writer}, false); err != nil {
			return err
		}
		if row := x.db.tables.writers[w.last.Writer]; !row.former {
			found = row.mark
		}
		return nil
	})
	if err != nil {
		w.slot.Give()
		return false, fmt.Errorf("read the writer's mark: %w", err)
	}
	for _, p := range w.possible {
		if p.mark == found {
			return p.committed, w.fence(ctx, x, found, p.committed)
		}
	}
	w.owner.abandon(x)
	w.lost = fmt.Errorf("%w: writer %s: its row holds count %d, this process wrote %d", regional.ErrHistoryLost, w.last.Writer, found.Count, w.last.Count)
	w.slot.Give()
	return false, w.lost
}

// fence replaces the mark that was found. While that is not known to have happened, the outcome stays unknown.
func (w *writer) fence(ctx context.Context, x *transaction, found allocation.Mark, committed bool) error {
	to := w.next()
	kept := []possible{{mark: found, committed: committed}, {mark: to, committed: committed}}
	if !committed {
		for _, p := range w.possible {
			if p.committed {
				kept = append(kept, p)
			}
		}
	}
	w.possible = kept
	err := w.owner.commit(ctx, x, func() error { return x.mark(found, to, w.vouched) }, func(f fate, err error) error {
		if f == fateCommitted {
			w.last, w.possible, w.committed = to, nil, committed
			for _, u := range w.unknown {
				if u.durable != nil && committed {
					x.db.truth.Acknowledge(u.durable)
				}
			}
			w.unknown = nil
		}
		w.slot.Give()
		return err
	})
	if err != nil {
		return fmt.Errorf("replace the writer's mark: %w", err)
	}
	return nil
}

// End implements regional.Writer.
func (w *writer) End(ctx context.Context) error {
	err := w.owner.write(ctx, w, "end", switchFree, func(x *transaction) (bool, error) {
		if err := x.take(lockKey{kind: lockWriter, a: w.last.Writer}, false); err != nil {
			return false, err
		}
		x.ends = true
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("end the writer: %w", err)
	}
	return nil
}

// write runs one transaction of a writer. Body locks, reads, and notes what is to be written; false writes nothing and
// leaves no mark.
func (o *Owner) write(ctx context.Context, rw regional.Writer, what string, mode switchMode, body func(x *transaction) (bool, error)) error {
	w, err := o.take(ctx, rw)
	if err != nil {
		return err
	}
	something := false
	x, err := o.start(ctx, what, mode, func(x *transaction) (err error) {
		if err := o.belongs(x.db.tables); err != nil {
			return err
		}
		something, err = body(x)
		return err
	})
	if err != nil {
		w.slot.Give()
		return err
	}
	if !something {
		o.abandon(x)
		w.slot.Give()
		return nil
	}
	return w.commit(ctx, x, nil)
}
