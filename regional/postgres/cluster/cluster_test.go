//go:build unix

package cluster_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// ask runs one statement that returns one value.
func ask[T any](t *testing.T, url, sql string, args ...any) T {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var value T
	if err := conn.QueryRow(t.Context(), sql, args...).Scan(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

// writeRow commits a number in a table that it makes.
func writeRow(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if _, err := conn.Exec(t.Context(), "create table kept as select 42 as n"); err != nil {
		t.Fatal(err)
	}
}

// If this failed, a crash of Postgres in a test or in the demo could not be told
// from a loss of commits.
func TestKillAndStartAgainKeepsCommits(t *testing.T) {
	t.Parallel()
	c := clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), `odd "name"`)
	if err != nil {
		t.Fatal(err)
	}
	writeRow(t, url)
	again, err := c.CreateDatabase(t.Context(), `odd "name"`)
	if err != nil || again != url {
		t.Fatalf("the same database again: %v", err)
	}
	before := c.PID()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if c.PID() != 0 {
		t.Fatalf("process %d after Kill", c.PID())
	}
	if err := c.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.PID() == before {
		t.Error("the same process")
	}
	if got := ask[int](t, url, "select n from kept"); got != 42 {
		t.Errorf("got %d", got)
	}
	if err := c.StartAgain(t.Context()); err == nil {
		t.Error("started twice")
	}
}

// If this failed, two owners would seem to live in one home, and a share could
// be spent twice.
func TestClustersHaveIdentifiersOfTheirOwn(t *testing.T) {
	t.Parallel()
	const identifier = "select system_identifier from pg_control_system()"
	one, two := clustertest.Own(t, cluster.Options{}), clustertest.Own(t, cluster.Options{})
	first, second := ask[int64](t, one.URL("postgres"), identifier), ask[int64](t, two.URL("postgres"), identifier)
	if first == second {
		t.Errorf("both are %d", first)
	}
	if err := one.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again := ask[int64](t, one.URL("postgres"), identifier); again != first {
		t.Errorf("was %d, is %d after a restart", first, again)
	}
}

// If this failed, `tranche node --dev` would lose its data or its password when
// it is started again.
func TestDirIsUsedAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(clustertest.Dir(t), "with a space")
	first := clustertest.Own(t, cluster.Options{Dir: dir})
	writeRow(t, first.URL("postgres"))
	if _, err := cluster.Start(t.Context(), cluster.Options{Dir: dir, Port: first.Port()}); err == nil {
		t.Fatal("a second postmaster on one directory")
	}
	if err := first.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("password: %v, %v", info, err)
	}
	second := clustertest.Own(t, cluster.Options{Dir: dir, Port: first.Port(), Settings: map[string]string{"work_mem": "5MB"}})
	if got := ask[int](t, second.URL("postgres"), "select n from kept"); got != 42 {
		t.Errorf("got %d", got)
	}
	for setting, want := range map[string]string{
		"work_mem": "5MB", "fsync": "on", "synchronous_commit": "on", "max_connections": "100",
		"listen_addresses": "127.0.0.1", "shared_buffers": "128MB", "password_encryption": "scram-sha-256",
	} {
		if got := ask[string](t, second.URL("postgres"), "select current_setting($1)", setting); got != want {
			t.Errorf("%s is %q, want %q", setting, got, want)
		}
	}
}

// If this failed, anybody on the machine could change what an owner has spent.
func TestAskForPassword(t *testing.T) {
	t.Parallel()
	c := clustertest.Own(t, cluster.Options{})
	config, err := pgx.ParseConfig(c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	config.Password = "wrong"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		conn.Close(t.Context())
		t.Fatal("a wrong password was taken")
	}
}

// If this failed, a fault test could not make an owner that hangs.
func TestPauseHangsAndResumeGoesOn(t *testing.T) {
	t.Parallel()
	c := clustertest.Own(t, cluster.Options{})
	conn, err := pgx.Connect(t.Context(), c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	answer := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "select 1")
		answer <- err
	}()
	select {
	case err := <-answer:
		t.Fatalf("a paused cluster answered: %v", err)
	case <-time.After(100 * time.Millisecond): // proves an absence: no signal can
	}
	if err := c.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-answer; err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatalf("stop a paused cluster: %v", err)
	}
}

// If this failed, somebody whose Postgres does not start would have to search
// for its log.
func TestErrorsCarryTheLog(t *testing.T) {
	t.Parallel()
	_, err := cluster.Start(t.Context(), cluster.Options{Settings: map[string]string{"shared_buffers": "much"}})
	if err == nil || !strings.Contains(err.Error(), `invalid value for parameter "shared_buffers"`) {
		t.Errorf("got %v", err)
	}
}

// If this failed, a caller that gives up would wait for initdb, or leave it.
func TestStartEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir := clustertest.Dir(t)
	if _, err := cluster.Start(ctx, cluster.Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	clustertest.Own(t, cluster.Options{Dir: dir}) // what was left half made is no obstacle
}
