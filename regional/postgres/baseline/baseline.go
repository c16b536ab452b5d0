// Package baseline does to a Postgres what an owner of admissions does to it, without deciding anything: what `tranche
// bench` sets beside the figures of a node. It writes copies of the owner's own tables, with the same columns, indexes,
// constraints and storage, in a schema of its own; each row of an id has the bytes of one that a node has written.
//
//	PerRequest   one transaction for each request: insert the id, raise the counter if it fits   two round trips
//	Bulk         so many ids by COPY and one counter, in one transaction, one after the other     three round trips
//	BareCommit   begin and lock a row; insert a row and commit                                    two round trips
package baseline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// All the SQL of this package.
const (
	makeTables = `
drop schema if exists baseline cascade;
create schema baseline;
create table baseline.ids (like tranche.admission_ids_0 including all);
create table baseline.template (like tranche.admission_ids_0 including defaults);
create table baseline.usage (like tranche.usage including all);
create table baseline.plain (id text collate "C" not null primary key);
insert into baseline.template select * from (
    select * from tranche.admission_ids_0 union all select * from tranche.admission_ids_1 union all
    select * from tranche.admission_ids_2 union all select * from tranche.admission_ids_3) as i limit 1;
insert into baseline.usage select * from tranche.usage limit 1;
update baseline.usage set spent = 0, reserved = 0, granted = 1::bigint << 50, returned = 0, target = 1::bigint << 50`

	copyOptions = `
select format('alter table baseline.%I set (%s)', case when c.relname = 'usage' then 'usage' else 'ids' end,
              array_to_string(c.reloptions, ', '))
from pg_class as c join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = 'tranche' and c.relname in ('usage', 'admission_ids_0') and c.reloptions is not null`

	columnsOfIDs = `
select string_agg(quote_ident(a.attname), ', ' order by a.attnum),
       string_agg(case a.attname when 'id' then '$1' else 't.' || quote_ident(a.attname) end, ', ' order by a.attnum),
       count(*) filter (where a.attnum <= (select b.attnum from pg_attribute as b where b.attrelid = a.attrelid and b.attname = 'id')) - 1
from pg_attribute as a
where a.attrelid = 'baseline.ids'::regclass and a.attnum > 0 and not a.attisdropped
group by a.attrelid`

	raiseCounter = `
update baseline.usage set spent = spent + 1, changed = pg_current_xact_id()
where spent + reserved + 1 <= least(granted - returned, target)`

	raiseCounterBy = `update baseline.usage set spent = spent + $1, changed = pg_current_xact_id()`
	lockCounter    = `select spent from baseline.usage for update`
	insertPlain    = `insert into baseline.plain (id) values ($1)`
	readCounter    = `select spent, (select count(*) from baseline.ids) from baseline.usage`
)

// Tables are the copies. They may be used by many goroutines.
type Tables struct {
	pool     *pgxpool.Pool
	insert   string // one id, from the template
	copyFrom string
	before   []byte // of a row as COPY takes it: what stands before the id
	after    []byte // and behind it
}

// Open makes the copies anew in an owner's database in which something was admitted already, for at most so many
// transactions at once.
func Open(ctx context.Context, url string, connections int) (*Tables, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read the database's URL: %w", err)
	}
	config.MaxConns = int32(connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect for the baselines: %w", err)
	}
	t := &Tables{pool: pool}
	if err := t.prepare(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("make the tables of the baselines: %w", err)
	}
	return t, nil
}

// Close closes the connections.
func (t *Tables) Close() { t.pool.Close() }

func (t *Tables) prepare(ctx context.Context) error {
	if _, err := t.pool.Exec(ctx, makeTables, pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	rows, err := t.pool.Query(ctx, copyOptions)
	if err != nil {
		return err
	}
	options, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, text := range options {
		if _, err := t.pool.Exec(ctx, text); err != nil {
			return err
		}
	}
	var columns, values string
	var place int
	if err := t.pool.QueryRow(ctx, columnsOfIDs).Scan(&columns, &values, &place); err != nil {
		return err
	}
	t.insert = "insert into baseline.ids (" + columns + ") select " + values + " from baseline.template as t on conflict do nothing"
	t.copyFrom = "copy baseline.ids (" + columns + ") from stdin (format binary)"
	return t.readTemplate(ctx, "copy (select "+columns+" from baseline.template) to stdout (format binary)", place)
}

// A COPY in binary is a header of 19 bytes, then each row as the number of its fields and each field behind its length.
const copyHeader = 19

func (t *Tables) readTemplate(ctx context.Context, text string, place int) error {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var out bytes.Buffer
	if _, err := conn.Conn().PgConn().CopyTo(ctx, &out, text); err != nil {
		return err
	}
	data := out.Bytes()
	if len(data) < copyHeader+4 {
		return errors.New("nothing was admitted yet: there is no row to write again")
	}
	row := data[copyHeader : len(data)-2]
	at := 2
	for i := 0; ; i++ {
		length := int(int32(binary.BigEndian.Uint32(row[at:])))
		if i == place {
			t.before, t.after = row[:at], row[at+4+length:]
			return nil
		}
		at += 4 + max(0, length)
	}
}

// PerRequest is one request as most products do it: one transaction, with the id and the counter. False: it did not fit,
// or the id was known.
func (t *Tables) PerRequest(ctx context.Context, id string) (bool, error) {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Release()
	q := &pgx.Batch{}
	q.Queue("begin")
	q.Queue(t.insert, id)
	q.Queue(raiseCounter)
	results := conn.SendBatch(ctx, q)
	_, err = results.Exec()
	changed := int64(0)
	for range 2 {
		tag, failed := results.Exec()
		err = errors.Join(err, failed)
		changed += tag.RowsAffected()
	}
	if err = errors.Join(err, results.Close()); err != nil {
		return false, err
	}
	end := "commit"
	if changed < 2 {
		end = "rollback"
	}
	_, err = conn.Exec(ctx, end)
	return changed == 2, err
}

// Bulk writes one batch: the ids, and the counter raised by their number.
func (t *Tables) Bulk(ctx context.Context, ids []string) error {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	tx, err := conn.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // does nothing after the commit
	if _, err := conn.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(t.rows(ids)), t.copyFrom); err != nil {
		return err
	}
	q := &pgx.Batch{}
	q.Queue(raiseCounterBy, len(ids))
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

// rows is the ids as COPY takes them.
func (t *Tables) rows(ids []string) []byte {
	out := make([]byte, 0, copyHeader+2+len(ids)*(len(t.before)+len(t.after)+48))
	out = append(out, "PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00"...)
	for _, id := range ids {
		out = append(out, t.before...)
		out = binary.BigEndian.AppendUint32(out, uint32(len(id)))
		out = append(out, id...)
		out = append(out, t.after...)
	}
	return append(out, 0xff, 0xff)
}

// BareCommit is the least that a durable answer takes: begin and lock one row, then insert one and commit.
func (t *Tables) BareCommit(ctx context.Context, id string) error {
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	q := &pgx.Batch{}
	q.Queue("begin")
	q.Queue(lockCounter)
	if err := conn.SendBatch(ctx, q).Close(); err != nil {
		return err
	}
	q = &pgx.Batch{}
	q.Queue(insertPlain, id)
	q.Queue("commit")
	return conn.SendBatch(ctx, q).Close()
}

// Counted is what the counter says, and how many ids there are.
func (t *Tables) Counted(ctx context.Context) (spent, ids int64, err error) {
	err = t.pool.QueryRow(ctx, readCounter).Scan(&spent, &ids)
	return spent, ids, err
}
