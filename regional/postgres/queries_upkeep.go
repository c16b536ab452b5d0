package postgres

// Closing, tidying and reports.
const (
	raiseClosed = `
update tranche.owner
set closed_before = greatest(closed_before, least($1, floor(extract(epoch from clock_timestamp()))::bigint - $2))
where id = 1
returning closed_before`

	selectClosed = `
select o.closed_before, floor(extract(epoch from clock_timestamp()))::bigint from tranche.owner as o where o.id = 1`

	selectTables = `
select place, serial, state, opened_at, closed_at, (extract(epoch from clock_timestamp()) * 1000000)::bigint
from tranche.id_tables order by place`

	closeTable = `
update tranche.id_tables set state = 'closed', closed_at = (extract(epoch from clock_timestamp()) * 1000000)::bigint
where place = $1 and state = 'open'`

	openTable = `
update tranche.id_tables
set state = 'open', serial = (select max(serial) + 1 from tranche.id_tables),
    opened_at = (extract(epoch from clock_timestamp()) * 1000000)::bigint, closed_at = 0
where place = $1 and state = 'empty'`

	emptiedTable = `
update tranche.id_tables set state = 'empty' where place = $1 and serial = $2 and state = 'closed'`

	// Shares that nothing speaks of any more: gone, stated, past the retention ($1: the instant before which the term must
	// have ended), and of a term that ended before the oldest id that is kept was made ($2).
	selectForgettable = `
select s.budget, s.term from tranche.shares as s
join tranche.shards as d on d.shard = s.shard
join tranche.statements as t on t.shard = s.shard and t.number = d.acked
     and t.system = (select c.system_identifier::text from pg_control_system() as c)
where s.gone and s.term_end <= $1 and s.term_end <= $2 and s.changed < t.xmin_after
  and not exists (select from tranche.usage as u
                  where u.budget = s.budget and u.term = s.term and u.shard >= 0 and (u.reserved > 0 or u.changed >= t.xmin_after))
order by s.budget, s.term
limit $3`

	lockForgotten = `
select 1 from tranche.shares where budget = $1 and term = $2 and gone for update`

	// In bounded steps, in the order of keys. What is reserved again meanwhile stays, and its share with it.
	deleteUsage = `
with step as (
    select budget, instance, period, class from tranche.usage
    where budget = $1 and term = $2 and shard >= 0
    order by budget, instance, period, class
    limit $3
    for update)
delete from tranche.usage as u using step as w
where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class and u.reserved = 0`

	deleteShare = `
with rest as (select count(*) as n from tranche.usage where budget = $1 and term = $2 and shard >= 0),
entries as (delete from tranche.share_entries where budget = $1 and term = $2 and (select n from rest) = 0),
counts as (delete from tranche.instances where budget = $1 and term = $2 and (select n from rest) = 0),
sums as (delete from tranche.template_usage where budget = $1 and term = $2 and (select n from rest) = 0)
delete from tranche.shares where budget = $1 and term = $2 and (select n from rest) = 0`

	// What a former incarnation left: its shares are gone, and no id that is kept speaks of it ($1: as for shares).
	deleteOrphans = `
with step as (
    select u.budget, u.instance, u.period, u.class from tranche.usage as u
    where u.template = any ('{false,true}'::boolean[]) and u.until <= $1 and u.reserved = 0
      and not exists (select from tranche.shares as s where s.budget = u.budget and s.term = u.term)
    order by u.budget, u.instance, u.period, u.class
    limit $2
    for update)
delete from tranche.usage as u using step as w
where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class`

	deleteFormer = `
delete from tranche.writers where former and seen < clock_timestamp() - make_interval(secs => $1)`

	deleteLate = `
delete from tranche.late_changes as l
using tranche.shards as d
join tranche.statements as t on t.shard = d.shard and t.number = d.acked
     and t.system = (select c.system_identifier::text from pg_control_system() as c)
where l.shard = d.shard and l.changed < t.xmin_after`

	// Of those whose end was acknowledged the latest $2 are kept, for so long as an etcd may be restored to before it ($1).
	deleteEnded = `
delete from tranche.ended_writers
where ended < clock_timestamp() - make_interval(secs => $1)
   or writer in (select writer from tranche.ended_writers order by ended desc, writer offset $2)`

	// A process that was killed never ends its writers.
	endForgotten = `
update tranche.writers set ended = clock_timestamp()
where ended is null and seen < clock_timestamp() - make_interval(secs => $1)`

	takeTurn = `
insert into tranche.turns as t (name, node, until_at)
values ('keep', $1, (extract(epoch from clock_timestamp()) * 1000000)::bigint + $2)
on conflict on constraint turns_pk do update set node = excluded.node, until_at = excluded.until_at
where t.node = excluded.node or t.until_at <= (extract(epoch from clock_timestamp()) * 1000000)::bigint
returning 1`

	selectFullest = `
select ` + usageColumns + `
from tranche.usage as u
where u.until > floor(extract(epoch from clock_timestamp()))::bigint and u.period <= floor(extract(epoch from clock_timestamp()))::bigint
  and not u.template
order by (u.spent + u.reserved)::float8 / greatest(u.granted - u.returned, 1) desc, u.budget, u.period, u.class
limit $1`

	exportBudgets = `
select budget from (select budget from tranche.shares union select budget from tranche.usage) as b
where budget > $1::text collate "C"
order by budget limit $2`

	exportShares = `
select budget, term, version, template, policy, regions, first_start, step, periods, instants, generation, stamp, gone, sealed, opening_spent
from tranche.shares where budget = any($1::text[]) order by budget, term`

	exportEntries = `
select budget, term, class, from_start, until_start, "limit", granted, returned, target, protected
from tranche.share_entries where budget = any($1::text[]) order by budget, term, class, from_start`

	exportUsage = `
select ` + usageColumns + `
from tranche.usage as u where u.budget = any($1::text[]) order by u.budget, u.instance, u.period, u.class`

	exportOwner = `
select region, incarnation, (extract(epoch from clock_timestamp()) * 1000000)::bigint from tranche.owner where id = 1`
)

