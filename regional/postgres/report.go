package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Fullest lists the usage of running periods that are the most used up.
func (s *Store) Fullest(ctx context.Context, limit int) (list []allocation.Usage, err error) {
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectFullest, limit).Query(func(rows pgx.Rows) error {
		list, err = listUsage(rows)
		return err
	})
	if err := s.read(ctx, q); err != nil {
		return nil, fmt.Errorf("list the fullest budgets: %w", err)
	}
	return list, nil
}

func listUsage(rows pgx.Rows) (list []allocation.Usage, err error) {
	for rows.Next() {
		var u allocation.Usage
		if err := rows.Scan(usageFields(&u)...); err != nil {
			return nil, err
		}
		list = append(list, u)
	}
	return list, rows.Err()
}

// Lapsed lists open reservations whose time is over, the longest over first.
func (s *Store) Lapsed(ctx context.Context, limit int) (list []allocation.IDKey, err error) {
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectLapsed, limit).Query(func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[allocation.IDKey])
		return err
	})
	if err := s.read(ctx, q); err != nil {
		return nil, fmt.Errorf("list lapsed reservations: %w", err)
	}
	return list, nil
}

// Reservations lists open reservations in the order of their keys, after the given one.
func (s *Store) Reservations(ctx context.Context, after allocation.IDKey, limit int) (list []allocation.Admission, err error) {
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(selectReservations, after.Credential, after.Tenant, after.ID, limit).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var key allocation.IDKey
			var r scannedID
			if err := rows.Scan(append([]any{&key.Credential, &key.Tenant, &key.ID}, r.fields()...)...); err != nil {
				return err
			}
			a, err := r.admission(key)
			if err != nil {
				return err
			}
			list = append(list, *a)
		}
		return rows.Err()
	})
	if err := s.read(ctx, q); err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	return list, nil
}

// Export reads one page of the whole account, at one snapshot.
func (s *Store) Export(ctx context.Context, after string, limit int) (regional.Account, error) {
	var a regional.Account
	var budgets []string
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(exportOwner).QueryRow(func(row pgx.Row) error { return row.Scan(&a.Region, &a.Incarnation, &a.Now) })
	b.Queue(exportBudgets, after, limit+1).Query(func(rows pgx.Rows) error {
		var err error
		budgets, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	t, err := s.start(ctx, b)
	if err != nil {
		return regional.Account{}, fmt.Errorf("export the account: %w", err)
	}
	defer t.abandon()
	if len(budgets) > limit {
		a.More, budgets = true, budgets[:limit]
	}
	var read shareReader
	b = &pgx.Batch{}
	b.Queue(exportShares, budgets).Query(read.shares)
	b.Queue(exportEntries, budgets).Query(read.entries)
	b.Queue(exportUsage, budgets).Query(func(rows pgx.Rows) error {
		var err error
		a.Usage, err = listUsage(rows)
		return err
	})
	if err := t.run(ctx, b); err != nil {
		return regional.Account{}, fmt.Errorf("export the account: %w", err)
	}
	for _, ref := range read.order {
		a.Shares = append(a.Shares, *read.found[ref])
	}
	return a, nil
}
