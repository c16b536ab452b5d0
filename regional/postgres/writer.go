package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// writer is one slot of this process. Its memory is what makes a restored database known: the mark in its row must be one
// that this memory knows, whatever connection it is read over.
//
// After an unknown outcome the row may hold either of two marks. Which one it is cannot be learnt by a look alone: the
// lost transaction may still be on its way to the server, and commit behind our back. Resolve therefore locks the row,
// looks, and replaces the mark: a transaction that comes later finds a mark that it does not expect, and raises.
type writer struct {
	store *Store
	id    string
	slot  chan struct{} // holds one element: whoever took it may use what follows, and run a transaction

	last      allocation.Mark
	possible  []possible // after an unknown outcome: the marks that the row may hold; else empty
	committed bool       // what became of the last transaction whose outcome is known
	lost      error      // once history is lost it stays so
	asked     *asked     // what its last call said of the owner

	mu      sync.Mutex
	mark    allocation.Mark // a copy of last, for Mark
	vouched string          // the lineage that it is vouched for in; or empty
}

// possible is a mark that may be in the row, and what it would mean for the lost transaction.
type possible struct {
	mark      allocation.Mark
	committed bool
}

var _ regional.Writer = (*writer)(nil)

// NewWriter registers a writer without memory.
func (s *Store) NewWriter(ctx context.Context, name string) (regional.Writer, error) {
	w := s.writerOf(allocation.Mark{Writer: uuid.NewString(), Count: 1, Value: rand.Text()})
	b := &pgx.Batch{}
	s.queueBegin(b, switchFree)
	t, err := s.start(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("register writer %s: %w", name, err)
	}
	b = &pgx.Batch{}
	b.Queue(insertWriter, w.id, name, w.last.Count, w.last.Value)
	if err := t.commitWithout(ctx, b); err != nil {
		return nil, fmt.Errorf("register writer %s: %w", name, err) // if it was committed nobody ever uses it
	}
	return w, nil
}

// ResumeWriter goes on with a writer whose mark was kept from a clean stop: it starts with memory. Whether the database
// holds that mark is an open question, which Resolve settles.
func (s *Store) ResumeWriter(mark allocation.Mark) regional.Writer {
	w := s.writerOf(mark)
	w.possible = []possible{{mark: mark, committed: true}}
	return w
}

func (s *Store) writerOf(mark allocation.Mark) *writer {
	w := &writer{store: s, id: mark.Writer, slot: make(chan struct{}, 1), last: mark, mark: mark}
	w.slot <- struct{}{}
	return w
}

// asked is what a call said of the owner: the answer to it is for that.
type asked struct {
	incarnation string
	home        allocation.Home
}

// Vouch lets the writer's next marks say that it is vouched for in this lineage.
func (w *writer) Vouch(lineage string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.vouched = lineage
}

// queueMark replaces the mark, by the statement that writes the counters, if there are any.
func (w *writer) queueMark(b *pgx.Batch, from, to allocation.Mark, usage *counters) {
	w.mu.Lock()
	defer w.mu.Unlock()
	args := []any{w.id, to.Count, to.Value, from.Count, from.Value, w.vouched}
	if usage == nil {
		b.Queue(replaceMark, args...)
		return
	}
	b.Queue(updateUsage, append(args, usage.args()...)...)
}

// Mark is what the writer last wrote for certain.
func (w *writer) Mark() allocation.Mark {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mark
}

// take waits for the slot, and refuses a writer that cannot go on.
func (s *Store) take(ctx context.Context, rw regional.Writer) (*writer, error) {
	w, ok := rw.(*writer)
	if !ok || w.store != s {
		return nil, errors.New("the writer belongs to another store")
	}
	if err := w.wait(ctx); err != nil {
		return nil, err
	}
	switch {
	case w.lost != nil:
		w.release()
		return nil, w.lost
	case len(w.possible) > 0:
		w.release()
		return nil, fmt.Errorf("%w: the one before this transaction; resolve it first", regional.ErrUnknownOutcome)
	}
	return w, nil
}

func (w *writer) wait(ctx context.Context) error {
	select {
	case <-w.slot:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the writer's transaction to end: %w", ctx.Err())
	}
}

func (w *writer) release() { w.slot <- struct{}{} }

// next is a mark that no transaction of this writer ever tried before.
func (w *writer) next() allocation.Mark {
	count := w.last.Count
	for _, p := range w.possible {
		count = max(count, p.mark.Count)
	}
	return allocation.Mark{Writer: w.id, Count: count + 1, Value: rand.Text()}
}

