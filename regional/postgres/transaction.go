package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/regional"
)

// switchLock is the advisory lock of the id-switch. Advisory locks are the database's own.
const switchLock = 7_310_575_195_466_002

// rollbackWithin bounds a rollback; a connection that does not answer by then is closed, which rolls back too.
const rollbackWithin = 2 * time.Second

// switchMode says how a transaction takes the switch lock.
type switchMode int

const (
	switchFree switchMode = iota
	switchShared
	switchExclusive
)

// transaction is one on one connection of the pool, from its begin to its end.
type transaction struct {
	store *Store
	conn  *pgxpool.Conn

	// Of a batch, for its end.
	copied *copied   // written first
	usage  *counters // written with the mark
}

// queueBegin starts a pipeline with the begin of a transaction. Nothing outlives the transaction.
func (s *Store) queueBegin(b *pgx.Batch, mode switchMode) {
	b.Queue(begin)
	b.Queue(settings, millis(s.cfg.LockTimeout), millis(s.cfg.LockTimeout))
	switch mode {
	case switchFree:
	case switchShared:
		b.Queue(lockSwitchShared, int64(switchLock))
	case switchExclusive:
		b.Queue(lockSwitchExclusive, int64(switchLock))
	}
}

// start takes a connection and runs a pipeline on it that begins a transaction. After an error nothing is left.
func (s *Store) start(ctx context.Context, b *pgx.Batch) (*transaction, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, fmt.Errorf("take a connection: %w", err)
	}
	t := &transaction{store: s, conn: conn}
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		t.abandon()
		return nil, translate(err)
	}
	return t, nil
}

// run runs a pipeline within the transaction.
func (t *transaction) run(ctx context.Context, b *pgx.Batch) error {
	return translate(t.conn.SendBatch(ctx, b).Close())
}

// abandon rolls back and returns the connection.
func (t *transaction) abandon() {
	if c := t.conn.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackWithin)
		defer cancel()
		_, _ = t.conn.Exec(ctx, rollback) // a connection in another state is closed by Release, which rolls back
	}
	t.conn.Release()
}

// fate is what became of a commit.
type fate int

const (
	fateUncommitted fate = iota
	fateCommitted
	fateUnknown
)

// commit sends the pipeline with a commit at its end, and ends the transaction. It is never cancelled: the deadline only
// closes our side of the connection, without a word to the server.
func (t *transaction) commit(b *pgx.Batch) (fate, error) {
	ctx, cancel := context.WithTimeout(context.Background(), t.store.cfg.CommitPatience)
	defer cancel()
	defer t.abandon()
	tag := ""
	b.Queue(commit).Exec(func(ct pgconn.CommandTag) error {
		tag = ct.String()
		return nil
	})
	link := linkOf(t.conn)
	link.listen()
	if err := t.copied.write(ctx, t.conn); err != nil {
		return fateUncommitted, translate(err) // the commit was not sent
	}
	err := t.conn.SendBatch(ctx, b).Close()
	remark := link.heard()
	switch {
	case tag == "COMMIT" && remark == "":
		return fateCommitted, nil // even if the connection broke behind the answer
	case tag == "COMMIT":
		return fateUnknown, fmt.Errorf("%w: it came with a remark: %s", regional.ErrUnknownOutcome, remark)
	case tag != "":
		return fateUncommitted, fmt.Errorf("the server answered %s to a commit", tag)
	case err == nil:
		return fateUnknown, fmt.Errorf("%w: the pipeline ended without it", regional.ErrUnknownOutcome)
	case remark == "" && uncommitted(err, !t.conn.Conn().IsClosed()):
		return fateUncommitted, translate(err)
	}
	return fateUnknown, fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, err)
}

// commitWithout commits a transaction that leaves no mark: one that can be made again whatever became of it.
func (t *transaction) commitWithout(ctx context.Context, b *pgx.Batch) error {
	done := make(chan error, 1)
	go func() {
		_, err := t.commit(b)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", regional.ErrUnknownOutcome, ctx.Err())
	}
}
