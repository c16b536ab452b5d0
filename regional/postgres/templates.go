package postgres

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"tranche/allocation"
)

// A template has a usage row for each of its callers, perhaps a million, and its share's statement says what they add up
// to. So each batch appends what it changes of that sum, one row for each period and class of a template, which no other
// batch waits for; and each statement adds up what is there, and puts one row in the place of many.

// foldFrom is the number of rows of one period and class from which on a statement replaces them by their sum.
const foldFrom = 64

// counts are the counters of a usage row that a batch changes.
type counts struct{ spent, reserved, overdraft int64 }

func countsOf(u *allocation.Usage) counts { return counts{u.Spent, u.Reserved, u.Overdraft} }

// standing is a usage row as it was when it was locked.
type standing struct {
	place pgtype.TID
	counts
}

// sumKey is what is summed apart.
type sumKey struct {
	budget string
	term   allocation.Instant
	period allocation.Instant
	class  allocation.Class
	until  allocation.Instant
}

// sums are what a batch changes of templates.
type sums map[sumKey]counts

// add notes what becomes of one row.
func (s *sums) add(u *allocation.Usage, was counts) {
	now := countsOf(u)
	if now == was {
		return
	}
	if *s == nil {
		*s = sums{}
	}
	k := sumKey{u.Budget, u.Term, u.Period, u.Class, u.Until}
	c := (*s)[k]
	(*s)[k] = counts{c.spent + now.spent - was.spent, c.reserved + now.reserved - was.reserved, c.overdraft + now.overdraft - was.overdraft}
}

func (s sums) queue(q *pgx.Batch) {
	if len(s) == 0 {
		return
	}
	var shards []int16
	var budgets, classes []string
	var terms, periods, untils, spent, reserved, overdraft []int64
	for k, c := range s {
		shards, budgets, classes = append(shards, int16(allocation.ShardOf(k.budget))), append(budgets, k.budget), append(classes, string(k.class))
		terms, periods, untils = append(terms, int64(k.term)), append(periods, int64(k.period)), append(untils, int64(k.until))
		spent, reserved, overdraft = append(spent, c.spent), append(reserved, c.reserved), append(overdraft, c.overdraft)
	}
	q.Queue(addToTemplates, shards, budgets, terms, periods, classes, untils, spent, reserved, overdraft)
}

// fold puts sums in the place of many rows, for the templates that were just stated.
func fold(b *pgx.Batch, stated []statedShare) {
	var budgets []string
	var terms []int64
	for _, s := range stated {
		for _, u := range s.Usage {
			if u.Parts >= foldFrom {
				budgets, terms = append(budgets, s.Budget), append(terms, s.Term)
				break
			}
		}
	}
	if len(budgets) > 0 {
		b.Queue(foldTemplates, budgets, terms)
	}
}

const (
	addToTemplates = `
insert into tranche.template_usage (shard, budget, term, period, class, until, spent, reserved, overdraft)
select w.shard, w.budget, w.term, w.period, w.class, w.until, w.spent, w.reserved, w.overdraft
from unnest($1::smallint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[])
     as w (shard, budget, term, period, class, until, spent, reserved, overdraft)`

	// A sum is as new as the newest of what it is made of. Another node that does the same meanwhile takes other rows.
	foldTemplates = `
with old as (
    select t.ctid as place from tranche.template_usage as t
    join unnest($1::text[], $2::bigint[]) as w (budget, term) on t.budget = w.budget and t.term = w.term
    for update of t skip locked),
folded as (
    delete from tranche.template_usage as t using old where t.ctid = old.place
    returning t.shard, t.budget, t.term, t.period, t.class, t.until, t.spent, t.reserved, t.overdraft, t.instances, t.changed)
insert into tranche.template_usage (shard, budget, term, period, class, until, spent, reserved, overdraft, instances, changed)
select shard, budget, term, period, class, min(until), sum(spent), sum(reserved), sum(overdraft), sum(instances), max(changed)
from folded group by shard, budget, term, period, class`

	// A new incarnation counts nothing of what was spent; the rows stay, and so does their number.
	emptyTemplates = `
update tranche.template_usage set spent = 0, reserved = 0, overdraft = 0, changed = pg_current_xact_id()`

	deleteOrphanTemplates = `
delete from tranche.template_usage as t
where t.until <= $1 and not exists (select from tranche.shares as s where s.budget = t.budget and s.term = t.term)`

	renumberTemplates = `update tranche.template_usage set changed = pg_current_xact_id() where changed > pg_current_xact_id()`
)
