package postgres

// Lost history: marks of others, new incarnations, seals.
const (
	selectLineage = `
select ` + lineage + ` from tranche.owner as o where o.id = 1`

	selectLoser = `
select o.incarnation, exists (select from tranche.writers as w where w.writer = $1 and w.former)
from tranche.owner as o where o.id = 1`

	// The first words stay. A seal goes on to be one, but proves nothing any more.
	loseOwner = `
update tranche.owner
set lost = true, stopped = case when stopped = 'sealed' then stopped else $1 end, detail = case when stopped = 'sealed' then detail else $2 end
where id = 1 and not lost`

	liftOwner = `
update tranche.owner set stopped = '', detail = '' where id = 1 and stopped = $1 and not lost and stopped <> 'sealed'`

	// An owner that has no history yet, or an older one, keeps everything else but what was acknowledged (forgetBases): etcd
	// may have lost it, and what an owner does not state again nobody would ever hear of. Nor is it any further in the new
	// history's configuration than at its beginning: an etcd that was empty gives the numbers of the old one out again.
	heedHistory = `
update tranche.owner set history_number = $1, history_stamp = $2, config = 0, documents = 0 where id = 1 and history_number < $1`

	// What the shares of running periods hold and nobody has spent or reserved: by their rows, and by the entries of periods
	// that were not used.
	selectStranded = `
with now as (select floor(extract(epoch from clock_timestamp()))::bigint as at),
used as (
    select u.budget, u.term, u.class, u.granted - u.returned - u.spent - u.reserved as free
    from tranche.usage as u, now where not u.template and u.period <= now.at and now.at < u.until),
unused as (
    select e.granted - e.returned as free
    from tranche.share_entries as e join tranche.shares as s on s.budget = e.budget and s.term = e.term, now
    where not s.template and not s.gone and e.from_start <= now.at and now.at < e.until_start and now.at < s.term_end
      and not exists (select from used as u where u.budget = e.budget and u.term = e.term and u.class = e.class))
select least(coalesce((select sum(free) from used), 0) + coalesce((select sum(free) from unused), 0), 9223372036854775807)::bigint`

	lockAllShares = `select count(*) from (select 1 from tranche.shares order by budget, term for update) as s`

	lockAllUsage = `
select count(*) from (select 1 from tranche.usage order by budget, instance, period, class for update) as u`

	emptyUsage = `
update tranche.usage
set generation = 0, granted = 0, returned = 0, target = 0, protected = 0, spent = 0, reserved = 0, overdraft = 0, sealed = false,
    changed = pg_current_xact_id()`

	endIncarnation = `
update tranche.incarnations set ended = clock_timestamp() where incarnation = $1`

	// What the coordinator said of evidence was for the former one.
	renewOwner = `
update tranche.owner
set deployment = $1, incarnation = $2, lost = false, stopped = '', detail = '', changes = changes + 1, revision = 0, observed_at = 0,
    elsewhere = '[]'
where id = 1`

	// A version of a budget may have been given out a second time, with other content, by an etcd that had gone back before
	// anybody noticed. So one of the same version that is told under the new history takes its place.
	forgetNumbers = `update tranche.budgets set number = 0 where number <> 0`

	// Numbers go on: an acknowledgement that is late names none of the new ones.
	forgetStatements = `delete from tranche.statements`
	forgetBases      = `
with acked as (select shard from tranche.shards where acked <> 0 order by shard for update)
update tranche.shards as s set acked = 0 from acked where s.shard = acked.shard`

	// The rows stay, so that a writer can tell that its marks were of a former incarnation.
	retireWriters = `update tranche.writers set former = true, vouched = false where not former`
	forgetWriters = `delete from tranche.ended_writers`

	sealShares = `update tranche.shares set sealed = true, changed = pg_current_xact_id() where not sealed`
	sealUsage  = `update tranche.usage set sealed = true, changed = pg_current_xact_id() where not sealed`
	sealOwner  = `
update tranche.owner set stopped = 'sealed', detail = 'its incarnation was sealed; a new one starts with nothing' where id = 1 and stopped <> 'sealed'`

	selectSealing = `select region, incarnation, lost from tranche.owner where id = 1`

	selectSealedShares = `
select budget, term, version, template, policy, regions, first_start, step, periods, instants, generation, stamp, gone, sealed, opening_spent
from tranche.shares where not gone and generation > 0 order by budget, term`

	selectSealedEntries = `
select budget, term, class, from_start, until_start, "limit", granted, returned, target, protected
from tranche.share_entries order by budget, term, class, from_start`

	// Of a template the ledger counts no instance.
	selectSealedUsage = `
select ` + usageColumns + `
from tranche.usage as u where not u.template order by u.budget, u.period, u.class`
)

// Everything that the shares of an incarnation hold; their usage stays, since ids speak of it.
var dropShares = []string{
	`delete from tranche.share_entries`, `delete from tranche.shares`, `delete from tranche.late_changes`,
}
