package postgres

import (
	"strconv"
	"strings"
)

// All SQL of this package is in the files queries*.go: transactions and start in this one, then batches, statements,
// grants, and upkeep. Names are qualified, since nothing may rest on a session's search_path.

// idTables is how many tables of admission ids there are.
const idTables = 4

// perTable makes the same statement for each table of ids, so that each of them is static.
func perTable(text string) (out [idTables]string) {
	for i := range out {
		out[i] = strings.ReplaceAll(text, "{n}", strconv.Itoa(i))
	}
	return out
}

// allTables joins the same select over all tables of ids.
func allTables(text string) string {
	parts := perTable(text)
	return strings.Join(parts[:], "\nunion all\n")
}

// Start.
const (
	lockMigrations   = `select pg_advisory_lock($1)`
	unlockMigrations = `select pg_advisory_unlock($1)`
	schemaExists     = `select to_regnamespace('tranche') is not null`
	createSchema     = `create schema tranche`

	selectServer = `
select current_setting('server_version_num')::int, current_setting('max_connections')::int,
       current_setting('superuser_reserved_connections')::int + coalesce(current_setting('reserved_connections', true), '0')::int,
       pg_is_in_recovery()`

	insertOwner = `
insert into tranche.owner (id, format, region) values (1, $1, $2) on conflict do nothing`

	// The insertion timeline, from the name of the WAL file: pg_control_checkpoint() still shows the old one for a while
	// after a promotion.
	selectHome = `
select s.system_identifier::text, d.oid::bigint,
       ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint
from pg_control_system() as s, pg_database as d
where d.datname = current_database()`
)

// Transactions.
const (
	begin    = `begin isolation level read committed read write`
	beginRO  = `begin isolation level repeatable read read only`
	rollback = `rollback`
	commit   = `commit`

	// A role's own statement_timeout or transaction_timeout could cancel a commit; client_min_messages could hide the
	// warning of a cancelled one.
	setBounds = `
set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
       set_config('statement_timeout', '0', true), set_config('client_min_messages', 'notice', true),
       case when current_setting('transaction_timeout', true) is not null
            then set_config('transaction_timeout', '0', true) end`

	// Batches look rows up by key, however few there are today: a plan is kept for longer than a table stays small. And it is
	// kept: a plan made anew for each batch's arrays would be the same one, and costs more than its execution.
	setPlans = `
set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true)`

	settings  = `select ` + setBounds
	planByKey = `select ` + setPlans

	// All that comes before a batch's locks on rows, in one statement. It reads no table, so that it does not matter that it
	// began before the lock was there; the bounds stand before the lock, which may have to be waited for.
	beginBatch = `select ` + setBounds + `, ` + setPlans + `, pg_advisory_xact_lock_shared($3)`

	lockSwitchShared    = `select pg_advisory_xact_lock_shared($1)`
	lockSwitchExclusive = `select pg_advisory_xact_lock($1)`

	// One unbroken life of one incarnation in one database. The server says when it was started; a database that was made
	// from another, and tables that were made anew, have other oids.
	lineage = `
    (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint || '.' ||
    (select d.oid from pg_database as d where d.datname = current_database()) || '.' || o.tableoid || '.' || o.incarnation`

	// A writer that is vouched for in one lineage ($6) says so with its mark, as long as the lineage is that.
	updateMark = `
    update tranche.writers
    set count = $2, value = $3, seen = clock_timestamp(),
        vouched = $6 <> '' and $6 = (select ` + lineage + ` from tranche.owner as o where o.id = 1)
    where writer = $1 and count = $4 and value = $5 and not former
    returning 1`

	// The function that raises is called where there is something to raise only: a call takes longer than the comparison, and
	// these are nearly all that a batch of one request would make.
	expectMark = `
       case when n.free <> 1 then tranche.expect(n.free, 1, 'TR003', 'the owner is not being handed over') end,
       case when n.marks <> 1 then tranche.expect(n.marks, 1, 'TR002', 'the mark of this writer') end`

	countMark = `(select count(*) from tranche.owner where id = 1 and handover = '') as free, (select count(*) from mine) as marks`

	replaceMark = `
with mine as (` + updateMark + `)
select` + expectMark + `
from (select ` + countMark + ` offset 0) as n`

	insertWriter = `
with mine as (insert into tranche.writers (writer, name, count, value) values ($1, $2, $3, $4))
select tranche.expect((select count(*) from tranche.owner where id = 1 and handover = ''), 1, 'TR003', 'the owner is not being handed over')`

	selectMark = `
select count, value from tranche.writers where writer = $1 and not former for update`

	endWriter = `
update tranche.writers set ended = clock_timestamp() where writer = $1`
)
