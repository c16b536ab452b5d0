package postgres

// Records of refusals: beside the owner, touched by none of its transactions.
const (
	insertRefusals = `
insert into tranche.refusals (at, decision, admission_id, tenant, fingerprint, correlation, reason, record)
select w.at, w.decision, w.admission_id, w.tenant, w.fingerprint, w.correlation, w.reason, w.record::json
from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
  as w (at, decision, admission_id, tenant, fingerprint, correlation, reason, record)`

	// In the order of the key: several nodes add to the same rows.
	addRefused = `
insert into tranche.refused as r (at, capability, tenant, priority, reason, unit, requests, units)
select w.at, w.capability, w.tenant, w.priority, w.reason, w.unit, w.requests, w.units
from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::bigint[], $8::bigint[])
  as w (at, capability, tenant, priority, reason, unit, requests, units)
order by w.at, w.capability collate "C", w.tenant collate "C", w.priority, w.reason, w.unit
on conflict on constraint refused_pk do update
set requests = least(r.requests::numeric + excluded.requests, 9223372036854775807)::bigint,
    units = least(r.units::numeric + excluded.units, 9223372036854775807)::bigint`

	// Beyond the bound those go first of which a minute has many: beyond $3 of its tenant, and beyond $4 of all; then the oldest. So
	// a storm, of one tenant or of many, thins itself out, and what was refused before it is found afterwards.
	pruneRefusals = `
delete from tranche.refusals
where at < $2 or number in (
  select r.number
  from (select number,
               (row_number() over (partition by at / 60000000, tenant order by number) > $3)::int
               + (row_number() over (partition by at / 60000000 order by number) > $4)::int as many
        from tranche.refusals where at >= $2) as r
  order by r.many desc, r.number
  limit greatest((select count(*) from tranche.refusals where at >= $2) - $1, 0))`

	pruneRefused = `
delete from tranche.refused
where at < $2 or at < (select at from tranche.refused order by at desc offset $1 - 1 limit 1)`

	pruneKept = `
delete from tranche.kept_tenants where until < now()`

	selectRefusals = `
select number, record from tranche.refusals
where at >= $1 and ($2::bigint = 0 or at < $2) and ($3::bigint = 0 or number < $3)
  and ($4::text = '' or decision = $4) and ($5::text = '' or correlation = $5) and ($6::text = '' or admission_id = $6)
  and ($7::text = '' or fingerprint = $7) and ($8::text = '' or tenant = $8) and ($9::text = '' or reason = $9)
order by number desc limit $10`

	sumRefused = `
select s.at, s.capability, s.tenant, s.priority, s.reason, s.unit,
       least(sum(s.requests), 9223372036854775807)::bigint, least(sum(s.units), 9223372036854775807)::bigint
from (select case when $3::bigint > 0 then at - at % $3::bigint else 0 end as at,
             case when $5::boolean then capability else '' end as capability, case when $6::boolean then tenant else '' end as tenant,
             case when $7::boolean then priority else '' end as priority, case when $8::boolean then reason else '' end as reason,
             unit, requests, units
      from tranche.refused
      where at >= $1::bigint and ($2::bigint = 0 or at < $2::bigint) and ($4::text = '' or tenant = $4::text)) as s
group by 1, 2, 3, 4, 5, 6
order by s.at, s.capability collate "C", s.tenant collate "C", s.priority, s.reason, s.unit limit $9`

	// One more than the bound is refused; one that is kept already is given another end.
	keepTenant = `
insert into tranche.kept_tenants as k (tenant, since, until, by)
select $1::text, $2, $3, $4
where (select count(*) from tranche.kept_tenants where until > $2 and tenant <> $1::text) < $5
on conflict (tenant) do update set since = excluded.since, until = excluded.until, by = excluded.by`

	selectKept = `
select tenant, since, until, by from tranche.kept_tenants where until > now() order by tenant collate "C"`
)
