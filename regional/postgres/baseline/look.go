package baseline

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	readSpent = `select coalesce(sum(spent), 0), coalesce(sum(reserved), 0) from tranche.usage where budget = any ($1)`

	countIDs = `
select (select count(*) from tranche.admission_ids_0) + (select count(*) from tranche.admission_ids_1)
     + (select count(*) from tranche.admission_ids_2) + (select count(*) from tranche.admission_ids_3)`

	readVersion = `select current_setting('server_version')`

	useSegment = `select pg_switch_wal() from pg_logical_emit_message(false, 'tranche', 'segment')`

	readWritten = `select (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint`
)

// Owner looks into an owner's database: what the books of a measurement are held to.
type Owner struct{ conn *pgx.Conn }

// Look opens a connection of its own.
func Look(ctx context.Context, url string) (*Owner, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to look at the owner: %w", err)
	}
	return &Owner{conn}, nil
}

// Close closes it.
func (o *Owner) Close(ctx context.Context) { _ = o.conn.Close(ctx) }

// Spent sums up the counters of the budgets.
func (o *Owner) Spent(ctx context.Context, budgets ...string) (spent, reserved int64, err error) {
	err = o.conn.QueryRow(ctx, readSpent, budgets).Scan(&spent, &reserved)
	return spent, reserved, err
}

// IDs is how many admission ids there are.
func (o *Owner) IDs(ctx context.Context) (n int64, err error) {
	err = o.conn.QueryRow(ctx, countIDs).Scan(&n)
	return n, err
}

// Version is the server's.
func (o *Owner) Version(ctx context.Context) (version string, err error) {
	err = o.conn.QueryRow(ctx, readVersion).Scan(&version)
	return version, err
}

// Recycle makes so many segments of the write-ahead log that are used again from now on, as a database has that is not young: a new
// one is filled with zeros first, while all who commit wait.
func (o *Owner) Recycle(ctx context.Context, segments int) error {
	for range segments {
		if _, err := o.conn.Exec(ctx, useSegment); err != nil {
			return fmt.Errorf("use a segment of the write-ahead log up: %w", err)
		}
	}
	if _, err := o.conn.Exec(ctx, `checkpoint`); err != nil {
		return fmt.Errorf("recycle segments of the write-ahead log: %w", err)
	}
	return nil
}

// Written is how many bytes of write-ahead log the server has written since it was made.
func (o *Owner) Written(ctx context.Context) (n int64, err error) {
	err = o.conn.QueryRow(ctx, readWritten).Scan(&n)
	return n, err
}

const (
	holdSnapshot = `select count(*) from tranche.owner`

	readHot = `
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
       (select coalesce(max(n_tup_upd), 0) from pg_stat_user_tables where schemaname = 'tranche' and relname = 'usage'),
       (select coalesce(max(n_tup_hot_upd), 0) from pg_stat_user_tables where schemaname = 'tranche' and relname = 'usage')
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = 'tranche' and c.relname in ('usage', 'writers')`
)

// Hold opens a snapshot, as a dump does, until it is ended.
func (o *Owner) Hold(ctx context.Context) (end func(), err error) {
	tx, err := o.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return nil, err
	}
	var n int64
	if err := tx.QueryRow(ctx, holdSnapshot).Scan(&n); err != nil {
		return nil, err
	}
	return func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }, nil
}

// Hot is what the rows take that are updated all the time.
type Hot struct {
	Bytes   int64 // of the tables and indexes of usage and writers
	Updates int64 // of usage rows, so far
	Within  int64 // of those, the ones that stayed in their page
}

// Hot reads it.
func (o *Owner) Hot(ctx context.Context) (h Hot, err error) {
	err = o.conn.QueryRow(ctx, readHot).Scan(&h.Bytes, &h.Updates, &h.Within)
	return h, err
}

const readDisk = `
select coalesce(sum(pg_total_relation_size(c.oid)) filter (where c.relname like 'admission\_ids\_%'), 0)::bigint,
       coalesce(sum(pg_total_relation_size(c.oid)) filter (where c.relname = 'usage'), 0)::bigint,
       (select count(*) from tranche.usage)
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = 'tranche' and c.relkind = 'r'`

// Disk is what an owner's rows take, indexes included.
type Disk struct {
	IDs, Usage int64 // bytes
	Rows       int64 // of usage
}

// Disk reads it.
func (o *Owner) Disk(ctx context.Context) (d Disk, err error) {
	err = o.conn.QueryRow(ctx, readDisk).Scan(&d.IDs, &d.Usage, &d.Rows)
	return d, err
}
