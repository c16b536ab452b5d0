-- +goose Up
alter table tranche.share_entries
    add column protected bigint not null default 0;
comment on column tranche.share_entries.protected is 'Of the target: what only essential traffic may spend.';

alter table tranche.usage
    add column protected bigint not null default 0,
    add constraint usage_protected check (0 <= protected and protected <= target);
comment on column tranche.usage.protected is 'Of the target: a floor that only essential traffic may go below.';

update tranche.owner set format = 6;
