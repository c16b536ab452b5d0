package postgres

// Statements.
const (
	// The base of each shard's next statement: the acknowledged one, if this database still knows from which snapshot it was
	// made. Transaction numbers are a cluster's own, so one made in another cluster is no base. $1 shards and $2 numbers are
	// what the caller says is acknowledged; of the others the recorded number counts. The last column: the shard is to be
	// stated even if it has nothing to list, since the caller wants it whole, or since only an acknowledged statement lets
	// Tidy forget what is gone.
	selectBases = `
select s.shard, coalesce(t.number, 0), coalesce(t.xmin_after, '0'::xid8)::text, coalesce(t.closed_before, 0),
       coalesce(a.number = 0, false) or t.number is null and exists (select from tranche.shares as g where g.shard = s.shard and g.gone)
from tranche.shards as s
left join unnest($1::smallint[], $2::bigint[]) as a (shard, number) on a.shard = s.shard
left join tranche.statements as t on t.shard = s.shard and t.number = coalesce(a.number, s.acked)
     and t.system = (select c.system_identifier::text from pg_control_system() as c)
order by s.shard`

	// What shares the statements of shards ($1) are to list, by their bases: number 0 ($2) means all that are not gone. The
	// others: shares that changed, and shares with usage that changed, in transactions that the base's snapshot could not
	// see ($3). Usage is looked for only in periods that were not closed at that snapshot ($4), and among late changes; that of
	// templates by what was added to their sums. What changed since the oldest base is read once, not for each shard again.
	touchedShares = `
base as materialized (
    select * from unnest($1::smallint[], $2::bigint[], $3::text[]::xid8[], $4::bigint[]) as b (shard, number, xmin_after, closed_before)),
based as materialized (select * from base where number > 0),
oldest as materialized (select xmin_after from based order by xmin_after limit 1),
changed_shares as materialized (
    select shard, budget, term, changed from tranche.shares where changed >= (select xmin_after from oldest)),
touched as (
    select s.shard, s.budget, s.term from base as b join tranche.shares as s on s.shard = b.shard
    where b.number = 0 and not s.gone
    union
    select s.shard, s.budget, s.term from changed_shares as s join based as b on b.shard = s.shard
    where s.changed >= b.xmin_after
    union
    select u.shard, u.budget, u.term from tranche.usage as u join based as b on b.shard = u.shard
    where not u.template and u.until > (select min(closed_before) from based) and u.until > b.closed_before and u.changed >= b.xmin_after
    union
    select u.shard, u.budget, u.term from tranche.template_usage as u join based as b on b.shard = u.shard
    where u.changed >= (select xmin_after from oldest) and u.changed >= b.xmin_after
    union
    select l.shard, l.budget, l.term from tranche.late_changes as l join based as b on b.shard = l.shard
    where l.changed >= (select xmin_after from oldest) and l.changed >= b.xmin_after)`

	// How many shares of each shard are to be listed, and the closed_before and the xmin of the same snapshot: whatever was
	// done before it is in that count, or was acknowledged. Without any there is one row, whose shard is null.
	countTouched = `
with ` + touchedShares + `
select t.shard, coalesce(t.shares, 0), o.closed_before, pg_snapshot_xmin(pg_current_snapshot())::text
from tranche.owner as o
left join (select shard, count(*) as shares from touched group by shard) as t on true
where o.id = 1
order by t.shard`

	lockShards = `
select shard from tranche.shards where shard = any($1::smallint[]) order by shard for update`

	raiseNumbers = `
update tranche.shards set number = number + 1 where shard = any($1::smallint[]) returning shard, number`

	// One statement, so one snapshot: the counters, the closed_before, and the number below which it sees every
	// transaction.
	selectTouched = `
with ` + touchedShares + `
select pg_snapshot_xmin(pg_current_snapshot())::text, (select closed_before from tranche.owner where id = 1),
       (select json_agg(json_build_object(
            'held', case when $5 then json_build_object('version', s.version, 'policy', s.policy, 'regions', s.regions,
                'first', s.first_start, 'step', s.step, 'count', s.periods, 'instants', s.instants, 'sealed', s.sealed, 'opening_spent', s.opening_spent) end,
            'shard', t.shard, 'budget', s.budget, 'term', s.term, 'template', s.template, 'generation', s.generation, 'stamp', s.stamp,
            'entries', (
                select json_agg(json_build_object('from', e.from_start, 'until', e.until_start, 'class', e.class,
                       'granted', e.granted, 'returned', e.returned, 'target', e.target, 'protected', e.protected, 'limit', e."limit") order by e.class, e.from_start)
                from tranche.share_entries as e where e.budget = s.budget and e.term = s.term and ($5 or not s.template)),
            'usage', (
                select json_agg(json_build_object('period', u.period, 'until', u.until, 'class', u.class, 'returned', u.returned,
                       'spent', u.spent, 'reserved', u.reserved, 'overdraft', u.overdraft, 'instances', u.instances, 'parts', u.parts)
                       order by u.period, u.class)
                from (select period, class, min(until) as until, case when s.template then 0 else max(returned) end as returned,
                             least(sum(spent), 9223372036854775807)::bigint as spent,
                             least(sum(reserved), 9223372036854775807)::bigint as reserved,
                             least(sum(overdraft), 9223372036854775807)::bigint as overdraft,
                             case when s.template then sum(instances) else 0 end as instances, sum(parts) as parts
                      from (select period, class, until, returned, spent, reserved, overdraft, 0 as instances, 0 as parts
                            from tranche.usage where budget = s.budget and term = s.term and not template and shard >= 0
                            union all
                            select period, class, until, 0, spent, reserved, overdraft, instances, 1
                            from tranche.template_usage where budget = s.budget and term = s.term) as u
                      group by period, class) as u))
            order by t.shard, s.budget, s.term)
        from touched as t join tranche.shares as s on s.budget = t.budget and s.term = t.term)`

	insertStatements = `
insert into tranche.statements (shard, number, system, xmin_after, closed_before)
select w.shard, w.number, (select c.system_identifier::text from pg_control_system() as c), $3::text::xid8, $4
from unnest($1::smallint[], $2::bigint[]) as w (shard, number)`

	// A statement of a shard in which a later snapshot sees nothing that changed since is as good as one of that snapshot.
	// Another node that renews it meanwhile does it as well.
	renewBases = `
with mine as (
    select t.shard, t.number from tranche.statements as t
    join unnest($1::smallint[], $2::bigint[]) as w (shard, number) on w.shard = t.shard and w.number = t.number
    where t.xmin_after < $3::text::xid8 and t.closed_before <= $4
    for update of t skip locked)
update tranche.statements as t set xmin_after = $3::text::xid8, closed_before = $4
from mine where t.shard = mine.shard and t.number = mine.number`

	// Older ones can only be acknowledged by an answer that is very late; they then cost a whole statement.
	dropOldStatements = `
delete from tranche.statements as t using tranche.shards as s
where s.shard = t.shard and t.shard = any($1::smallint[]) and t.number <= s.number - $2 and t.number <> s.acked`

	// With the last marks of those whose end was acknowledged: whoever reads an etcd that went back may know them again.
	selectAllMarks = `
select writer, count, value, ended is not null, vouched, name from tranche.writers where not former
union all select writer, count, value, true, false, '' from tranche.ended_writers order by writer`

	selectMarks = `
select writer, count, value, ended is not null, vouched, name from tranche.writers where not former order by writer`

	// Budgets whose running period has less than a tenth of its share left; last, those that hold nothing of it, such as what
	// a former incarnation holds: whoever is refused there is to hear why.
	selectLow = `
select u.budget from tranche.usage as u
left join tranche.budgets as b on b.budget = u.budget and not b.deleted
where u.until > $1 and u.period <= $1 and not u.template and u.class = 'general' and u.generation > 0
  and ((u.granted - u.returned - u.spent - u.reserved) * 10 < u.granted - u.returned
       or u.granted = u.returned or b.declaration -> 'ladder' is not null)
order by u.granted = u.returned, (u.granted - u.returned - u.spent - u.reserved)::float8 / greatest(u.granted - u.returned, 1), u.budget
limit $2`

	selectRegions = `
select regions from tranche.owner where id = 1`

	selectElsewhere = `
select elsewhere from tranche.owner where id = 1`
)

// How many reservations are open, and when the oldest was made.
// How long the oldest transaction beside this one has held back the horizon of this database, in nanoseconds: nothing that
// died since is pruned. A role sees those of others only with pg_read_all_stats, which pg_monitor has.
const selectOldestSnapshot = `
select greatest(0, coalesce(extract(epoch from max(clock_timestamp() - xact_start)), 0) * 1e9)::bigint
from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and (backend_xmin is not null or backend_xid is not null)`

var selectOpen = `
select coalesce(sum(a.open), 0)::bigint, coalesce(min(a.oldest), 0)
from (` + allTables(`
    select count(*) as open, min(made_at) as oldest from tranche.admission_ids_{n} where state = 'reserved'`) + `) as a`