// commit ends a transaction with the writer's mark, and then the writer's slot is free again. When ctx ends first the
// caller leaves with an unknown outcome; the transaction goes on, and the slot stays taken until it has ended.
func (w *writer) commit(ctx context.Context, t *transaction, b *pgx.Batch) error {
	mark := w.next()
	w.queueMark(b, w.last, mark, t.usage)
	done := make(chan error, 1)
	go func() {
		f, err := t.commit(b)
		err = w.settle(f, mark, err)
		w.release()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, ctx.Err())
	}
}

// settle enters into the memory what became of a transaction.
func (w *writer) settle(f fate, tried allocation.Mark, err error) error {
	switch f {
	case fateCommitted:
		w.remember(tried)
		w.committed = true
	case fateUncommitted:
		w.committed = false
		if errors.Is(err, regional.ErrHistoryLost) {
			w.lost = err
		}
	case fateUnknown:
		w.possible = []possible{{mark: w.last}, {mark: tried, committed: true}}
	}
	return err
}

func (w *writer) remember(m allocation.Mark) {
	w.last, w.possible = m, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mark = m
}

// Resolve waits until the lost transaction has ended, and says whether it was committed.
func (w *writer) Resolve(ctx context.Context) (bool, error) {
	if err := w.wait(ctx); err != nil {
		return false, err
	}
	if w.lost != nil || len(w.possible) == 0 {
		defer w.release()
		return w.committed, w.lost
	}
	var count int64
	var value string
	b := &pgx.Batch{}
	w.store.queueBegin(b, switchFree)
	b.Queue(selectMark, w.id).QueryRow(func(row pgx.Row) error { return row.Scan(&count, &value) })
	t, err := w.store.start(ctx, b)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		defer w.release()
		return false, w.lose("its row is gone")
	case err != nil:
		defer w.release()
		return false, fmt.Errorf("read the writer's mark: %w", err)
	}
	found := allocation.Mark{Writer: w.id, Count: count, Value: value}
	committed, known := w.means(found)
	if !known {
		defer w.release()
		t.abandon()
		return false, w.lose(fmt.Sprintf("its row holds count %d, this process wrote %d", count, w.last.Count))
	}
	return committed, w.fence(ctx, t, found, committed)
}

// means says what a mark in the row tells of the lost transaction; false if it is none of ours.
func (w *writer) means(found allocation.Mark) (committed, known bool) {
	for _, p := range w.possible {
		if p.mark == found {
			return p.committed, true
		}
	}
	return false, false
}

func (w *writer) lose(how string) error {
	w.lost = fmt.Errorf("%w: writer %s: %s", regional.ErrHistoryLost, w.id, how)
	return w.lost
}

// fence replaces the mark that was found. While that is not known to have happened, the outcome stays unknown.
func (w *writer) fence(ctx context.Context, t *transaction, found allocation.Mark, committed bool) error {
	fence := w.next()
	// We hold the row's lock: what was possible is now what was found, or, if the lost transaction has yet to come, what
	// it still may write should this transaction fail.
	kept := []possible{{mark: found, committed: committed}, {mark: fence, committed: committed}}
	if !committed {
		for _, p := range w.possible {
			if p.committed {
				kept = append(kept, p)
			}
		}
	}
	w.possible = kept
	b := &pgx.Batch{}
	w.queueMark(b, found, fence, nil)
	done := make(chan error, 1)
	go func() {
		f, err := t.commit(b)
		if f == fateCommitted {
			w.remember(fence)
			w.committed = committed
		}
		w.release()
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("replace the writer's mark: %w", err)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("replace the writer's mark: %w: %w", regional.ErrUnknownOutcome, ctx.Err())
	}
}

// End marks the writer as ended. It is used no more.
func (w *writer) End(ctx context.Context) error {
	b := &pgx.Batch{}
	b.Queue(endWriter, w.id)
	err := w.store.write(ctx, w, switchFree, func(context.Context, *transaction) (*pgx.Batch, error) { return b, nil })
	if err != nil {
		return fmt.Errorf("end the writer: %w", err)
	}
	return nil
}

// write runs one transaction of a writer: body reads and locks, and answers what is to be written with the mark. Nil
// writes nothing and leaves no mark.
func (s *Store) write(ctx context.Context, rw regional.Writer, mode switchMode, body func(context.Context, *transaction) (*pgx.Batch, error)) error {
	w, err := s.take(ctx, rw)
	if err != nil {
		return err
	}
	b := &pgx.Batch{}
	s.queueBegin(b, mode)
	t, err := s.start(ctx, b)
	if err != nil {
		w.release()
		return err
	}
	b, err = body(ctx, t)
	if err != nil || b == nil {
		t.abandon()
		w.release()
		return translate(err)
	}
	return w.commit(ctx, t, b)
}
