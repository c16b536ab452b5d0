package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Look leaves a mark and reads those of all writers.
func (s *Store) Look(ctx context.Context, rw regional.Writer) (regional.Look, error) {
	var l regional.Look
	err := s.write(ctx, rw, switchFree, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		q := &pgx.Batch{}
		q.Queue(selectHome).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Home.System, &l.Home.Database, &l.Home.Timeline) })
		q.Queue(selectLineage).QueryRow(func(row pgx.Row) error { return row.Scan(&l.Lineage) })
		q.Queue(selectMarks).Query(func(rows pgx.Rows) error {
			for rows.Next() {
				m, err := scanMark(rows)
				if err != nil {
					return err
				}
				l.Marks = append(l.Marks, m)
			}
			return rows.Err()
		})
		return &pgx.Batch{}, t.run(ctx, q)
	})
	if err != nil {
		return regional.Look{}, fmt.Errorf("look at the other writers: %w", err)
	}
	return l, nil
}

func scanMark(row pgx.Row) (m regional.WriterMark, err error) {
	err = row.Scan(&m.Writer, &m.Count, &m.Value, &m.Ended, &m.Vouched, &m.Name)
	return m, err
}

// Lose records that the owner lost history, unless the writer's marks were of a former incarnation. It leaves no mark: the
// writer has none.
func (s *Store) Lose(ctx context.Context, writer, detail string) (lost bool, err error) {
	var incarnation string
	var former bool
	b := &pgx.Batch{}
	s.queueBegin(b, switchExclusive)
	b.Queue(selectLoser, writer).QueryRow(func(row pgx.Row) error { return row.Scan(&incarnation, &former) })
	t, err := s.start(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: the owner's row is missing", regional.ErrNotReady)
	}
	if err != nil {
		return false, fmt.Errorf("record that history was lost: %w", err)
	}
	if former || incarnation == "" {
		t.abandon()
		return false, nil
	}
	b = &pgx.Batch{}
	b.Queue(loseOwner, string(allocation.HistoryLost), detail)
	if err := t.commitWithout(ctx, b); err != nil {
		return false, fmt.Errorf("record that history was lost: %w", err)
	}
	return true, nil
}

// Lift ends a stop by a refusal.
func (s *Store) Lift(ctx context.Context, rw regional.Writer, was allocation.Reason) error {
	err := s.write(ctx, rw, switchFree, func(context.Context, *transaction) (*pgx.Batch, error) {
		b := &pgx.Batch{}
		b.Queue(liftOwner, string(was))
		return b, nil
	})
	if err != nil {
		return fmt.Errorf("lift the stop: %w", err)
	}
	return nil
}
