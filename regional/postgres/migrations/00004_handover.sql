-- +goose Up
alter table tranche.owner
    add column handover       text not null default '',
    add column handover_homes json not null default '{}';
comment on column tranche.owner.handover is 'Names the stop of an owner that is being handed over to another database: nothing is committed.';
update tranche.owner set format = 4;
