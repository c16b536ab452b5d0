-- +goose Up
-- Nobody may change usage from here on who would not add to the sums: a program of before refuses once it sees the new format.
lock table tranche.usage in access exclusive mode;

create table tranche.template_usage (
    shard     smallint not null,
    budget    text collate "C" not null,
    term      bigint not null,
    period    bigint not null,
    class     text collate "C" not null,
    until     bigint not null,
    spent     numeric not null default 0,
    reserved  numeric not null default 0,
    overdraft numeric not null default 0,
    instances bigint not null default 0,
    changed   xid8 not null default pg_current_xact_id()
);
create index template_usage_by_term on tranche.template_usage (budget, term);
create index template_usage_changed on tranche.template_usage (changed);
comment on table tranche.template_usage is
    'What the usage rows of a template add up to, as sums and as changes since: of a million rows nobody adds up all for each statement.';

insert into tranche.template_usage (shard, budget, term, period, class, until, spent, reserved, overdraft, instances)
select shard, budget, term, period, class, min(until), sum(spent), sum(reserved), sum(overdraft), count(*)
from tranche.usage where template
group by shard, budget, term, period, class;

-- Statements and reports look for what is running among all but templates' rows.
drop index tranche.usage_until;
create index usage_until on tranche.usage (template, until);

-- Tables without a key can be replicated logically only so.
alter table tranche.template_usage replica identity full;
alter table tranche.late_changes replica identity full;

update tranche.owner set format = 8;
