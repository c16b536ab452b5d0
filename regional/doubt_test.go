//go:build unix

package regional_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// aside runs SQL on a connection of the test's own, which waits for no replica.
func aside(t *testing.T, url string, statements ...string) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	for _, s := range append([]string{"set synchronous_commit = local"}, statements...) {
		if _, err := c.Exec(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// waitForReplica says whether a commit, such as the one that an idle node makes each second, waits for a synchronous replica.
func waitForReplica(t *testing.T, url string) (waits bool) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.WithoutCancel(t.Context()))
	if err := c.QueryRow(t.Context(), "select exists (select from pg_stat_activity where wait_event = 'SyncRep')").Scan(&waits); err != nil {
		t.Fatal(err)
	}
	return waits
}

// Without this a caller whose commit waits for a replica would hear at its next try that nothing was charged, and at a
// look-up that its id is not known, although it is charged as soon as the replica is back.
func TestInDoubtStaysUnknown(t *testing.T) {
	h, c := newHub("eu"), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	aside(t, url, "alter system set synchronous_standby_names = 'nobody'", "select pg_reload_conf()")
	eventually(t, "commits wait for the replica", func() bool { return waitForReplica(t, url) }) // a reload takes its time
	r := request(allocation.Spend, "in-doubt", acme, nil)
	try := func() allocation.Decision {
		return n.Decide(context.Background(), []allocation.Request{r}, time.Now().Add(400*time.Millisecond))[0]
	}
	eventually(t, "a commit waits for the replica", func() bool { return try().Reason == allocation.OutcomeUnknown })
	for range 5 {
		if d := try(); d.Reason != allocation.OutcomeUnknown {
			t.Errorf("asked again: %s; want outcome_unknown", d.Reason)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if d, found, err := n.Find(ctx, r.Key); err == nil && (!found || d.Reason != allocation.OutcomeUnknown) {
		t.Errorf("looked up: found %v, %s; want outcome_unknown", found, d.Reason)
	}
	aside(t, url, "alter system reset synchronous_standby_names", "select pg_reload_conf()")
	eventually(t, "the same id gets the truth", func() bool { d := try(); return d.Admitted() && d.Replayed })
	if s, _ := spent(t, n, "acme/requests"); s != 1 {
		t.Errorf("spent %d; want 1", s)
	}
}

// Without this a database that would lose commits in a crash would admit, or look healthy while it admits nothing.
func TestUnsafeSettingsAreSeen(t *testing.T) {
	h, c := newHub("eu"), clustertest.Own(t, cluster.Options{})
	url, err := c.CreateDatabase(t.Context(), "owner")
	if err != nil {
		t.Fatal(err)
	}
	h.declare(t, fmt.Sprintf(shared, 100), forEver())
	n := node(t, h, "eu", "n1", url)
	ready(t, n, 1)
	aside(t, url, "alter system set fsync = off", "select pg_reload_conf()")
	eventually(t, "admissions stop, and the node says so", func() bool {
		s := n.Status()
		return decide(n, request(allocation.Spend, "unsafe", acme, nil)).Reason == allocation.UnsafeSettings &&
			!s.Ready && s.Stopped == allocation.UnsafeSettings
	})
	aside(t, url, "alter system reset fsync", "select pg_reload_conf()")
	eventually(t, "the node admits again by itself", func() bool {
		return decide(n, request(allocation.Spend, "safe", acme, nil)).Admitted() && n.Status().Ready
	})
}
