package postgres

// Handovers.
const (
	notHandedOver = `
select tranche.expect((select count(*) from tranche.owner where id = 1 and handover = ''), 1, 'TR003', 'the owner is not being handed over')`

	lockHandover = `
select incarnation, lost, handover, handover_homes from tranche.owner where id = 1 for update`

	// Every transaction that writes replaces a mark, or makes a writer, and holds this lock weakly from then on. Those that
	// have it end first; those that wait for it begin that statement anew, and see what is committed here.
	lockWriters = `lock table tranche.writers in exclusive mode`

	setHandover = `update tranche.owner set handover = $1, handover_homes = $2::json where id = 1`

	// A copy brings the numbers of another server's transactions along. What is ahead of this one's would be stated again
	// and again.
	renumberShares = `update tranche.shares set changed = pg_current_xact_id() where changed > pg_current_xact_id()`
	renumberUsage  = `update tranche.usage set changed = pg_current_xact_id() where changed > pg_current_xact_id()`
	renumberLate   = `update tranche.late_changes set changed = pg_current_xact_id() where changed > pg_current_xact_id()`

	// Logical replication brings rows, and not where the sequences behind their numbers stand. Each goes on behind what is there.
	continueRefusals   = `select setval(pg_get_serial_sequence('tranche.refusals', 'number'), greatest(nextval(pg_get_serial_sequence('tranche.refusals', 'number')), (select coalesce(max(number), 0) + 1 from tranche.refusals)), false)`
	continueMigrations = `select setval(pg_get_serial_sequence('tranche.migrations', 'id'), greatest(nextval(pg_get_serial_sequence('tranche.migrations', 'id')), (select coalesce(max(id), 0) + 1 from tranche.migrations)), false)`

	// Whether a subscription that runs writes into the owner's tables.
	selectFed = `
select exists (
    select from pg_subscription_rel as r
    join pg_class as c on c.oid = r.srrelid
    join pg_subscription as s on s.oid = r.srsubid
    where c.relnamespace = 'tranche'::regnamespace and s.subenabled
)`

	// How values are written must not rest on the role, or a copy would differ from what it is a copy of.
	plainText = `
select set_config('timezone', 'UTC', true), set_config('datestyle', 'ISO, YMD', true), set_config('bytea_output', 'hex', true)`

	// Turns are a habit, and the migrations the program's. Samples of refusals are evidence for people, and nodes go on adding to
	// them while the owner is stopped.
	selectTableNames = `
select c.relname from pg_class as c
where c.relnamespace = 'tranche'::regnamespace and c.relkind = 'r' and c.relname not in ('turns', 'migrations', 'refusals', 'refused', 'kept_tenants')
order by c.relname collate "C"`

	// The sum of the rows' hashes, in whatever order they are stored. {table} is one of selectTableNames.
	sumTable = `
select count(*), coalesce(sum(('x' || left(encode(sha256(convert_to({row}, 'UTF8')), 'hex'), 15))::bit(60)::bigint::numeric), 0)::text
from {table} as t`

	// The owner's row without what a handover changes in it.
	ownerRow = `(to_jsonb(t) - 'handover' - 'handover_homes')::text`
)
