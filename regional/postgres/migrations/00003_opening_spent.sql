-- +goose Up
alter table tranche.shares add column opening_spent bigint not null default 0;
comment on column tranche.shares.opening_spent is 'Of the term''s first period, before the budget was declared: stated if etcd loses the term.';
