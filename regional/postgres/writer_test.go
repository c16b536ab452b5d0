//go:build unix

package postgres

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// If this failed a database that was restored behind a node's back would sell its permits twice.
func TestAnotherMarkIsLostHistory(t *testing.T) {
	for name, sql := range map[string]string{
		"an older mark":                  "update tranche.writers set count = count - 1, value = 'older'",
		"the same count, another value":  "update tranche.writers set value = 'other'",
		"a higher count, whatever it is": "update tranche.writers set count = count + 7, value = 'newer'",
		"no row":                         "delete from tranche.writers",
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t)
			o.give("a", 10)
			o.mustSpend("first", o.key("a", 10))
			o.exec(sql)
			_, err := o.spend(o.store, o.w, "second", o.key("a", 10))
			mustBe(t, err, regional.ErrHistoryLost)
			if o.usage(o.key("a", 10)).Spent != 1 || o.idCount("second") != 0 {
				t.Fatal("something was written")
			}
			_, err = o.spend(o.store, o.w, "third", o.key("a", 10))
			mustBe(t, err, regional.ErrHistoryLost)
			_, err = o.store.Statements(t.Context(), o.w, nil)
			mustBe(t, err, regional.ErrHistoryLost)
		})
	}
}

// If this failed a clone that was put in the place of the database, with the same identity, would be taken for it.
func TestAnOlderCloneInPlaceOfTheDatabaseIsLostHistory(t *testing.T) {
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	admin, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	exec := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	cut := func() {
		exec("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname in ('owner', 'clone') and pid <> pg_backend_pid()")
		o.store.pool.Reset()
	}
	cut()
	exec("create database clone template owner")
	o.mustSpend("second", o.key("a", 10))
	cut()
	exec("alter database owner rename to older")
	exec("alter database clone rename to owner")
	if _, err := o.store.Load(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	_, err = o.spend(o.store, o.w, "third", o.key("a", 10))
	mustBe(t, err, regional.ErrHistoryLost)
}

// If this failed a node could not tell an outcome that was lost, or would tell the wrong one.
func TestResolveTellsTheTruth(t *testing.T) {
	for name, cut := range map[string]func(*proxy){
		"the request is lost": func(p *proxy) { p.loseNextRequest.Store(true) },
		"the answer is lost":  func(p *proxy) { p.loseNextAnswer.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			o := newOwner(t)
			o.give("a", 10)
			o.mustSpend("first", o.key("a", 10))
			p := newProxy(t, o.url)
			far := open(t, p.url)
			w := o.writer(far)
			if ok, err := o.spend(far, w, "warm", o.key("a", 10)); !ok || err != nil {
				t.Fatal(ok, err)
			}
			b, err := o.begin(far, w, []string{"lost"}, o.key("a", 10))
			if err != nil {
				t.Fatal(err)
			}
			writes, _ := chargeAll(b.Seen(), allocation.Spend, "lost", []allocation.UsageKey{o.key("a", 10)})
			cut(p)
			mustBe(t, b.Commit(t.Context(), writes), regional.ErrUnknownOutcome)
			_, err = o.begin(far, w, nil, o.key("a", 10))
			mustBe(t, err, regional.ErrUnknownOutcome) // not before it is resolved
			if name == "the answer is lost" {          // or Resolve may be faster than the commit, and fence it off
				waitFor(t, "the commit", func() bool { return o.idCount("lost") == 1 })
			}
			committed, err := w.Resolve(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if there := o.idCount("lost") == 1; there != committed || there != (name == "the answer is lost") {
				t.Fatalf("resolved as committed %v, the id is there: %v", committed, there)
			}
			if ok, err := o.spend(far, w, "after", o.key("a", 10)); !ok || err != nil {
				t.Fatal(ok, err)
			}
		})
	}
}

// If this failed a transaction that was on its way for long could commit after its outcome was told as "not committed".
func TestResolveFencesATransactionThatComesLater(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	p := newProxy(t, o.url)
	far := open(t, p.url)
	w := o.writer(far)
	if ok, err := o.spend(far, w, "warm", o.key("a", 10)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b, err := o.begin(far, w, []string{"late"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "late", []allocation.UsageKey{o.key("a", 10)})
	release := p.holdRequests()
	defer release()
	far.cfg.CommitPatience = 100 * time.Millisecond
	mustBe(t, b.Commit(t.Context(), writes), regional.ErrUnknownOutcome)
	far.cfg.CommitPatience = patient
	committed, err := w.Resolve(t.Context()) // over a connection that is not held
	if err != nil || committed {
		t.Fatalf("resolved as %v, %v", committed, err)
	}
	look := o.conn()
	release()
	waitFor(t, "the late transaction to end", func() bool {
		var n int
		err := look.QueryRow(t.Context(), "select count(*) from pg_stat_activity where state like 'idle in transaction%' and datname = current_database()").Scan(&n)
		return err == nil && n == 0
	})
	if o.idCount("late") != 0 || o.usage(o.key("a", 10)).Spent != 2 {
		t.Fatal("the late transaction was committed")
	}
	if ok, err := o.spend(far, w, "after", o.key("a", 10)); !ok || err != nil {
		t.Fatal(ok, err)
	}
}

// If this failed a caller who stops waiting would cancel a commit, or learn nothing of it.
func TestACallerThatLeavesDoesNotCancelTheCommit(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	b, err := o.begin(o.store, o.w, []string{"slow"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "slow", []allocation.UsageKey{o.key("a", 10)})
	lock := o.conn() // makes the commit's pipeline wait for the writer's row
	tx, err := lock.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tranche.writers for update"); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	go func() { outcome <- b.Commit(ctx, writes) }()
	look := o.conn()
	waitFor(t, "the commit to wait", func() bool { return o.waiters(look) == 1 })
	leave()
	mustBe(t, <-outcome, regional.ErrUnknownOutcome)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := o.w.Resolve(short); err == nil {
		t.Fatal("resolved while the transaction goes on")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed, err := o.w.Resolve(t.Context())
	if err != nil || !committed || o.idCount("slow") != 1 {
		t.Fatalf("resolved as %v, %v", committed, err)
	}
}

// If this failed a clean restart would forget what the process knew.
func TestAWriterIsResumedWithItsMark(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	mark := o.w.Mark()
	again := open(t, o.url)
	w := again.ResumeWriter(mark)
	_, err := w.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := o.spend(again, w, "second", o.key("a", 10)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	_, err = again.ResumeWriter(mark).Resolve(t.Context())
	mustBe(t, err, regional.ErrHistoryLost)
	_, err = o.spend(o.store, o.w, "third", o.key("a", 10)) // two processes cannot be one writer
	mustBe(t, err, regional.ErrHistoryLost)
}

// If this failed acknowledged commits would be lost, or unknown ones told wrong, when the server crashes under load.
func TestKillUnderLoad(t *testing.T) {
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	o.give("a", 1_000_000)
	o.mustSpend("first", o.key("a", 10))
	var acknowledged atomic.Int64
	for round := range 2 {
		var workers sync.WaitGroup
		for n := range 4 {
			w := o.writer(o.store)
			workers.Go(func() { o.spendUntilCut(w, fmt.Sprintf("r%d-w%d", round, n), &acknowledged) })
		}
		before := acknowledged.Load()
		waitFor(t, "some commits", func() bool { return acknowledged.Load() > before+50 })
		if err := c.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := c.StartAgain(t.Context()); err != nil {
			t.Fatal(err)
		}
		workers.Wait()
	}
	spent, ids := o.usage(o.key("a", 10)).Spent, o.number(`select count(*) from tranche.admission_ids_0`)
	if spent != ids || spent != acknowledged.Load()+1 {
		t.Fatalf("spent %d, ids %d, known to be committed %d", spent, ids, acknowledged.Load()+1)
	}
}

// spendUntilCut spends one after the other until the server goes away, and counts what is known to be committed.
func (o *owner) spendUntilCut(w regional.Writer, name string, acknowledged *atomic.Int64) {
	ctx := context.WithoutCancel(o.t.Context())
	for i := range 1_000_000 {
		ok, err := o.charge(ctx, o.store, w, allocation.Spend, fmt.Sprint(name, "-", i), o.key("a", 10))
		switch {
		case err == nil && ok:
			acknowledged.Add(1)
			continue
		case isAny(err, regional.ErrHistoryLost):
			o.t.Error(err)
		case isAny(err, regional.ErrUnknownOutcome):
			if o.resolvePatiently(ctx, w) {
				acknowledged.Add(1)
			}
		}
		return
	}
}

func (o *owner) resolvePatiently(ctx context.Context, w regional.Writer) (committed bool) {
	waitFor(o.t, "the outcome", func() bool {
		var err error
		committed, err = w.Resolve(ctx)
		if isAny(err, regional.ErrHistoryLost) {
			o.t.Error(err)
			return true
		}
		return err == nil
	})
	return committed
}
