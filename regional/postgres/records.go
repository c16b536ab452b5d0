package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"tranche/allocation"
	"tranche/regional"
)

var _ regional.Records = (*Store)(nil)

// maxRecordBytes bounds one record; one that is larger is left out.
const maxRecordBytes = 256 << 10

// KeepRecords stores records and adds up counts.
func (s *Store) KeepRecords(ctx context.Context, records []*allocation.Record, counts []regional.RefusedCount) error {
	b := &pgx.Batch{}
	s.queueBegin(b, switchFree)
	if args, n := recordColumns(records); n > 0 {
		b.Queue(insertRefusals, args...)
	}
	if len(counts) > 0 {
		b.Queue(addRefused, refusedColumns(counts)...)
	}
	t, err := s.start(ctx, b)
	if err == nil {
		err = t.commitWithout(ctx, &pgx.Batch{})
	}
	if err != nil {
		return fmt.Errorf("keep records of refusals: %w", translate(err))
	}
	return nil
}

// storable is a text that Postgres can hold: one that it refuses would keep all others from being written.
func storable(text string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
}

// recordColumns are records as parameters.
func recordColumns(records []*allocation.Record) ([]any, int) {
	var at []int64
	var texts [7][]string
	for _, r := range records {
		text, err := json.Marshal(r)
		if err != nil || len(text) > maxRecordBytes {
			continue
		}
		fingerprint := r.Request.Fingerprint
		if r.Request.Shown != nil {
			fingerprint = r.Request.Shown.Fingerprint
		}
		at = append(at, r.Decision.At)
		for i, column := range []string{r.Name, r.Request.Key.ID, r.Request.Key.Tenant, fingerprint, r.Request.Correlation, string(r.Decision.Reason), string(text)} {
			texts[i] = append(texts[i], storable(column))
		}
	}
	args := []any{at}
	for _, column := range texts {
		args = append(args, column)
	}
	return args, len(at)
}

func refusedColumns(counts []regional.RefusedCount) []any {
	var at, requests, units []int64
	var texts [5][]string
	for _, c := range counts {
		at, requests, units = append(at, c.At), append(requests, c.Requests), append(units, c.Units)
		for i, column := range []string{c.Capability, c.Tenant, string(c.Priority), string(c.Reason), c.Unit} {
			texts[i] = append(texts[i], storable(column))
		}
	}
	return []any{at, texts[0], texts[1], texts[2], texts[3], texts[4], requests, units}
}

// PruneRecords deletes what is above the bounds.
func (s *Store) PruneRecords(ctx context.Context, bounds regional.RecordBounds) error {
	since := time.Now().Add(-bounds.Age.Std())
	b := &pgx.Batch{}
	s.queueBegin(b, switchFree)
	b.Queue(pruneRefusals, bounds.Rows, since.UnixMicro(), regional.SparedOfTenant, regional.SparedOfMinute)
	b.Queue(pruneRefused, bounds.Count, since.Unix())
	b.Queue(pruneKept)
	t, err := s.start(ctx, b)
	if err == nil {
		err = t.commitWithout(ctx, &pgx.Batch{})
	}
	if err != nil {
		return fmt.Errorf("delete old records of refusals: %w", translate(err))
	}
	return nil
}

// FindRecords lists records, the newest first.
func (s *Store) FindRecords(ctx context.Context, q regional.RecordQuery) (list []allocation.Record, next int64, err error) {
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(selectRefusals, q.From, q.Until, q.Before, q.Decision, q.Correlation, q.AdmissionID, q.Fingerprint, q.Tenant, q.Reason, q.Limit+1).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var number int64
			var text []byte
			if err := rows.Scan(&number, &text); err != nil {
				return err
			}
			var r allocation.Record
			if err := json.Unmarshal(text, &r); err != nil {
				return fmt.Errorf("decode record %d: %w", number, err)
			}
			if len(list) == q.Limit {
				return rows.Err() // there is one more
			}
			list, next = append(list, r), number
		}
		next = 0
		return rows.Err()
	})
	if err := s.read(ctx, b); err != nil {
		return nil, 0, fmt.Errorf("find records of refusals: %w", translate(err))
	}
	return list, next, nil
}

// RefusedOver adds up counts.
func (s *Store) RefusedOver(ctx context.Context, q regional.RefusedQuery) (list []regional.RefusedCount, err error) {
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(sumRefused, q.From, q.Until, q.Every, q.Tenant, q.By.Capability, q.By.Tenant, q.By.Priority, q.By.Reason, regional.MaxRefusedRows+1).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var c regional.RefusedCount
			if err := rows.Scan(&c.At, &c.Capability, &c.Tenant, &c.Priority, &c.Reason, &c.Unit, &c.Requests, &c.Units); err != nil {
				return err
			}
			list = append(list, c)
		}
		return rows.Err()
	})
	if err := s.read(ctx, b); err != nil {
		return nil, fmt.Errorf("count refusals: %w", translate(err))
	}
	return list, nil
}

// KeepTenant stores that all refusals of a tenant are kept for a while.
func (s *Store) KeepTenant(ctx context.Context, k regional.KeptTenant) (bool, error) {
	b := &pgx.Batch{}
	s.queueBegin(b, switchFree)
	kept := false
	b.Queue(keepTenant, k.Tenant, k.Since, k.Until, k.By, regional.MaxKeptTenants).Exec(func(tag pgconn.CommandTag) error {
		kept = tag.RowsAffected() > 0
		return nil
	})
	t, err := s.start(ctx, b)
	if err == nil {
		err = t.commitWithout(ctx, &pgx.Batch{})
	}
	if err != nil {
		return false, fmt.Errorf("keep the refusals of a tenant: %w", translate(err))
	}
	return kept, nil
}

// KeptTenants lists those whose time is not over.
func (s *Store) KeptTenants(ctx context.Context) (list []regional.KeptTenant, err error) {
	b := &pgx.Batch{}
	b.Queue(beginRO)
	b.Queue(selectKept).Query(func(rows pgx.Rows) error {
		list, err = pgx.CollectRows(rows, pgx.RowToStructByPos[regional.KeptTenant])
		return err
	})
	if err := s.read(ctx, b); err != nil {
		return nil, fmt.Errorf("list the tenants that are kept: %w", translate(err))
	}
	return list, nil
}
