//go:build unix

package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// replica lets commits wait for a synchronous replica that is not there.
type replica struct {
	o    *owner
	look *pgx.Conn
}

const syncWait = "from pg_stat_activity where wait_event = 'SyncRep'"

// await makes commits wait for the named standby; none if it is empty.
func (r replica) await(name string) {
	r.o.t.Helper()
	for _, sql := range []string{"alter system set synchronous_standby_names = '" + name + "'", "select pg_reload_conf()"} {
		if _, err := r.look.Exec(r.o.t.Context(), sql); err != nil {
			r.o.t.Fatal(err)
		}
	}
	waitFor(r.o.t, "the reload", func() bool {
		var now string
		return r.look.QueryRow(r.o.t.Context(), "show synchronous_standby_names").Scan(&now) == nil && now == name
	})
}

// waiting is how many commits wait.
func (r replica) waiting() (n int) {
	if err := r.look.QueryRow(r.o.t.Context(), "select count(*) "+syncWait).Scan(&n); err != nil {
		r.o.t.Error(err)
	}
	return n
}

// chargeThatWaits spends in the background, until one commit waits. The checkpointer tells the other processes of the
// setting, when it comes to it: until then commits do not wait.
func (r replica) chargeThatWaits(ctx context.Context) (name string, done chan error) {
	done = make(chan error, 1)
	for try := 0; r.waiting() == 0; try++ {
		name = fmt.Sprint("waits-", try)
		go func() {
			_, err := r.o.charge(ctx, r.o.store, r.o.w, allocation.Spend, name, r.o.key("a", 10))
			done <- err
		}()
		waitFor(r.o.t, "the commit to wait for the replica, or to end", func() bool { return r.waiting() == 1 || len(done) == 1 })
		if len(done) == 1 && r.waiting() == 0 {
			if err := <-done; err != nil {
				r.o.t.Fatal(err)
			}
		}
	}
	return name, done
}

// If this failed a commit that no replica has would be told as certain (a cancelled wait ends in a warning only).
func TestACancelledWaitForAReplicaIsUnknown(t *testing.T) {
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	o.give("a", 1000)
	o.mustSpend("first", o.key("a", 10))
	r := replica{o: o, look: o.conn()}
	o.exec("do $$ begin execute format('alter database %I set client_min_messages = error', current_database()); end $$")
	o.store.pool.Reset()
	r.await("nobody")
	ctx, leave := context.WithCancel(t.Context())
	name, done := r.chargeThatWaits(ctx)
	// A caller that leaves does not cancel the wait: the row stays invisible.
	leave()
	mustBe(t, <-done, regional.ErrUnknownOutcome)
	if o.idCount(name) != 0 || r.waiting() != 1 {
		t.Fatal("the wait was cancelled when the caller left")
	}
	other := o.w.(*writer)
	resolved := make(chan error, 1)
	go func() {
		_, err := other.Resolve(context.WithoutCancel(t.Context()))
		resolved <- err
	}()
	if _, err := r.look.Exec(t.Context(), "select pg_cancel_backend(pid) "+syncWait); err != nil {
		t.Fatal(err)
	}
	// Now it is visible, but not certain. Resolve says so only after a commit of its own, which waits for the replica too.
	waitFor(t, "the commit of Resolve to wait", func() bool { return o.idCount(name) == 1 && r.waiting() == 1 })
	select {
	case err := <-resolved:
		t.Fatalf("resolved before any replica had it: %v", err)
	default:
	}
	r.await("")
	if err := <-resolved; err != nil {
		t.Fatal(err)
	}
	if !other.committed {
		t.Fatal("resolved as not committed")
	}
	o.mustSpend("after", o.key("a", 10))
}

// If this failed pgx would end the wait for a replica when our side gives the connection up: it sends a cancel request then.
func TestGivingAConnectionUpCancelsNothing(t *testing.T) {
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	hasty := open(t, o.url)
	w := o.writer(hasty)
	if ok, err := o.spend(hasty, w, "warm", o.key("a", 10)); !ok || err != nil {
		t.Fatal(ok, err)
	}
	b, err := o.begin(hasty, w, []string{"waits"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "waits", []allocation.UsageKey{o.key("a", 10)})
	lock, err := o.conn().Begin(t.Context()) // the commit's pipeline waits for the writer's row
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), "select from tranche.writers for update"); err != nil {
		t.Fatal(err)
	}
	hasty.cfg.CommitPatience = 100 * time.Millisecond
	mustBe(t, b.Commit(t.Context(), writes), regional.ErrUnknownOutcome)
	hasty.cfg.CommitPatience = patient
	look := o.conn()
	for range 50 { // a request would arrive within one or two of these round trips
		if o.waiters(look) != 1 {
			t.Fatal("the commit was cancelled")
		}
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	committed, err := w.Resolve(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Resolve may get the row before the commit that waited for it, which then finds another mark and fails. What it says
	// must be what happened.
	if n := o.number("select count(*) from tranche.admission_ids_0 where id = 'waits'"); (n == 1) != committed {
		t.Fatalf("resolved as committed: %v; %d rows", committed, n)
	}
}
