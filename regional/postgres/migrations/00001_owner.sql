-- +goose Up
-- All keys are of collation "C": their order is bytewise, as Go's, and is the order in which rows are locked.
-- Instants are whole Unix seconds; what ends in _at is Unix microseconds by this database's clock.

-- +goose StatementBegin
create function tranche.expect(changed bigint, expected bigint, code text, what text) returns void
language plpgsql as $$
begin
    if changed is distinct from expected then
        raise exception using errcode = code, message = format('%s: %s of %s', what, changed, expected);
    end if;
end
$$;
-- +goose StatementEnd
comment on function tranche.expect is 'Raises unless a statement changed exactly what was decided: TR001 raced, TR002 history lost.';

create table tranche.owner (
    id             smallint not null,
    format         integer not null,
    region         text collate "C" not null,
    deployment     text collate "C" not null default '',
    incarnation    text collate "C" not null default '',
    history_number bigint not null default 0,
    history_stamp  text collate "C" not null default '',
    changes        bigint not null default 0,
    config         bigint not null default 0,
    closed_before  bigint not null default 0,
    stopped        text not null default '',
    detail         text not null default '',
    revision       bigint not null default 0,
    observed_at    bigint not null default 0,
    elsewhere      json not null default '[]',
    constraint owner_pk primary key (id),
    constraint owner_is_one check (id = 1)
) with (fillfactor = 50);
comment on table tranche.owner is 'The one row of the region''s owner.';

create table tranche.incarnations (
    incarnation text collate "C" not null,
    started     timestamptz not null default clock_timestamp(),
    ended       timestamptz,
    constraint incarnations_pk primary key (incarnation)
);
comment on table tranche.incarnations is 'Lives of this owner. A message that names an ended one changes nothing.';

create table tranche.writers (
    writer  text collate "C" not null,
    name    text not null,
    count   bigint not null,
    value   text collate "C" not null,
    started timestamptz not null default clock_timestamp(),
    seen    timestamptz not null default clock_timestamp(),
    ended   timestamptz,
    constraint writers_pk primary key (writer)
) with (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);
comment on table tranche.writers is 'The mark of each writer: replaced in each of its transactions, compared with what it remembers.';

create table tranche.turns (
    name     text not null,
    node     text not null,
    until_at bigint not null,
    constraint turns_pk primary key (name)
) with (fillfactor = 50);

create table tranche.budgets (
    budget      text collate "C" not null,
    version     bigint not null,
    number      bigint not null,
    deleted     boolean not null,
    declaration json not null,
    change      bigint not null,
    constraint budgets_pk primary key (budget)
);
create index budgets_change on tranche.budgets (change);
comment on column tranche.budgets.change is 'The owner''s change number with which nodes read this row anew.';

create table tranche.shares (
    budget      text collate "C" not null,
    term        bigint not null,
    term_end    bigint not null,
    shard       smallint not null,
    version     bigint not null default 0,
    template    boolean not null default false,
    policy      json not null default '{}',
    regions     text[] not null default '{}',
    first_start bigint not null,
    step        bigint not null,
    periods     integer not null,
    instants    bigint[] not null,
    generation  bigint not null default 0,
    stamp       text collate "C" not null default '',
    gone        boolean not null default false,
    change      bigint not null default 0,
    changed     xid8 not null default pg_current_xact_id(),
    constraint shares_pk primary key (budget, term),
    constraint shares_shard check (shard between 0 and 255)
);
create index shares_by_shard on tranche.shares (shard);
create index shares_changed on tranche.shares (changed);
create index shares_change on tranche.shares (change);
comment on column tranche.shares.changed is 'The transaction that changed it last, for statements.';

create table tranche.share_entries (
    budget      text collate "C" not null,
    term        bigint not null,
    class       text collate "C" not null,
    from_start  bigint not null,
    until_start bigint not null,
    "limit"     bigint not null,
    granted     bigint not null,
    returned    bigint not null,
    target      bigint not null,
    constraint share_entries_pk primary key (budget, term, class, from_start),
    constraint share_entries_run check (from_start < until_start),
    constraint share_entries_returned check (0 <= returned and returned <= granted)
);
comment on column tranche.share_entries.returned is 'The owner''s own: of each period of the run that has no usage row.';

