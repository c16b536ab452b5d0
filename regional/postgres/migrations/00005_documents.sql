-- +goose Up
create table tranche.documents (
    kind     text collate "C" not null,
    name     text collate "C" not null,
    version  bigint not null,
    number   bigint not null,
    final    boolean not null,
    document json not null,
    told     bigint not null,
    change   bigint not null,
    constraint documents_pk primary key (kind, name)
);
create index documents_change on tranche.documents (change);
create index documents_told on tranche.documents (told);
comment on table tranche.documents is 'The configuration other than budgets: keys, blocks and what else there is, by kind.';
comment on column tranche.documents.told is 'The number of the history under which the coordinator told it last; -1: it was made here.';
comment on column tranche.documents.change is 'The owner''s change number with which nodes read this row anew.';

alter table tranche.owner add column documents bigint not null default 0;
comment on column tranche.owner.documents is 'The configuration number through which documents are stored.';
update tranche.owner set format = 5;
