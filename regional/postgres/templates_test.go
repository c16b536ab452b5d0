//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster/clustertest"
)

// giveEach grants a template's share.
func (o *owner) giveEach(budget string, each int64) {
	o.t.Helper()
	g := o.grant(budget, 1, each, each)
	g.Template = true
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{g}})
}

func (o *owner) keyOf(budget string, minute int, instance string) allocation.UsageKey {
	k := o.key(budget, minute)
	k.Instance = instance
	return k
}

// mustSum fails unless the sums of templates are what their rows add up to.
func (o *owner) mustSum() {
	o.t.Helper()
	if n := o.number(`
select count(*)
from (select budget, term, period, class, min(until) as until, sum(spent) as spent, sum(reserved) as reserved, sum(overdraft) as overdraft,
             count(*) as instances
      from tranche.usage where template group by budget, term, period, class) as rows
full join (select budget, term, period, class, min(until) as until, sum(spent) as spent, sum(reserved) as reserved,
                  sum(overdraft) as overdraft, sum(instances) as instances
           from tranche.template_usage group by budget, term, period, class) as sums
  using (budget, term, period, class, until, spent, reserved, overdraft, instances)
where rows.budget is null or sums.budget is null`); n != 0 {
		o.t.Errorf("%d sums and rows differ", n)
	}
}

// If this failed a template's statement would say less, or more, than its callers spent: sums are folded by two nodes at
// once while others spend, reserve and settle.
func TestSumsOfTemplatesStandWhileTheyAreFolded(t *testing.T) {
	o := newOwner(t)
	o.giveEach("t", 1000)
	o.giveEach("u", 1000)
	stores := []*Store{o.store, open(t, o.url)}
	ctx, done := context.WithCancel(context.WithoutCancel(t.Context()))
	var spenders, keepers sync.WaitGroup
	for n := range 4 {
		s, random := stores[n%2], rand.New(rand.NewPCG(7, uint64(n)))
		w := o.writer(s)
		spenders.Go(func() {
			for i := range 120 {
				name := fmt.Sprint(n, "-", i)
				k := o.keyOf([]string{"t", "u"}[random.IntN(2)], 10+random.IntN(2), fmt.Sprint("caller-", random.IntN(9)))
				op := []allocation.Op{allocation.Spend, allocation.Reserve}[random.IntN(2)]
				if _, err := o.charge(ctx, s, w, op, name, k); err != nil && !isAny(err, regional.ErrRaced) {
					t.Error(err)
					return
				}
				if err := o.settle(ctx, s, w, fmt.Sprint(n, "-", max(0, i-3))); err != nil && !isAny(err, regional.ErrRaced) {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, s := range stores {
		w := o.writer(s)
		keepers.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.Statements(context.WithoutCancel(ctx), w, nil); err != nil && !isAny(err, regional.ErrRaced) {
					t.Error(err)
					return
				}
			}
		})
	}
	spenders.Wait()
	done()
	keepers.Wait()
	o.mustSum()
	c := newCoordinatorSide(t)
	o.state(c)
	c.mustAgree(o)
	if n := o.number("select count(*) from tranche.template_usage"); n > 2*2*(foldFrom+1) {
		t.Errorf("%d rows are left for 4 sums", n)
	}
	if n := o.number(`select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// If this failed the sums of a new incarnation would tell of what a former one spent, or of rows that are gone.
func TestSumsOfTemplatesStandInANewLifeAndAreForgotten(t *testing.T) {
	o := newOwner(t)
	o.giveEach("t", 10)
	o.mustSpend("one", o.keyOf("t", 10, "a"))
	o.mustSpend("two", o.keyOf("t", 10, "b"))
	o.mustSum()
	o.exec("update tranche.owner set lost = true")
	call := allocation.SyncCall{Incarnation: "life-1", Home: *o.store.home.Load()}
	over, err := o.store.StartOver(t.Context(), call, allocation.SyncAnswer{Incarnation: "life-2"})
	if err != nil || over.Incarnation != "life-2" {
		t.Fatalf("%+v, %v", over, err)
	}
	o.mustSum()
	if n := o.number("select sum(spent) from tranche.template_usage"); n != 0 {
		t.Errorf("the new incarnation has spent %d", n)
	}
	o.w = o.writer(o.store) // the former one ended with its incarnation
	o.opened(0)
	o.exec("update tranche.usage set until = 1, period = 0")
	o.exec("update tranche.template_usage set until = 1, period = 0")
	o.exec("update tranche.id_tables set state = 'empty' where state <> 'open'")
	o.tidyFor(allocation.Minute)
	if n := o.number("select (select count(*) from tranche.usage) + (select count(*) from tranche.template_usage)"); n != 0 {
		t.Errorf("%d rows of the former incarnation are left", n)
	}
}

// If this failed an owner that was there before templates had sums would state that their callers spent nothing.
func TestTemplatesOfBeforeAreAddedUp(t *testing.T) {
	url := clustertest.Database(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := makeSchema(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	provider, err := migrator(db)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := provider.UpTo(t.Context(), 8); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), `
insert into tranche.usage (budget, instance, period, class, until, term, shard, template, version, generation, granted, returned, target, spent, reserved)
select 't', 'caller-' || i, 60, 'general', 120, 60, 3, true, 1, 1, 10, 0, 10, i, 1 from generate_series(1, 4) as i`); err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	o.mustSum()
	if n := o.number("select sum(spent) from tranche.template_usage"); n != 10 {
		t.Errorf("spent is %d of 10", n)
	}
}

// If this failed each statement would read a row of each caller: with a million of them that is seconds, in which a snapshot
// is open, once a second.
func TestAStatementReadsNoRowOfEachCaller(t *testing.T) {
	o := newOwner(t)
	o.giveEach("t", 10)
	o.give("plain", 10)
	o.mustSpend("one", o.instance(0))
	o.mustSpend("two", o.key("plain", 10))
	pages := func() (sum int) {
		o.exec("analyze")
		of := []any{[]int16{int16(allocation.ShardOf("t"))}, []int64{1}, []string{"3"}, []int64{0}}
		for _, q := range []sent{{countTouched, of}, {selectTouched, append(of, false)}, {selectLow, []any{o.first + 605, maxLow}}} {
			var told []byte
			if err := o.conn().QueryRow(t.Context(), "explain (analyze, buffers, format json) "+q.text, q.args...).Scan(&told); err != nil {
				t.Fatal(err)
			}
			var plans []struct{ Plan explained }
			if err := json.Unmarshal(told, &plans); err != nil {
				t.Fatal(err)
			}
			sum += plans[0].Plan.Hit + plans[0].Plan.Read
		}
		return sum
	}
	few := pages()
	o.callers(20_000)
	o.exec("update tranche.template_usage set instances = 20001 where budget = 't'")
	many := pages()
	if many > few+40 {
		t.Errorf("%d pages with one caller, %d with 20,000", few, many)
	}
}