create table tranche.usage (
    budget     text collate "C" not null,
    instance   text collate "C" not null,
    period     bigint not null,
    class      text collate "C" not null,
    until      bigint not null,
    term       bigint not null,
    shard      smallint not null,
    template   boolean not null,
    version    bigint not null,
    generation bigint not null,
    granted    bigint not null,
    returned   bigint not null,
    target     bigint not null,
    spent      bigint not null default 0,
    reserved   bigint not null default 0,
    overdraft  bigint not null default 0,
    sealed     boolean not null default false,
    changed    xid8 not null default pg_current_xact_id(),
    constraint usage_pk primary key (budget, instance, period, class),
    constraint usage_class check (class in ('general', 'protected')),
    constraint usage_counters check (spent >= 0 and reserved >= 0 and overdraft >= 0),
    constraint usage_returned check (0 <= returned and returned <= granted),
    constraint usage_cap check (spent + reserved <= granted - returned)
) with (
    -- No index holds a column that changes, so an update stays in its page (HOT) and is pruned there.
    fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0
);
create index usage_until on tranche.usage (until);
create index usage_by_term on tranche.usage (budget, term);

create table tranche.instances (
    budget text collate "C" not null,
    term   bigint not null,
    period bigint not null,
    class  text collate "C" not null,
    count  bigint not null,
    constraint instances_pk primary key (budget, term, period, class)
) with (fillfactor = 50);
comment on table tranche.instances is 'How many usage rows a template''s period has; written under the share row''s lock.';

create table tranche.late_changes (
    shard   smallint not null,
    budget  text collate "C" not null,
    term    bigint not null,
    changed xid8 not null default pg_current_xact_id()
);
create index late_changes_changed on tranche.late_changes (changed);
comment on table tranche.late_changes is 'Which shares had usage changed after its period was closed, since the last acknowledged statements.';

create table tranche.shards (
    shard  smallint not null,
    number bigint not null default 0,
    acked  bigint not null default 0,
    constraint shards_pk primary key (shard),
    constraint shards_shard check (shard between 0 and 255)
) with (fillfactor = 50);
insert into tranche.shards (shard) select generate_series(0, 255);

create table tranche.statements (
    shard         smallint not null,
    number        bigint not null,
    system        text not null,
    xmin_after    xid8 not null,
    closed_before bigint not null,
    constraint statements_pk primary key (shard, number)
);
comment on table tranche.statements is 'From which snapshot each statement was made that the coordinator may still acknowledge.';

create table tranche.id_tables (
    place     smallint not null,
    serial    bigint not null,
    state     text not null,
    opened_at bigint not null,
    closed_at bigint not null,
    constraint id_tables_pk primary key (place),
    constraint id_tables_place check (place between 0 and 3),
    constraint id_tables_state check (state in ('empty', 'open', 'closed'))
);
create unique index id_tables_one_open on tranche.id_tables (state) where state = 'open';
comment on column tranche.id_tables.serial is 'Rises with each opening and is never used again.';
insert into tranche.id_tables (place, serial, state, opened_at, closed_at)
select n, -n, case when n = 0 then 'open' else 'empty' end, (extract(epoch from clock_timestamp()) * 1000000)::bigint, 0
from generate_series(0, 3) as n;

create table tranche.admission_ids_0 (
    credential text collate "C" not null,
    tenant     text collate "C" not null,
    id         text collate "C" not null,
    payload    bytea not null,
    op         text not null,
    state      text not null,
    made_at    bigint not null,
    expires_at bigint not null,
    latest_at  bigint not null,
    budgets    text[] not null,
    instances  text[] not null,
    periods    bigint[] not null,
    classes    text[] not null,
    rest       json not null,
    constraint admission_ids_0_pk primary key (credential, tenant, id)
) with (fillfactor = 90, autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index admission_ids_0_open on tranche.admission_ids_0 (expires_at) include (made_at) where state = 'reserved';
comment on table tranche.admission_ids_0 is 'Admission ids. Four such tables, one of which is open at a time; each is emptied whole.';

create table tranche.admission_ids_1 (like tranche.admission_ids_0 including defaults including storage,
    constraint admission_ids_1_pk primary key (credential, tenant, id)
) with (fillfactor = 90, autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index admission_ids_1_open on tranche.admission_ids_1 (expires_at) include (made_at) where state = 'reserved';

create table tranche.admission_ids_2 (like tranche.admission_ids_0 including defaults including storage,
    constraint admission_ids_2_pk primary key (credential, tenant, id)
) with (fillfactor = 90, autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index admission_ids_2_open on tranche.admission_ids_2 (expires_at) include (made_at) where state = 'reserved';

create table tranche.admission_ids_3 (like tranche.admission_ids_0 including defaults including storage,
    constraint admission_ids_3_pk primary key (credential, tenant, id)
) with (fillfactor = 90, autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.05);
create index admission_ids_3_open on tranche.admission_ids_3 (expires_at) include (made_at) where state = 'reserved';
