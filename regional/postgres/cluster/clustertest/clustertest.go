//go:build unix

// Package clustertest gives tests a real Postgres: one cluster per test binary,
// started by the first test that asks, and a fresh database for each test.
//
//	func TestMain(m *testing.M) { clustertest.Main(m) }
//
//	func TestOwner(t *testing.T) {
//		pool, err := pgxpool.New(t.Context(), clustertest.Database(t))
//		…
//	}
//
// A machine without Postgres fails the test and says what to install; it is
// never skipped.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/regional/postgres/cluster"
)

// patience bounds a start, a stop and a database's creation.
const patience = 60 * time.Second

var shared struct {
	inMain atomic.Bool
	once   sync.Once
	now    *cluster.Cluster
	err    error
	serial atomic.Int64 // names the next database
}

// Main runs the tests, stops the shared cluster if one was started, and exits.
// Call it as the last thing of TestMain.
func Main(m *testing.M) {
	shared.inMain.Store(true)
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func stop() error {
	if shared.now == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return shared.now.Stop(ctx)
}

// Shared is the test binary's one cluster. Do not stop, kill or pause it: other
// tests use it. Those that must, take Own.
func Shared(t testing.TB) *cluster.Cluster {
	t.Helper()
	if !shared.inMain.Load() {
		t.Fatal("clustertest: nobody would stop the cluster; add func TestMain(m *testing.M) { clustertest.Main(m) }")
	}
	shared.once.Do(func() {
		// Not the test's context: the cluster outlives the test that is first.
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		shared.now, shared.err = cluster.Start(ctx, cluster.Options{
			Settings: map[string]string{"max_connections": "200"}, // parallel tests, each with a pool
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.now
}

// Database is the URL of a new, empty database in the shared cluster. It is
// dropped when the test ends, with whoever is still connected.
func Database(t testing.TB) string {
	t.Helper()
	c := Shared(t)
	name := fmt.Sprintf("test_%d", shared.serial.Add(1))
	url, err := c.CreateDatabase(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(c, name); err != nil {
			t.Error(err)
		}
	})
	return url
}

func drop(c *cluster.Cluster, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.URL("postgres"))
	if err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "drop database "+pgx.Identifier{name}.Sanitize()+" with (force)"); err != nil {
		return fmt.Errorf("drop database %s: %w", name, err)
	}
	return nil
}

// Own starts a cluster for this test alone, to be killed, paused or restarted.
// It is stopped when the test ends.
func Own(t testing.TB, options cluster.Options) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Dir is a folder that Postgres can reach also when the tests run as root, which
// t.TempDir is not. It is removed when the test ends.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tranche-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // open to the user that Postgres runs as
	}
	if err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(dir)))
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}
