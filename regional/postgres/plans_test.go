//go:build unix

package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"tranche/allocation"
	"tranche/regional"
)

// sent is a statement with its parameters as a batch sends it.
type sent struct {
	text string
	args []any
}

// recording notes what a pool sends.
type recording struct {
	mu   sync.Mutex
	list []sent
}

func (r *recording) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range data.Batch.QueuedQueries {
		r.list = append(r.list, sent{q.SQL, q.Arguments})
	}
	return ctx
}

func (r *recording) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (r *recording) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

func (r *recording) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (r *recording) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// take answers what was sent since the last time, but for what begins and ends a transaction.
func (r *recording) take() []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := slices.DeleteFunc(r.list, func(s sent) bool {
		return slices.Contains([]string{begin, beginBatch, commit, rollback, planByKey}, s.text)
	})
	r.list = nil
	return list
}

// record lets the owner's store tell what it sends.
func (o *owner) record() *recording {
	o.t.Helper()
	config, err := poolConfig(o.url, 4)
	if err != nil {
		o.t.Fatal(err)
	}
	r := &recording{}
	config.ConnConfig.Tracer = r
	pool, err := pgxpool.NewWithConfig(o.t.Context(), config)
	if err != nil {
		o.t.Fatal(err)
	}
	o.store.pool.Close()
	o.store.pool = pool
	return r
}

// Of the batches whose plans are looked at.
const (
	plansBatch  = 50     // requests: fewer than copyLeast, so that all of them are written by statements with a plan
	plansRows   = 10_000 // of each table, when the statements are executed
	plansPages  = 40     // most pages that a statement may look at for each of its rows
	plansFresh  = 9_000_000
	plansLedger = 1 << 40
)

// instance is the usage row of the template's caller of that number.
func (o *owner) instance(n int) allocation.UsageKey {
	k := o.key("t", 10)
	k.Instance = fmt.Sprintf("caller-%07d", n)
	return k
}

func planID(kind string, i int) allocation.IDKey { return id(fmt.Sprintf("%s-%03d", kind, i)) }

// batches runs a batch of each kind, and answers what was sent: of callers that are known, of new ones, and of ids that are known.
// Each after the check that reads what it would lock.
func (o *owner) batches() []sent {
	r := o.record()
	var known, fresh []allocation.UsageKey
	for i := range plansBatch {
		known, fresh = append(known, o.instance(i)), append(fresh, o.instance(plansFresh+i))
	}
	o.plannedCharge("known", allocation.Reserve, known, false)
	o.plannedCharge("fresh", allocation.Spend, fresh, true)
	o.plannedSettle("known", known)
	return r.take()
}

func (o *owner) plannedBegin(want regional.Want) regional.Batch {
	o.t.Helper()
	if _, err := o.store.Peek(o.t.Context(), want); err != nil {
		o.t.Fatal(err)
	}
	b, err := o.store.Begin(o.t.Context(), o.w, want)
	if err != nil {
		o.t.Fatal(err)
	}
	return b
}

func (o *owner) plannedCharge(kind string, op allocation.Op, keys []allocation.UsageKey, make bool) {
	o.t.Helper()
	want := regional.Want{Changes: -1}
	for i, k := range keys {
		w := o.wanted(k, make)
		w.MaxInstances = plansLedger
		want.Usage, want.IDs = append(want.Usage, w), append(want.IDs, planID(kind, i))
	}
	b := o.plannedBegin(want)
	var writes regional.Writes
	for i, k := range keys {
		one, ok := chargeAll(b.Seen(), op, planID(kind, i).ID, []allocation.UsageKey{k})
		if !ok {
			o.t.Fatalf("%s: %v was refused", kind, k)
		}
		one.Inserted[0].At += int64(i) // else all but the ids would be alike, as it is with one caller
		writes.Usage, writes.Inserted = append(writes.Usage, one.Usage...), append(writes.Inserted, one.Inserted...)
	}
	if err := b.Commit(o.t.Context(), writes); err != nil {
		o.t.Fatal(err)
	}
}

func (o *owner) plannedSettle(kind string, keys []allocation.UsageKey) {
	o.t.Helper()
	want := regional.Want{Changes: noChanges}
	for i := range keys {
		want.IDs = append(want.IDs, planID(kind, i))
	}
	want.OfIDs = want.IDs
	b := o.plannedBegin(want)
	var writes regional.Writes
	for i, k := range keys {
		a, u := b.Seen().IDs[planID(kind, i)], b.Seen().Usage[k]
		a.State, u.Reserved, u.Spent = allocation.StateSettled, u.Reserved-1, u.Spent+1
		writes.Updated, writes.Usage = append(writes.Updated, a), append(writes.Usage, u)
	}
	if err := b.Commit(o.t.Context(), writes); err != nil {
		o.t.Fatal(err)
	}
}

