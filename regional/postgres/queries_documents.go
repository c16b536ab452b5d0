package postgres

// Documents: configuration other than budgets.
const (
	// What is final stays, then the later version counts: allocation.Document.Replaces.
	upsertDocuments = `
insert into tranche.documents as d (kind, name, version, number, final, document, told, change)
select w.kind, w.name, w.version, w.number, w.final, w.document::json, $7, $8
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::boolean[], $6::text[]) as w (kind, name, version, number, final, document)
order by w.kind collate "C", w.name collate "C"
on conflict on constraint documents_pk do update
set version = excluded.version, number = excluded.number, final = excluded.final, document = excluded.document,
    told = excluded.told, change = excluded.change
where (excluded.final, excluded.version, excluded.number) > (d.final, d.version, d.number)`

	// Whatever the coordinator says of a document it has heard of it, also where the stored one stays.
	tellDocuments = `
update tranche.documents as d set told = $3
from unnest($1::text[], $2::text[]) as w (kind, name)
where d.kind = w.kind and d.name = w.name and d.told < $3`

	// Those that the coordinator has not told under the present history, those made here first.
	selectUntold = `
select json_agg(u.document)
from (select d.document from tranche.documents as d
      where d.told < (select history_number from tranche.owner where id = 1)
      order by d.told, d.kind, d.name limit $1) as u`

	raiseChanges = `
update tranche.owner set changes = $1 where id = 1`
)
