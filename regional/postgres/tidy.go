package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Bounds of one Tidy.
const (
	tidyShares     = 200    // forgotten in one call
	tidyUsage      = 10_000 // rows deleted in one transaction
	forgottenAfter = 30 * 24 * time.Hour
	// What is kept of writers whose end was acknowledged.
	endedKept = 90 * 24 * time.Hour
	mostEnded = 2000
)

// Close raises closed_before, under the exclusive switch lock: batches hold it shared, so none that was decided by an
// older closed_before commits afterwards.
func (s *Store) Close(ctx context.Context, rw regional.Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error) {
	var stands allocation.Instant
	var now int64
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectClosed).QueryRow(func(row pgx.Row) error { return row.Scan(&stands, &now) })
	if err := s.read(ctx, q); err != nil {
		return 0, fmt.Errorf("close periods: %w", err)
	}
	if min(int64(upTo), now-int64(grace)) <= int64(stands) {
		return stands, nil // without stopping all batches for nothing
	}
	err := s.write(ctx, rw, switchExclusive, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		return &pgx.Batch{}, t.conn.QueryRow(ctx, raiseClosed, int64(upTo), int64(grace)).Scan(&stands)
	})
	if err != nil {
		return 0, fmt.Errorf("close periods: %w", err)
	}
	return stands, nil
}

// idTable is one table of ids.
type idTable struct {
	place    int16
	serial   int64
	state    string
	openedAt int64
	closedAt int64
}

// Tidy switches id tables and empties those whose time is over, then forgets terms that nothing speaks of. Monotonic is
// asked about tables by their serial, which is never used twice. Each step is a transaction of its own.
func (s *Store) Tidy(ctx context.Context, rw regional.Writer, retention allocation.Duration, monotonic func(table int) allocation.Duration) (string, error) {
	var did []string
	kept := int64(retention) * 1_000_000
	tables, now, err := s.tables(ctx)
	if err != nil {
		return "", fmt.Errorf("tidy: %w", err)
	}
	for _, t := range tables {
		known := monotonic
		if t.state != "closed" || int64(known(int(t.serial)))*1_000_000 < kept || now-t.closedAt < kept {
			continue
		}
		emptied, err := s.empty(ctx, rw, t)
		if err != nil {
			return strings.Join(did, "; "), fmt.Errorf("empty id table %d: %w", t.place, err)
		}
		if emptied {
			did = append(did, fmt.Sprintf("emptied id table %d", t.place))
		}
	}
	switched, err := s.switchTables(ctx, rw, kept/2)
	if err != nil {
		return strings.Join(did, "; "), fmt.Errorf("switch id tables: %w", err)
	}
	if switched != "" {
		did = append(did, switched)
	}
	forgotten, err := s.forget(ctx, rw, retention)
	if forgotten > 0 {
		did = append(did, fmt.Sprintf("forgot %d closed terms", forgotten))
	}
	if err != nil {
		return strings.Join(did, "; "), fmt.Errorf("forget closed terms: %w", err)
	}
	return strings.Join(did, "; "), nil
}

func (s *Store) tables(ctx context.Context) (tables []idTable, now int64, err error) {
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectTables).Query(func(rows pgx.Rows) error {
		tables, now, err = scanTables(rows)
		return err
	})
	return tables, now, s.read(ctx, q)
}

func scanTables(rows pgx.Rows) (tables []idTable, now int64, err error) {
	for rows.Next() {
		var t idTable
		if err := rows.Scan(&t.place, &t.serial, &t.state, &t.openedAt, &t.closedAt, &now); err != nil {
			return nil, 0, err
		}
		tables = append(tables, t)
	}
	return tables, now, rows.Err()
}

// empty truncates a closed table in which nothing is reserved. Whoever reads it meanwhile, such as a dump, makes this
// fail after the lock timeout, rather than all batches wait behind it.
func (s *Store) empty(ctx context.Context, rw regional.Writer, table idTable) (emptied bool, err error) {
	err = s.write(ctx, rw, switchExclusive, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		var reserved bool
		if err := t.conn.QueryRow(ctx, tableReserved[table.place]).Scan(&reserved); err != nil || reserved {
			return nil, err
		}
		tag, err := t.conn.Exec(ctx, emptiedTable, table.place, table.serial)
		if err != nil || tag.RowsAffected() == 0 {
			return nil, err // another node did it
		}
		b := &pgx.Batch{}
		b.Queue(truncateTable[table.place])
		emptied = true
		return b, nil
	})
	return emptied && err == nil, err
}