// unsent makes it as if nothing of the batches had happened, so that it can be done again.
func (o *owner) unsent() {
	o.exec(`delete from tranche.admission_ids_0`)
	o.exec(`delete from tranche.usage where instance >= $1`, o.instance(plansFresh).Instance)
	o.exec(`update tranche.usage set spent = 0, reserved = 0`)
	o.exec(`update tranche.instances set count = $1 where budget = 't'`, plansBatch)
}

// callers makes more usage rows of the template.
func (o *owner) callers(n int) {
	o.exec(`
insert into tranche.usage (budget, instance, period, class, until, term, shard, template, version, generation, granted, returned, target)
select u.budget, 'other-' || n || '-' || $1::int, u.period, u.class, u.until, u.term, u.shard, true, 1, 1, u.granted, 0, u.target
from generate_series(1, $1) as n, tranche.usage as u where u.instance = $2`, n, o.instance(0).Instance)
}

func (o *owner) manyIDs(table, n int) {
	o.exec(fmt.Sprintf(`
insert into tranche.admission_ids_%d (credential, tenant, id, payload, op, state, made_at, expires_at, latest_at, budgets, instances, periods, classes, rest)
select 'gateway', 'acme', 'old-' || n || '-' || $1::int, '', 'spend', 'spent', 1, 0, 0, '{t}', '{x}', '{0}', '{general}', '{}'
from generate_series(1, $1) as n`, table), n)
}

// budgets makes usage rows of other budgets.
func (o *owner) budgets(n int) {
	o.exec(`
insert into tranche.usage (budget, instance, period, class, until, term, shard, template, version, generation, granted, returned, target)
select 'budget-' || n, '', u.period, u.class, u.until, u.term, u.shard, false, 1, 1, u.granted, 0, u.target
from generate_series(1, $1) as n, tranche.usage as u where u.instance = $2`, n, o.instance(0).Instance)
}

// shares makes shares of other budgets.
func (o *owner) shares(n int) {
	o.exec(`
insert into tranche.shares (budget, term, term_end, shard, first_start, step, periods, instants, generation)
select 'budget-' || n, s.term, s.term_end, s.shard, s.first_start, s.step, s.periods, s.instants, 1
from generate_series(1, $1) as n, tranche.shares as s where s.budget = 't'`, n)
	o.exec(`
insert into tranche.share_entries (budget, term, class, from_start, until_start, "limit", granted, returned, target)
select 'budget-' || n, e.term, e.class, e.from_start, e.until_start, e."limit", e.granted, 0, e.target
from generate_series(1, $1) as n, tranche.share_entries as e where e.budget = 't'`, n)
	o.exec(`
insert into tranche.instances (budget, term, period, class, count)
select 'budget-' || n, i.term, i.period, i.class, 1
from generate_series(1, $1) as n, tranche.instances as i where i.budget = 't'`, n)
}

// grown is what a plan has to be good for, whenever it was made.
func (o *owner) grown() {
	o.callers(plansRows)
	o.shares(plansRows)
	o.manyIDs(0, plansRows)
	o.manyIDs(1, plansRows)
	o.exec("update tranche.id_tables set state = 'closed' where place = 1")
}

// plannedTables are those that grow; by hand only are they vacuumed and analyzed.
var plannedTables = []string{
	"usage", "shares", "share_entries", "instances",
	"admission_ids_0", "admission_ids_1", "admission_ids_2", "admission_ids_3",
}

// If this failed a node could suddenly be twenty times as slow, and stay so for minutes: plans are kept, so one that was made while a
// table was small, or had no statistics, is executed when it is large.
func TestNoStatisticsMakeABatchSlow(t *testing.T) {
	for _, c := range []struct {
		name  string
		state func(o *owner) // when the plans are made
		then  func(o *owner) // what happens until they are executed
	}{
		{"few rows", func(*owner) {}, (*owner).grown},
		{"few rows, analyzed", func(o *owner) { o.exec("vacuum analyze") }, (*owner).grown},
		{"some rows, vacuumed", func(o *owner) {
			o.callers(100)
			o.manyIDs(0, 100)
			o.exec("vacuum")
		}, (*owner).grown},
		{"some rows, of which only the others were analyzed", func(o *owner) {
			o.callers(100)
			o.manyIDs(0, 100)
			o.exec("vacuum analyze tranche.instances, tranche.admission_ids_0")
		}, (*owner).grown},
		{"many budgets, analyzed", func(o *owner) {
			o.budgets(plansRows)
			o.exec("vacuum analyze")
		}, (*owner).grown},
		{"nothing, analyzed", func(o *owner) {
			for _, table := range plannedTables {
				o.exec("create table public." + table + " as table tranche." + table)
				o.exec("truncate tranche." + table)
			}
			o.exec("vacuum analyze")
		}, func(o *owner) {
			for _, table := range plannedTables {
				o.exec("insert into tranche." + table + " table public." + table)
			}
			o.grown()
		}},
		{"many rows", (*owner).grown, func(*owner) {}},
		{"many rows, analyzed", func(o *owner) {
			o.grown()
			o.exec("vacuum analyze")
		}, func(*owner) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := newOwner(t)
			for _, table := range plannedTables {
				o.exec("alter table tranche." + table + " set (autovacuum_enabled = false)")
			}
			template := o.grant("t", 1, 1000, 1000)
			template.Template = true
			o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{template}})
			for i := range plansBatch {
				o.mustMake(o.instance(i))
			}
			list := o.batches()
			o.unsent()
			c.state(o)
			p := o.plan(list)
			c.then(o)
			p.execute()
		})
	}
}

