-- +goose Up
-- A batch looks for usage rows by their whole key. While the table was small, or had no statistics, an index that begins with the
-- budget too looked as good, and a plan that was made then read all rows of the budget for each of them. Every shard is at least 0, so
-- this index has every row; but only a statement that says so can use it. Statements look for all but templates' rows.
drop index tranche.usage_by_term;
create index usage_by_term on tranche.usage (budget, term, template) where shard >= 0;
