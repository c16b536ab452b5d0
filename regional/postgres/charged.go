package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tranche/regional"
)

// chargedWithin bounds the statement of Charged: a snapshot that stays open for long makes batches slow.
const chargedWithin = 2 * time.Second

// Charged sums up what the chosen admissions were charged. By tenant alone it reads all ids.
func (s *Store) Charged(ctx context.Context, c regional.ChargedQuery) (out regional.Charged, err error) {
	q := &pgx.Batch{}
	q.Queue(beginRO)
	q.Queue(setChargedWithin, strconv.FormatInt(chargedWithin.Milliseconds(), 10))
	q.Queue(selectIDsKept).QueryRow(func(row pgx.Row) error { return row.Scan(&out.Now, &out.Kept) })
	text, args := selectChargedByTenant, []any{c.Since, c.Tenant, regional.MaxChargedLines + 1}
	if c.Credential != "" {
		text, args = selectChargedByCredential, []any{c.Since, c.Credential, regional.MaxChargedLines + 1, c.Tenant}
	}
	q.Queue(text, args...).Query(func(rows pgx.Rows) error {
		out.Lines, err = pgx.CollectRows(rows, pgx.RowToStructByPos[regional.ChargedLine])
		return err
	})
	if err := s.read(ctx, q); err != nil {
		var told *pgconn.PgError
		if errors.As(err, &told) && told.Code == codeQueryCanceled && ctx.Err() == nil {
			err = regional.ErrTooLong
		}
		return regional.Charged{}, fmt.Errorf("sum up what was charged: %w", err)
	}
	out.More = len(out.Lines) > regional.MaxChargedLines
	out.Lines = out.Lines[:min(len(out.Lines), regional.MaxChargedLines)]
	return out, nil
}
