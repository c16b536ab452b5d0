-- +goose Up
create table tranche.ended_writers (
    writer text collate "C" not null,
    count  bigint not null,
    value  text collate "C" not null,
    ended  timestamptz not null,
    constraint ended_writers_pk primary key (writer)
);
comment on table tranche.ended_writers is
    'The last marks of writers whose end was acknowledged. An etcd that goes back knows them again, and takes the missing row for lost history.';
