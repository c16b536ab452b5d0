-- +goose Up
alter table tranche.owner
    add column lost    boolean not null default false,
    add column regions text[] not null default '{}';
comment on column tranche.owner.lost is 'It lost history: it admits nothing until it has started over as a new incarnation.';
comment on column tranche.owner.regions is 'All that the coordinator ever named as registered.';
update tranche.owner set format = 2, lost = (stopped = 'history_lost');

alter table tranche.writers
    add column vouched boolean not null default false,
    add column former  boolean not null default false;
comment on column tranche.writers.vouched is 'Its last transaction was that of a writer that is vouched for, in the lineage of then.';
comment on column tranche.writers.former is 'It wrote for an incarnation before this one, and writes no more.';

alter table tranche.shares add column sealed boolean not null default false;
