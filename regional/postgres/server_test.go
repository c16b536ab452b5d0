//go:build unix

package postgres

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// If this failed nodes that start together would break each other's migrations.
func TestFourNodesMigrateAtOnce(t *testing.T) {
	url := clustertest.Database(t)
	var nodes sync.WaitGroup
	stores := make([]*Store, 4)
	for i := range stores {
		nodes.Go(func() {
			var err error
			if stores[i], err = Open(t.Context(), Config{URL: url, Region: region, MaxConns: 2}); err != nil {
				t.Error(err)
			}
		})
	}
	nodes.Wait()
	for _, s := range stores {
		if s != nil {
			defer s.Shut()
		}
	}
	o := ownerAt(t, url)
	if n := o.number("select count(*) from tranche.migrations where version_id > 0"); n != 10 {
		t.Fatalf("%d migrations were applied", n)
	}
	if n := o.number("select count(*) from tranche.shards"); n != allocation.Shards {
		t.Fatalf("%d shards", n)
	}
}

// If this failed a node would read tables that it does not understand, or another region's.
func TestAForeignOwnerIsNotReady(t *testing.T) {
	o := newOwner(t)
	_, err := Open(t.Context(), Config{URL: o.url, Region: "us"})
	mustBe(t, err, regional.ErrNotReady)
	o.exec("update tranche.owner set format = 99")
	_, err = Open(t.Context(), Config{URL: o.url, Region: region})
	mustBe(t, err, regional.ErrNotReady)
	_, err = o.begin(o.store, o.w, nil) // also under a running node
	mustBe(t, err, regional.ErrNotReady)
	o.exec("delete from tranche.owner")
	_, err = o.begin(o.store, o.w, nil)
	mustBe(t, err, regional.ErrNotReady)
	o.exec("drop schema tranche cascade")
	o.store.pool.Reset()
	_, err = o.store.Load(t.Context(), 0)
	mustBe(t, err, regional.ErrNotReady)
}

// If this failed a node would find out under load that its connections are not there.
func TestAPoolThatDoesNotFitIsRefused(t *testing.T) {
	_, err := Open(t.Context(), Config{URL: clustertest.Database(t), Region: region, MaxConns: 198})
	if err == nil || !strings.Contains(err.Error(), "198") || !strings.Contains(err.Error(), "max_connections is 200, of which 3 ") {
		t.Fatalf("got %v", err)
	}
}

