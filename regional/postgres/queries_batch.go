package postgres

import "strings"

// Batches: the first round trip.
const (
	// One by one in the order of the keys: the subquery in lateral cannot be merged with the rest, so this is a nested
	// loop over the sorted keys, whatever the statistics say. Elsewhere likewise; what keeps a subquery apart is its lock, its
	// limit, or an offset of 0.
	lockShares = `
select count(*)
from (select distinct w.budget collate "C" as budget, w.term
      from unnest($1::text[], $2::bigint[]) as w (budget, term)
      order by 1, 2) as w
cross join lateral (
    select 1 from tranche.shares as s
    where s.budget = w.budget and s.term = w.term
    for no key update) as s`

	// What a usage row would be, from its share: $1 budgets, $2 instances, $3 periods, $4 classes, $5 terms, $6 most
	// instances. The end of a period is the share's to say.
	wantedUsage = `
    select w.budget, w.instance, w.period, w.class, p.until, w.term, s.shard, s.template, s.version, s.generation,
           e.granted, e.returned, e.target, e.protected, s.sealed, w.most
    from unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[])
         as w (budget, instance, period, class, term, most)
    cross join lateral (
        select * from tranche.shares as s
        where s.budget = w.budget and s.term = w.term and not s.gone and s.generation > 0 offset 0) as s
    cross join lateral (
        select * from tranche.share_entries as e
        where e.budget = w.budget and e.term = w.term and e.class = w.class
          and e.from_start <= w.period and w.period < e.until_start offset 0) as e
    cross join lateral (
        select case
            when s.step > 0 and w.period >= s.first_start and w.period < s.term_end and (w.period - s.first_start) % s.step = 0
                then w.period + s.step
            when s.step = 0 then s.instants[array_position(s.instants, w.period) + 1]
        end as until) as p
    where p.until is not null and s.template = (w.instance <> '')
      and not exists (
          select from tranche.usage as u
          where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class offset 0)`

	fittingUsage = `
    select w.*,
           w.most = 0 or not w.template or w.most >= coalesce((
               select i.count from tranche.instances as i
               where i.budget = w.budget and i.term = w.term and i.period = w.period and i.class = w.class), 0)
               + row_number() over (partition by w.budget, w.period, w.class order by w.instance) as fits
    from wanted as w`

	// Answers the rows that do not fit. Its snapshot began after the share rows were locked, so it sees all that exist.
	makeUsage = `
with wanted as (` + wantedUsage + `),
ranked as (` + fittingUsage + `),
made as (
    insert into tranche.usage (budget, instance, period, class, until, term, shard, template, version, generation,
                               granted, returned, target, protected, sealed)
    select budget, instance, period, class, until, term, shard, template, version, generation, granted, returned, target, protected, sealed
    from ranked where fits
    order by budget collate "C", instance collate "C", period, class collate "C"
    on conflict do nothing
    returning shard, budget, term, period, class, until, template),
told as (
    insert into tranche.template_usage (shard, budget, term, period, class, until, instances)
    select shard, budget, term, period, class, until, count(*) from made where template
    group by shard, budget, term, period, class, until),
counted as (
    insert into tranche.instances as i (budget, term, period, class, count)
    select budget, term, period, class, count(*) from made where template
    group by budget, term, period, class
    on conflict on constraint instances_pk do update set count = i.count + excluded.count)
select budget, instance, period, class from ranked where not fits`

	// peekUsage is makeUsage for a check: what would be made, and whether it fits.
	peekUsage = `
with wanted as (` + wantedUsage + `),
ranked as (` + fittingUsage + `)
select budget, instance, period, class, until, term, template, version, generation, granted, returned, target, protected,
       0::bigint, 0::bigint, 0::bigint, sealed, fits
from ranked`

	usageColumns = `u.budget, u.instance, u.period, u.class, u.until, u.term, u.template, u.version, u.generation,
           u.granted, u.returned, u.target, u.protected, u.spent, u.reserved, u.overdraft, u.sealed`

	usageOfKeys = `
select u.*
from (select w.budget collate "C" as budget, w.instance collate "C" as instance, w.period, w.class collate "C" as class
      from ({keys}) as w (budget, instance, period, class)
      order by 1, 2, 3, 4) as w
cross join lateral (
    select ` + usageColumns + `, u.ctid
    from tranche.usage as u
    where u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class
    {lock}) as u`

	givenKeys = `select * from unnest($1::text[], $2::text[], $3::bigint[], $4::text[])`

	// What one batch reads besides locked rows, ids, the owner and changes.
	clockColumns = `(extract(epoch from clock_timestamp()) * 1000000)::bigint, current_setting('fsync'),
       current_setting('synchronous_commit'), current_setting('full_page_writes'),
       (select t.place from tranche.id_tables as t where t.state = 'open')`

	selectClock = `select ` + clockColumns
)