// planner is a session that has a plan of each statement.
type planner struct {
	*owner
	conn *pgx.Conn
	list []sent
}

// plan makes the plans.
func (o *owner) plan(list []sent) *planner {
	o.t.Helper()
	p := &planner{owner: o, conn: o.conn(), list: list}
	if _, err := p.conn.Exec(o.t.Context(), strings.ReplaceAll(planByKey, ", true)", ", false)")); err != nil {
		o.t.Fatal(err)
	}
	for i, s := range list {
		if _, err := p.conn.Prepare(o.t.Context(), fmt.Sprint("planned_", i), s.text); err != nil {
			o.t.Fatal(err)
		}
		p.explain(i, "format json")
	}
	return p
}

// execute executes all of them in one transaction, and looks at each plan and at what it read.
func (p *planner) execute() {
	p.t.Helper()
	p.mustExec("begin")
	for _, s := range p.list {
		if s.text == updateUsage {
			p.mustExec("update tranche.writers set count = $1, value = $2 where writer = $3", s.args[3], s.args[4], s.args[0])
			break
		}
	}
	for i, s := range p.list {
		for k, arg := range s.args {
			if _, ok := arg.([]pgtype.TID); ok {
				s.args[k] = p.places(s)
			}
		}
		node := p.explain(i, "analyze, buffers, timing off, format json")
		if pages := node.Hit + node.Read; pages > plansPages*plansBatch {
			p.t.Errorf("%s\nlooks at %d pages for %d rows", s.text, pages, plansBatch)
		}
		for _, bad := range node.bad() {
			p.t.Errorf("%s\n%s", s.text, bad)
		}
	}
	p.mustExec("rollback")
}

func (p *planner) mustExec(text string, args ...any) {
	p.t.Helper()
	if _, err := p.conn.Exec(p.t.Context(), text, args...); err != nil {
		p.t.Fatal(err)
	}
}

// places is where the rows of updateUsage stand now.
func (p *planner) places(s sent) (places []pgtype.TID) {
	p.t.Helper()
	err := p.conn.QueryRow(p.t.Context(), `
select array_agg(u.ctid order by w.n)
from unnest($1::text[], $2::text[], $3::bigint[], $4::text[]) with ordinality as w (budget, instance, period, class, n)
join tranche.usage as u on u.budget = w.budget and u.instance = w.instance and u.period = w.period and u.class = w.class`,
		s.args[6:10]...).Scan(&places)
	if err != nil {
		p.t.Fatal(err)
	}
	return places
}

// explained is a node of a plan.
type explained struct {
	Type      string      `json:"Node Type"`
	Relation  string      `json:"Relation Name"`
	Index     string      `json:"Index Name"`
	Condition string      `json:"Index Cond"`
	Hit       int         `json:"Shared Hit Blocks"`
	Read      int         `json:"Shared Read Blocks"`
	Plans     []explained `json:"Plans"`
}

// bad lists how the node and those below it read a table that grows, but for look-ups by its key, by the change number, or by place.
func (e explained) bad() (out []string) {
	if slices.Contains(plannedTables, e.Relation) && e.Type != "ModifyTable" && e.Type != "Tid Scan" &&
		(e.Index != e.Relation+"_pk" && e.Index != e.Relation+"_change" || e.Condition == "") {
		out = append(out, fmt.Sprintf("reads %s by %s, index %q, condition %q", e.Relation, e.Type, e.Index, e.Condition))
	}
	for _, p := range e.Plans {
		out = append(out, p.bad()...)
	}
	return out
}

func (p *planner) explain(i int, options string) explained {
	p.t.Helper()
	holes := make([]string, len(p.list[i].args))
	for k := range holes {
		holes[k] = fmt.Sprint("$", k+1)
	}
	text := fmt.Sprintf("explain (%s) execute planned_%d", options, i)
	if len(holes) > 0 {
		text += "(" + strings.Join(holes, ", ") + ")"
	}
	var told []byte
	err := p.conn.QueryRow(p.t.Context(), text, append([]any{pgx.QueryExecModeSimpleProtocol}, p.list[i].args...)...).Scan(&told)
	if err != nil {
		p.t.Fatalf("%s: %v", p.list[i].text, err)
	}
	var plans []struct{ Plan explained }
	if err := json.Unmarshal(told, &plans); err != nil {
		p.t.Fatal(err)
	}
	return plans[0].Plan
}
