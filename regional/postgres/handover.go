package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// HandOver does one step of a handover. The exclusive switch lock lets the batches that run end first, the lock of the
// writers' table everybody else who writes: a mark is replaced, or a writer made, in each transaction. Both raise
// once a stop is committed.
func (s *Store) HandOver(ctx context.Context, step regional.HandoverStep, asked regional.Handover, recorded allocation.Home) (regional.Handover, error) {
	next, err := s.handOver(ctx, step, asked, recorded)
	if err != nil {
		return next, fmt.Errorf("hand the owner over: %w", err)
	}
	return next, nil
}

func (s *Store) handOver(ctx context.Context, step regional.HandoverStep, asked regional.Handover, recorded allocation.Home) (next regional.Handover, err error) {
	var incarnation string
	var lost bool
	var homes []byte
	var stands regional.Handover
	var here allocation.Home
	b := &pgx.Batch{}
	s.queueBegin(b, switchExclusive)
	b.Queue(lockHandover).QueryRow(func(row pgx.Row) error { return row.Scan(&incarnation, &lost, &stands.ID, &homes) })
	b.Queue(selectHome).QueryRow(func(row pgx.Row) error { return row.Scan(&here.System, &here.Database, &here.Timeline) })
	t, err := s.start(ctx, b)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("%w: the owner's row is missing", regional.ErrNotReady)
	}
	if err != nil {
		return next, err
	}
	if err = decode(homes, &stands); err == nil {
		next, err = stands.Next(step, asked, recorded, here)
	}
	if err == nil && step != regional.HandoverResume && (lost || incarnation == "") {
		err = fmt.Errorf("%w: there is nothing to hand over", regional.ErrHistoryLost)
	}
	if err != nil || next == stands {
		t.abandon()
		return next, err
	}
	text, err := json.Marshal(regional.Handover{From: next.From, To: next.To})
	if err != nil {
		t.abandon()
		return next, err
	}
	b = &pgx.Batch{}
	if step == regional.HandoverResume {
		b.Queue(renumberShares)
		b.Queue(renumberUsage)
		b.Queue(renumberLate)
		b.Queue(renumberTemplates)
		b.Queue(continueRefusals)
		b.Queue(continueMigrations)
	}
	b.Queue(setHandover, next.ID, string(text))
	b.Queue(lockWriters)
	return next, t.commitWithout(ctx, b)
}

// Fed says whether logical replication writes into the owner's tables: what another database commits may still arrive.
func (s *Store) Fed(ctx context.Context) (fed bool, err error) {
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(selectFed).QueryRow(func(row pgx.Row) error { return row.Scan(&fed) })
	t, err := s.start(ctx, b)
	if err != nil {
		return false, fmt.Errorf("read what feeds the owner: %w", err)
	}
	t.abandon()
	return fed, nil
}

// Contents is what an owner's database holds, as two are compared: of each table the number of its rows and a sum of them.
type Contents struct {
	regional.Loaded
	Marks  []allocation.Mark
	Ended  []string
	Tables map[string]Table
}

// Table sums up a table. Tables with the same rows have the same sum, in whatever order the rows are stored.
type Table struct {
	Rows int64
	Sum  string
}

// Contents reads the whole database, at one snapshot. It takes about a second for each million admission ids.
func (s *Store) Contents(ctx context.Context) (Contents, error) {
	c := Contents{Tables: map[string]Table{}}
	var names []string
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(plainText)
	s.queueOwner(b, noChanges, 0, &c.Loaded)
	b.Queue(selectAllMarks).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			m, err := scanMark(rows)
			if err != nil {
				return err
			}
			c.Marks = append(c.Marks, m.Mark)
			if m.Ended {
				c.Ended = append(c.Ended, m.Writer)
			}
		}
		return rows.Err()
	})
	b.Queue(selectTableNames).Query(func(rows pgx.Rows) (err error) {
		names, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	t, err := s.start(ctx, b)
	if err != nil {
		return c, fmt.Errorf("read what the owner holds: %w", err)
	}
	defer t.abandon()
	c.Home = *s.home.Load()
	for _, name := range names {
		row := "t::text"
		if name == "owner" {
			row = ownerRow
		}
		query := strings.NewReplacer("{row}", row, "{table}", pgx.Identifier{"tranche", name}.Sanitize()).Replace(sumTable)
		var table Table
		if err := t.conn.QueryRow(ctx, query).Scan(&table.Rows, &table.Sum); err != nil {
			return c, fmt.Errorf("read table %s: %w", name, err)
		}
		c.Tables[name] = table
	}
	return c, nil
}
