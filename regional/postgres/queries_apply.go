package postgres

// Answers of the coordinator.
const (
	selectOwnerLife = `
select o.deployment, o.incarnation, o.history_number, o.history_stamp, o.observed_at, o.stopped, o.lost,
       exists (select from tranche.incarnations as i where i.incarnation = $1 and i.ended is not null)
from tranche.owner as o where o.id = 1`

	// Shares that are new begin without a generation, so that what follows is the same for all. In the order of keys.
	insertShares = `
insert into tranche.shares (budget, term, term_end, shard, first_start, step, periods, instants)
select w.budget, w.term, w.term_end, w.shard, w.first_start, w.step, w.periods, w.instants::bigint[]
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::smallint[], $5::bigint[], $6::bigint[], $7::int[], $8::text[])
     as w (budget, term, term_end, shard, first_start, step, periods, instants)
order by w.budget collate "C", w.term
on conflict do nothing`

	lockSharesFully = `
select s.budget, s.term, s.version, s.template, s.policy, s.regions, s.first_start, s.step, s.periods, s.instants,
       s.generation, s.stamp, s.gone, s.sealed, s.opening_spent
from (select distinct w.budget collate "C" as budget, w.term
      from unnest($1::text[], $2::bigint[]) as w (budget, term)
      order by 1, 2) as w
cross join lateral (
    select * from tranche.shares as s where s.budget = w.budget and s.term = w.term for update) as s`

	selectEntries = `
select e.budget, e.term, e.class, e.from_start, e.until_start, e."limit", e.granted, e.returned, e.target, e.protected
from unnest($1::text[], $2::bigint[]) as w (budget, term)
join tranche.share_entries as e on e.budget = w.budget and e.term = w.term
order by e.budget, e.term, e.class, e.from_start`

	updateShares = `
with done as (
    update tranche.shares as s
    set version = w.version, template = w.template, policy = w.policy::json, regions = w.regions::text[],
        generation = w.generation, stamp = w.stamp, opening_spent = w.opening_spent, changed = pg_current_xact_id()
    from unnest($1::text[], $2::bigint[], $3::bigint[], $4::boolean[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::bigint[])
         as w (budget, term, version, template, policy, regions, generation, stamp, opening_spent)
    where s.budget = w.budget and s.term = w.term
    returning 1)
select tranche.expect((select count(*) from done), $10, 'TR001', 'shares')`

	deleteEntries = `
delete from tranche.share_entries as e using unnest($1::text[], $2::bigint[]) as w (budget, term)
where e.budget = w.budget and e.term = w.term`

	insertEntries = `
insert into tranche.share_entries (budget, term, class, from_start, until_start, "limit", granted, returned, target, protected)
select w.budget, w.term, w.class, w.from_start, w.until_start, w."limit", w.granted, w.returned, w.target, w.protected
from unnest($1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
     as w (budget, term, class, from_start, until_start, "limit", granted, returned, target, protected)`

	// All usage of some shares, locked in the order of keys. That of templates stays in the database: there may be a
	// million rows of it.
	lockUsageOfShares = `
with locked as materialized (
    select ` + usageColumns + `
    from (select u.budget, u.instance, u.period, u.class
          from unnest($1::text[], $2::bigint[]) as w (budget, term)
          join tranche.usage as u on u.budget = w.budget and u.term = w.term and u.shard >= 0
          order by u.budget, u.instance, u.period, u.class) as w
    cross join lateral (
        select * from tranche.usage as u
        where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class
        for update) as u)
select * from locked where not template`

	takeUsage = `
with done as (
    update tranche.usage as u
    set version = w.version, generation = w.generation, granted = w.granted, returned = w.returned, target = w.target, protected = w.protected,
        changed = pg_current_xact_id()
    from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
         as w (budget, instance, period, class, version, generation, granted, returned, target, protected)
    where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class
    returning 1)
select tranche.expect((select count(*) from done), $11, 'TR001', 'usage rows of shares')`

	// What allocation.Usage.Take does to an instance of a template: counters only rise, nothing is returned.
	takeInstances = `
update tranche.usage as u
set version = s.version, generation = s.generation, granted = greatest(u.granted, e.granted), target = e.target, protected = e.protected,
    changed = pg_current_xact_id()
from unnest($1::text[], $2::bigint[]) as w (budget, term)
join tranche.shares as s on s.budget = w.budget and s.term = w.term
join tranche.share_entries as e on e.budget = w.budget and e.term = w.term
where u.budget = w.budget and u.term = w.term and u.shard >= 0 and u.template and u.class = e.class
  and e.from_start <= u.period and u.period < e.until_start and s.generation >= u.generation`

	lockOwner = `
select deployment, incarnation, history_number, history_stamp, observed_at, changes from tranche.owner where id = 1 for update`

	// Never an older version over a newer one.
	upsertBudgets = `
insert into tranche.budgets as b (budget, version, number, deleted, declaration, change)
select w.budget, w.version, w.number, w.deleted, w.declaration::json, $6
from unnest($1::text[], $2::bigint[], $3::bigint[], $4::boolean[], $5::text[]) as w (budget, version, number, deleted, declaration)
order by w.budget collate "C"
on conflict on constraint budgets_pk do update
set version = excluded.version, number = excluded.number, deleted = excluded.deleted, declaration = excluded.declaration, change = excluded.change
where (excluded.version, excluded.number) > (b.version, b.number)`

	// Terms that nodes have to read anew: those that were opened.
	changeShares = `
update tranche.shares as s set change = $3
from unnest($1::text[], $2::bigint[]) as w (budget, term)
where s.budget = w.budget and s.term = w.term`

	closeShares = `
update tranche.shares as s set gone = true, change = $3
from unnest($1::text[], $2::bigint[]) as w (budget, term)
where s.budget = w.budget and s.term = w.term and not s.gone`

	updateOwner = `
update tranche.owner
set deployment = $1, incarnation = $2, history_number = $3, history_stamp = $4, changes = $5, config = greatest(config, $6),
    revision = case when $8 >= observed_at then $7 else revision end,
    elsewhere = case when $8 >= observed_at then $9::json else elsewhere end,
    observed_at = greatest(observed_at, $8), documents = greatest(documents, $12),
    regions = (select coalesce(array_agg(r order by r), '{}') from ((select unnest(regions) union select unnest($10::text[])) except select unnest($11::text[])) as known (r))
where id = 1`

	insertIncarnation = `
insert into tranche.incarnations (incarnation) values ($1) on conflict do nothing`

	// A statement that this database does not know is no base: it is stated whole again.
	acknowledge = `
update tranche.shards as s
set acked = case when w.whole then 0 else greatest(s.acked, w.number) end
from unnest($1::smallint[], $2::bigint[], $3::boolean[]) as w (shard, number, whole)
where s.shard = w.shard and w.number <= s.number
  and (w.whole or exists (select from tranche.statements as t where t.shard = w.shard and t.number = w.number))`

	dropAcknowledged = `
delete from tranche.statements as t using tranche.shards as s
where s.shard = t.shard and t.shard = any($1::smallint[]) and t.number < s.acked`

	// Their last marks stay: etcd may go back to before they ended.
	deleteWriters = `
with ended as (delete from tranche.writers where writer = any($1::text[]) and ended is not null returning writer, count, value, ended, former)
insert into tranche.ended_writers (writer, count, value, ended)
select writer, count, value, ended from ended where not former order by writer
on conflict on constraint ended_writers_pk do nothing`

	// Those whose end etcd lost are stated once more.
	recallWriters = `
with ended as (delete from tranche.ended_writers where writer = any($1::text[]) returning writer, count, value, ended)
insert into tranche.writers (writer, name, count, value, ended)
select writer, '', count, value, ended from ended order by writer
on conflict on constraint writers_pk do nothing`

	selectMarksOf = `
select writer, count, value from tranche.writers where writer = any ($1::text[])
union all select writer, count, value from tranche.ended_writers where writer = any ($1::text[])`

	stopOwner = `
update tranche.owner set stopped = $1, detail = $2 where id = 1 and stopped = ''`
)
