-- +goose Up
create table tranche.refusals (
    number       bigint generated always as identity primary key,
    at           bigint not null,
    decision     text not null,
    admission_id text not null,
    tenant       text not null,
    fingerprint  text not null,
    correlation  text not null,
    reason       text not null,
    record       json not null
);
create index refusals_at on tranche.refusals (at);
comment on table tranche.refusals is 'A bounded sample of refusals in full, for people. Nothing is decided by it; it may be emptied at any time.';
comment on column tranche.refusals.at is 'When it was decided, Unix microseconds.';
comment on column tranche.refusals.record is 'allocation.Record: the decision with all that it rested on. It holds no secret.';

create table tranche.refused (
    at         bigint not null,
    capability text not null,
    tenant     text not null,
    priority   text not null,
    reason     text not null,
    unit       text not null,
    requests   bigint not null,
    units      bigint not null,
    constraint refused_pk primary key (at, capability, tenant, priority, reason, unit)
);
comment on table tranche.refused is 'Refused requests and units by the minute, for people: of all refusals, also of those that are not kept in full.';

create table tranche.kept_tenants (
    tenant text primary key,
    since  timestamptz not null,
    until  timestamptz not null,
    by     text not null
);
comment on table tranche.kept_tenants is 'Tenants all of whose refusals are kept in full until a time.';

update tranche.owner set format = 7;
