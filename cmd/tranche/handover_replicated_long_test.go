//go:build long

package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// stoppedFor bounds how long nothing is admitted in the region, on a machine that does much else. The copy is there before.
const stoppedFor = 20 * time.Second

// execute runs SQL as the person who moves the database does.
func execute(t *testing.T, url string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, s := range statements {
		if _, err := conn.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// number reads one number.
func number(t *testing.T, url, query string) (n int64) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

// replicated is a region that is about to be moved to a server which logical replication feeds, as recovery.md says.
func replicated(t *testing.T) *mover {
	t.Helper()
	own := func(name string) string {
		server, err := cluster.Start(t.Context(), cluster.Options{Dir: filepath.Join(clustertest.Dir(t), name), Settings: map[string]string{"wal_level": "logical"}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Kill() })
		url, err := server.CreateDatabase(t.Context(), "tranche")
		if err != nil {
			t.Fatal(err)
		}
		return url
	}
	old := own("old")
	th := openStage(t, stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 1, Unreachable: 3 * time.Second, Databases: map[string]string{"us-east": old},
	})
	return &mover{th, old, own("new")}
}

// feed begins the replication, and waits for the first copy.
func (m *mover) feed() {
	m.t.Helper()
	execute(m.t, m.old, "alter table tranche.late_changes replica identity full", "create publication tranche_move for tables in schema tranche")
	schema := filepath.Join(m.t.TempDir(), "schema")
	if err := (&stage.Region{Database: m.old}).Schema(m.t.Context(), schema, m.new); err != nil {
		m.t.Fatal(err)
	}
	execute(m.t, m.new, fmt.Sprintf("create subscription tranche_move connection '%s' publication tranche_move", m.old))
	m.until("the new database has a first copy", m.new, "select (count(*) = 0)::int from pg_subscription_rel where srsubstate <> 'r'")
}

// until waits until a query answers 1.
func (m *mover) until(what, url, query string) {
	m.t.Helper()
	err := stage.Until(m.t.Context(), progressWait, what, func() (bool, error) { return number(m.t, url, query) == 1, nil })
	if err != nil {
		m.t.Fatal(err)
	}
}

// A new server is fed while the region admits; the owner stops for seconds only, and goes on there: nothing that a client saw is
// lost or doubled, and what the new one writes from then on finds a place.
func TestHandoverOverLogicalReplication(t *testing.T) {
	m := replicated(t)
	m.declareAll()
	life, err := incarnationOf(t.Context(), m.old)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, m.Stage, "big", "small")
	l.progress(t, someMore, "us-east", "eu-west")
	m.feed()
	l.progress(t, someMore, "us-east", "eu-west")

	began := time.Now()
	m.says(m.run(0, append(forReal, "--to-url", m.new, "--wait", "30s")...), "moved", "is the home")
	moved := time.Since(began)
	r := m.Regions["us-east"]
	r.Move(m.new)
	execute(t, m.new, "drop subscription tranche_move")
	for _, n := range r.Nodes {
		n.Kill()
		m.start(n)
	}
	l.progress(t, 1, "us-east")
	back := time.Since(began)
	t.Logf("the command took %v; admissions were back after %v, with the start of two nodes", moved.Round(time.Millisecond), back.Round(time.Millisecond))
	if back > stoppedFor {
		t.Errorf("nothing was admitted for %v", back)
	}
	kept := number(t, m.new, "select count(*) from tranche.refusals")
	l.progress(t, someMore, "us-east", "eu-west")
	m.until("the new database keeps refusals", m.new, fmt.Sprintf("select (count(*) > %d)::int from tranche.refusals", kept))
	if n := number(t, m.new, "select nextval(pg_get_serial_sequence('tranche.migrations', 'id')) - max(id) from tranche.migrations"); n < 1 {
		t.Errorf("the next migration would be entered %d below the last one", -n)
	}
	stop()
	l.judge(t, charges)
	if now, err := incarnationOf(t.Context(), m.new); err != nil || now != life {
		t.Errorf("us-east is %s, and was %s: %v", now, life, err)
	}
	m.small()
	m.account()
	if err := m.Failure(); err != nil {
		t.Error(err)
	}
}

// The last that the old database commits says that it was handed over. It may arrive when the new one goes on already, and
// would take the owner's row back: the new owner must not go on before.
func TestHandoverAwaitsTheLastOfAReplication(t *testing.T) {
	m := replicated(t)
	m.declare(fixed("ops/a", 10, "a", allocation.Window{Calendar: "year"}))
	m.feed()
	m.run(0, forReal...)
	m.until("the new database is stopped, too", m.new, "select (handover <> '')::int from tranche.owner")
	sender := int(number(t, m.old, "select pid from pg_stat_replication where application_name = 'tranche_move'"))
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(sender, syscall.SIGCONT) }()
	type end struct {
		status  int
		printed string
	}
	ended := make(chan end, 1)
	go func() {
		status, printed := inProcess(append([]string{
			"regions", "handover", "us-east", "--from-url", m.old, "--to-url", m.new, "--coordinator", m.Coordinators[0].Address, "--token", m.AdminToken,
		}, forReal...)...)
		ended <- end{status, printed}
	}()
	m.until("the old database is handed over", m.old, "select (handover_homes::text like '%to%')::int from tranche.owner")
	admin, err := m.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	err = stage.Until(t.Context(), progressWait, "the coordinator has recorded the new home", func() (bool, error) {
		var list coordinator.RegionsList
		_, err := admin.Do(t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/regions"}, &list)
		moved := slices.ContainsFunc(list.Regions, func(r coordinator.RegionAnswer) bool { return r.Region == "us-east" && r.Handover == nil })
		return moved, err
	})
	if err != nil {
		t.Fatal(err)
	}
	wait := time.NewTimer(time.Second)
	defer wait.Stop()
	select {
	case e := <-ended:
		t.Fatalf("the command did not wait: %d, %s", e.status, e.printed)
	case <-wait.C:
	}
	if err := syscall.Kill(sender, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if e := <-ended; e.status != 0 {
		t.Fatalf("%d: %s", e.status, e.printed)
	}
	m.until("all has arrived", m.old, "select (pg_current_wal_lsn() <= replay_lsn)::int from pg_stat_replication where application_name = 'tranche_move'")
	if number(t, m.new, "select (handover = '')::int from tranche.owner") != 1 {
		t.Error("the new owner is stopped again")
	}
}