// switchTables closes the open table, once it is old enough and the next one is empty, and opens that.
func (s *Store) switchTables(ctx context.Context, rw regional.Writer, age int64) (string, error) {
	tables, now, err := s.tables(ctx)
	if err != nil {
		return "", err
	}
	open, next, ok := nextTable(tables)
	switch {
	case !ok || now-open.openedAt < age:
		return "", nil
	case next.state != "empty":
		return "", nil // its retention is not over: the open one grows on
	}
	did := ""
	err = s.write(ctx, rw, switchExclusive, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		closed, err := t.conn.Exec(ctx, closeTable, open.place)
		if err != nil || closed.RowsAffected() == 0 {
			return nil, err // another node did it
		}
		opened, err := t.conn.Exec(ctx, openTable, next.place)
		if err != nil || opened.RowsAffected() == 0 {
			return nil, err
		}
		did = fmt.Sprintf("switched from id table %d to %d", open.place, next.place)
		return &pgx.Batch{}, nil
	})
	return did, err
}

func nextTable(tables []idTable) (open, next idTable, ok bool) {
	for i, t := range tables {
		if t.state == "open" {
			return t, tables[(i+1)%len(tables)], true
		}
	}
	return idTable{}, idTable{}, false
}

// forget removes usage and shares of terms that nothing speaks of any more. An id speaks of the period in which it was
// made, so of no term that had ended when the oldest table that is kept was opened.
func (s *Store) forget(ctx context.Context, rw regional.Writer, retention allocation.Duration) (int, error) {
	tables, now, err := s.tables(ctx)
	if err != nil {
		return 0, err
	}
	oldest := int64(math.MaxInt64)
	for _, t := range tables {
		if t.state != "empty" {
			oldest = min(oldest, t.openedAt/1_000_000)
		}
	}
	var refs []allocation.ShareRef
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectForgettable, now/1_000_000-int64(retention), oldest, tidyShares).Query(func(rows pgx.Rows) error {
		refs, err = pgx.CollectRows(rows, pgx.RowToStructByPos[allocation.ShareRef])
		return err
	})
	if err := s.read(ctx, q); err != nil {
		return 0, err
	}
	for i, ref := range refs {
		if err := s.forgetShare(ctx, rw, ref); err != nil {
			return i, err
		}
	}
	return len(refs), s.write(ctx, rw, switchShared, func(context.Context, *transaction) (*pgx.Batch, error) {
		b := &pgx.Batch{}
		b.Queue(deleteOrphans, min(now/1_000_000-int64(retention), oldest), tidyUsage)
		b.Queue(deleteOrphanTemplates, min(now/1_000_000-int64(retention), oldest))
		b.Queue(deleteFormer, forgottenAfter.Seconds())
		b.Queue(deleteEnded, endedKept.Seconds(), mostEnded)
		b.Queue(deleteLate)
		b.Queue(endForgotten, forgottenAfter.Seconds())
		return b, nil
	})
}

// forgetShare deletes a share's usage in bounded steps, and the share with the last.
func (s *Store) forgetShare(ctx context.Context, rw regional.Writer, ref allocation.ShareRef) error {
	for more := true; more; {
		err := s.write(ctx, rw, switchShared, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
			more = false
			locked, err := t.conn.Exec(ctx, lockForgotten, ref.Budget, int64(ref.Term))
			if err != nil || locked.RowsAffected() == 0 {
				return nil, err
			}
			deleted, err := t.conn.Exec(ctx, deleteUsage, ref.Budget, int64(ref.Term), tidyUsage)
			if err != nil {
				return nil, err
			}
			more = deleted.RowsAffected() == tidyUsage
			b := &pgx.Batch{}
			if !more {
				b.Queue(deleteShare, ref.Budget, int64(ref.Term))
			}
			return b, nil
		})
		if err != nil {
			return fmt.Errorf("%s, term of %s: %w", ref.Budget, ref.Term, err)
		}
	}
	return nil
}

// Turn takes a turn that is free, or renews the node's own.
func (s *Store) Turn(ctx context.Context, node string, lasts time.Duration) (bool, error) {
	b := &pgx.Batch{}
	s.queueBegin(b, switchFree)
	mine := false
	b.Queue(takeTurn, node, lasts.Microseconds()).Query(func(rows pgx.Rows) error {
		mine = rows.Next()
		rows.Close()
		return rows.Err()
	})
	b.Queue(commit)
	t, err := s.start(ctx, b)
	if err != nil {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	t.conn.Release()
	return mine, nil
}