var (
	// keysOfIDs adds the usage rows that the ids ($5 to $7) were charged to. Those keys never change.
	keysOfIDs = givenKeys + `
      union
      select k.budget, k.instance, k.period, k.class
      from unnest($5::text[], $6::text[], $7::text[]) as i (credential, tenant, id)
      cross join lateral (` + allTables(`
          select a.budgets, a.instances, a.periods, a.classes from tranche.admission_ids_{n} as a
          where a.credential = i.credential and a.tenant = i.tenant and a.id = i.id`) + `) as a
      cross join lateral unnest(a.budgets, a.instances, a.periods, a.classes) as k (budget, instance, period, class)`

	lockUsage      = usageQuery(givenKeys, "for update")
	lockUsageOfIDs = usageQuery(keysOfIDs, "for update")
	readUsage      = usageQuery(givenKeys, "limit 1")
	readUsageOfIDs = usageQuery(keysOfIDs, "limit 1")

	// Table by table, so that an empty one costs nothing. The subquery in lateral, kept apart by its offset, is a look-up by key
	// for each id, whatever the statistics of a table say that was empty when the plan was made.
	selectIDs = allTables(`
select w.n, {n} as place, a.payload, a.op, a.state, a.made_at, a.expires_at, a.latest_at, a.budgets, a.instances, a.periods, a.classes, a.rest
from unnest($1::text[], $2::text[], $3::text[]) with ordinality as w (credential, tenant, id, n)
cross join lateral (
    select * from tranche.admission_ids_{n} as i
    where i.credential = w.credential and i.tenant = w.tenant and i.id = w.id offset 0) as a
where (select t.state from tranche.id_tables as t where t.place = {n}) <> 'empty'`)
)

func usageQuery(keys, lock string) string {
	return strings.NewReplacer("{keys}", keys, "{lock}", lock).Replace(usageOfKeys)
}

// Batches: the second round trip. Each raises unless it changed exactly as many rows as it was given.
const (
	// The counters together with the mark ($1 to $6, as in replaceMark): nearly every batch writes both. The rows are locked since the
	// first round trip, so they are where they were then ($17), and need not be looked for again. A row that is not the one
	// that was meant is none of those that are counted.
	updateUsage = `
with done as (
    update tranche.usage as u
    set spent = w.spent, reserved = w.reserved, overdraft = w.overdraft, returned = w.returned, changed = pg_current_xact_id()
    from unnest($7::text[], $8::text[], $9::bigint[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], $17::tid[])
         as w (budget, instance, period, class, granted, returned, spent, reserved, overdraft, place)
    where u.ctid = w.place and u.granted = w.granted
    returning u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class as same),
mine as (` + updateMark + `)
select case when n.rows is distinct from $16 then tranche.expect(n.rows, $16, 'TR001', 'usage rows') end, ` + expectMark + `
from (select (select count(*) from done where same) as rows, ` + countMark + ` offset 0) as n`

	noteLate = `
insert into tranche.late_changes (shard, budget, term)
select w.shard, w.budget, w.term from unnest($1::smallint[], $2::text[], $3::bigint[]) as w (shard, budget, term)`
)