var (
	truncateTable = perTable(`truncate tranche.admission_ids_{n}`)

	tableReserved = perTable(`select exists (select from tranche.admission_ids_{n} where state = 'reserved')`)

	selectLapsed = `
select a.credential, a.tenant, a.id
from (` + allTables(`
    (select credential, tenant, id, expires_at from tranche.admission_ids_{n}
     where state = 'reserved' and expires_at <= (extract(epoch from clock_timestamp()) * 1000000)::bigint
     order by expires_at limit $1)`) + `) as a
order by a.expires_at limit $1`

	setChargedWithin = `select set_config('statement_timeout', $1, true)`

	selectIDsKept = `
select (extract(epoch from clock_timestamp()) * 1000000)::bigint, min(opened_at) from tranche.id_tables where state <> 'empty'`

	// Two texts, so that each has a plan of its own: by credential an index leads to the rows.
	selectChargedByTenant     = charged(`a.tenant = $2`)
	selectChargedByCredential = charged(`a.credential = $2 and ($4 = '' or a.tenant = $4)`)

	selectReservations = `
select a.credential, a.tenant, a.id, a.place, a.payload, a.op, a.state, a.made_at, a.expires_at, a.latest_at, a.budgets, a.instances, a.periods, a.classes, a.rest
from (` + allTables(`
    (select credential, tenant, id, {n} as place, payload, op, state, made_at, expires_at, latest_at, budgets, instances, periods, classes, rest
     from tranche.admission_ids_{n}
     where state = 'reserved' and (credential, tenant, id) > ($1::text collate "C", $2::text collate "C", $3::text collate "C")
     order by credential, tenant, id limit $4)`) + `) as a
order by a.credential, a.tenant, a.id limit $4`
)

// charged sums up the lines of the chosen ids. What shadow let through was charged to nobody.
func charged(which string) string {
	return `
select c.budget, c.unit, count(*), least(sum(c.spent), 9223372036854775807)::bigint, least(sum(c.held), 9223372036854775807)::bigint,
       least(sum(c.overdraft), 9223372036854775807)::bigint, min(c.made_at), max(c.made_at)
from (` + allTables(`
    select a.budgets[l.n] as budget, l.line->>'unit' as unit, a.made_at, coalesce((l.line->>'spent')::bigint, 0) as spent,
           coalesce((l.line->>'held')::bigint, 0) as held, coalesce((l.line->>'overdraft')::bigint, 0) as overdraft
    from tranche.admission_ids_{n} as a, json_array_elements(a.rest->'lines') with ordinality as l(line, n)
    where a.made_at >= $1 and `+which+` and coalesce(l.line->>'enforcement', '') <> 'shadow'`) + `) as c
where c.spent <> 0 or c.held <> 0 or c.overdraft <> 0
group by c.budget, c.unit order by c.budget, c.unit limit $3`
}