// If this failed the owner's database would need a superuser.
func TestAnOrdinaryRoleIsEnough(t *testing.T) {
	o := &owner{t: t, url: clustertest.Database(t)}
	role := "role_" + o.name()
	o.exec("create role " + role + " login password 'secret'")
	o.exec("grant create on database " + o.name() + " to " + role)
	defer func() {
		o.exec("drop owned by " + role)
		o.exec("drop role " + role)
	}()
	u, err := url.Parse(o.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	s, err := Open(t.Context(), Config{URL: u.String(), Region: region, LockTimeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Shut()
	w := o.writer(s)
	if err := s.Apply(t.Context(), w, allocation.SyncAnswer{Incarnation: "life-1"}, 1); err != nil {
		t.Fatal(err)
	}
	if call, err := s.Statements(t.Context(), w, nil); err != nil || call.Home.System == "" {
		t.Fatal(call, err)
	}
	if _, err := s.Tidy(t.Context(), w, allocation.Hour, forever); err != nil {
		t.Fatal(err)
	}
}

// If this failed the settings of a role or database could break a batch, or hide the warning of a cancelled commit.
func TestNothingRestsOnSessionSettings(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	c := o.conn() // settings of a database count for later sessions
	for setting, value := range map[string]string{
		"search_path": "nowhere", "client_min_messages": "error", "default_transaction_isolation": "serializable",
		"default_transaction_read_only": "on", "statement_timeout": "1s", "lock_timeout": "1", "plan_cache_mode": "force_generic_plan",
		"extra_float_digits": "0", "timezone": "Asia/Tokyo", "datestyle": "SQL, DMY",
	} {
		sql := fmt.Sprintf("do $$ begin execute format('alter database %%I set %s = %%L', current_database(), '%s'); end $$", setting, value)
		if _, err := c.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	o.store.pool.Reset()
	o.mustSpend("first", o.key("a", 10))
	b := &pgx.Batch{}
	o.store.queueBegin(b, switchShared)
	tx, err := o.store.start(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.abandon()
	for setting, want := range map[string]string{
		"statement_timeout": "0", "client_min_messages": "notice", "lock_timeout": "20s",
		"idle_in_transaction_session_timeout": "20s", "transaction_isolation": "read committed", "transaction_read_only": "off",
	} {
		var got string
		if err := tx.conn.QueryRow(t.Context(), "select current_setting($1)", setting).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s within a transaction, %v", setting, got, err)
		}
	}
	if _, err := o.store.Load(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := o.store.Statements(t.Context(), o.w, nil); err != nil {
		t.Fatal(err)
	}
}

// If this failed the store could not be used behind a transaction pooler without prepared statements.
func TestNoPreparedStatementsAreNeeded(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	s := open(t, withParam(o.url, "default_query_exec_mode=exec"))
	w := o.writer(s)
	for i := range 3 {
		if ok, err := o.spend(s, w, fmt.Sprint("id-", i), o.key("a", 10)); !ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	if err := s.Apply(t.Context(), w, allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{o.grant("b", 1, 5, 5)}}, 2); err != nil {
		t.Fatal(err)
	}
	if call, err := s.Statements(t.Context(), w, nil); err != nil || len(call.Statements) != 2 {
		t.Fatal(call, err)
	}
	if account, err := s.Export(t.Context(), "", 10); err != nil || len(account.Shares) != 2 {
		t.Fatal(account, err)
	}
}

// If this failed a node would admit on commits that a crash undoes.
func TestUnsafeSettingsAreSeenInTheNextBatch(t *testing.T) {
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	o := ownerAt(t, url)
	look := o.conn()
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		for _, value := range []string{"off", "on"} {
			if _, err := look.Exec(t.Context(), "alter system set "+setting+" = "+value); err != nil {
				t.Fatal(err)
			}
			if _, err := look.Exec(t.Context(), "select pg_reload_conf()"); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"off": setting + "=off", "on": ""}[value]
			waitFor(t, "the reload of "+setting, func() bool {
				b, err := o.begin(o.store, o.w, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer b.Abandon()
				return b.Seen().Unsafe == want
			})
		}
	}
}

// If this failed a commit that the server rolled back would be taken for one.
func TestTheTagOfACommitIsRead(t *testing.T) {
	o := newOwner(t)
	b := &pgx.Batch{}
	o.store.queueBegin(b, switchFree)
	tx, err := o.store.start(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.conn.Exec(t.Context(), "select 1/0"); err == nil {
		t.Fatal("no error")
	}
	f, err := tx.commit(&pgx.Batch{})
	if f != fateUncommitted || err == nil || !strings.Contains(err.Error(), "ROLLBACK") {
		t.Fatalf("fate %v, %v", f, err)
	}
}

// If this failed a process that stands still between its round trips would hold up all others for as long.
func TestAStandstillBetweenRoundTripsIsBounded(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	short, err := Open(t.Context(), Config{URL: o.url, Region: region, LockTimeout: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Shut()
	w := o.writer(short)
	b, err := o.begin(short, w, []string{"stands"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	// Waits as long as it may: until the server ends the one that stands, or gives up itself.
	if next, err := o.begin(short, o.writer(short), nil, o.key("a", 10)); err == nil {
		next.Abandon()
	} else {
		mustBe(t, err, regional.ErrRaced)
	}
	o.mustSpend("second", o.key("a", 10))
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "stands", []allocation.UsageKey{o.key("a", 10)})
	if err := b.Commit(t.Context(), writes); err == nil {
		t.Fatal("a transaction that was ended by the server was committed")
	} else if isAny(err, regional.ErrUnknownOutcome) {
		if committed, err := w.Resolve(t.Context()); err != nil || committed {
			t.Fatal(committed, err)
		}
	}
	if o.idCount("stands") != 0 {
		t.Fatal("something was written")
	}
	if ok, err := o.spend(short, w, "third", o.key("a", 10)); !ok || err != nil {
		t.Fatal(ok, err)
	}
}