var (
	// A row that is there already raises: nothing is passed over, so there is nothing to count.
	insertIDs = perTable(`
insert into tranche.admission_ids_{n} (credential, tenant, id, payload, op, state, made_at, expires_at, latest_at,
                                       budgets, instances, periods, classes, rest)
select w.credential, w.tenant, w.id, w.payload, w.op, w.state, w.made_at, w.expires_at, w.latest_at,
       w.budgets::text[], w.instances::text[], w.periods::bigint[], w.classes::text[], w.rest::json
from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::text[], $11::text[], $12::text[], $13::text[], $14::text[])
     as w (credential, tenant, id, payload, op, state, made_at, expires_at, latest_at, budgets, instances, periods, classes, rest)
order by w.credential collate "C", w.tenant collate "C", w.id collate "C"`)

	// insertAlike is insertIDs for rows that differ in their ids ($1) and documents ($2) only.
	insertAlike = perTable(`
insert into tranche.admission_ids_{n} (credential, tenant, id, payload, op, state, made_at, expires_at, latest_at,
                                       budgets, instances, periods, classes, rest)
select $3::text, $4::text, w.id, $5::bytea, $6::text, $7::text, $8::bigint, $9::bigint, $10::bigint,
       $11::text::text[], $12::text::text[], $13::text::bigint[], $14::text::text[], w.rest::json
from unnest($1::text[], $2::text[]) as w (id, rest)
order by w.id collate "C"`)

	// copyIDs is insertIDs for many rows: it takes less for each of them, and a round trip of its own.
	copyIDs = perTable(`
copy tranche.admission_ids_{n} (credential, tenant, id, payload, op, state, made_at, expires_at, latest_at,
                                budgets, instances, periods, classes, rest) from stdin (format binary)`)

	// The rows are found first and then changed where they stand: so the table cannot be what the join begins with.
	updateIDs = perTable(`
with done as (
    update tranche.admission_ids_{n} as a
    set state = w.state, expires_at = w.expires_at, latest_at = w.latest_at, rest = w.rest::json
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[])
         as w (credential, tenant, id, was, state, expires_at, latest_at, rest)
    cross join lateral (
        select i.ctid as place from tranche.admission_ids_{n} as i
        where i.credential = w.credential and i.tenant = w.tenant and i.id = w.id offset 0) as f
    where a.ctid = f.place and a.state = w.was
    returning 1)
select tranche.expect((select count(*) from done), $9, 'TR001', 'updated ids')`)
)

// The owner's row, with what changed of budgets, terms and documents after $1, at most $2 of each; one snapshot, so that nothing
// changes between the number and the lists.
const (
	ownerColumns = `o.format, o.region, o.deployment, o.incarnation, o.history_number, o.history_stamp, o.changes, o.config,
       o.closed_before, o.stopped, o.detail, o.revision, o.observed_at, o.lost, o.handover, o.handover_homes, o.documents, ` + lineage

	changedColumns = `
       case when o.changes > $1 then (
           select json_agg(json_build_object('declaration', b.declaration, 'version', b.version, 'number', b.number, 'deleted', b.deleted))
           from (select declaration, version, number, deleted from tranche.budgets where change > $1 limit $2) as b) end,
       case when o.changes > $1 then (
           select json_agg(json_build_object('budget', s.budget, 'term', s.term, 'template', s.template, 'policy', s.policy,
                  'regions', s.regions, 'first', s.first_start, 'step', s.step, 'count', s.periods, 'instants', s.instants, 'gone', s.gone))
           from (select budget, term, template, policy, regions, first_start, step, periods, instants, gone
                 from tranche.shares where change > $1 limit $2) as s) end,
       case when o.changes > $1 then (
           select json_agg(d.document) from (select document from tranche.documents where change > $1 limit $2) as d) end`

	selectOwner = `select ` + ownerColumns + `, ` + changedColumns + ` from tranche.owner as o where o.id = 1`

	// selectOwnerNow is that with the clock, for batches.
	selectOwnerNow = `select ` + ownerColumns + `, ` + changedColumns + `, ` + clockColumns + ` from tranche.owner as o where o.id = 1`

	// selectOwnerOnly is that without what changed, which is nearly always nothing: only to get ready to list it takes the
	// server longer than all the rest of the statement.
	selectOwnerOnly = `select ` + ownerColumns + `, null::json, null::json, null::json, ` + clockColumns + ` from tranche.owner as o where o.id = 1`
)
