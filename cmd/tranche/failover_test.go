package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// unheardFor is how long a silent home is waited for where a writer of it may still be there: far longer than a failover
// that all of them have gone over to may take.
const unheardFor = 40 * time.Second

// freePort is one that nobody listens on now.
func freePort(t *testing.T) int {
	t.Helper()
	address, err := netip.ParseAddrPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	return int(address.Port())
}

// A region's nodes go over to the promoted server by themselves, and admit there long before the old home's silence alone
// would allow it: the same incarnation, with nothing lost or doubled.
func TestFailoverThatAllNodesGoOverTo(t *testing.T) {
	old, err := cluster.Start(t.Context(), cluster.Options{Dir: filepath.Join(clustertest.Dir(t), "old")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = old.Kill() })
	url, err := old.CreateDatabase(t.Context(), "tranche")
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	both := strings.Replace(url, fmt.Sprintf("127.0.0.1:%d", old.Port()), fmt.Sprintf("127.0.0.1:%d,127.0.0.1:%d", old.Port(), port), 1) + "&target_session_attrs=read-write"
	th := openStage(t, stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 1, Unreachable: unheardFor, Databases: map[string]string{"us-east": both},
	})
	th.declareAll()
	r := th.Regions["us-east"]
	life, err := incarnationOf(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")

	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	copied := filepath.Join(clustertest.Dir(t), "promoted")
	if err := stage.CopyTree(t.Context(), old.Dir(), copied); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := cluster.Start(t.Context(), cluster.Options{Dir: copied, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	promote(t, server)
	began := time.Now()
	l.progress(t, 1, "us-east")
	took := time.Since(began)
	t.Logf("promoted %v after the old server's end, admissions back %v after that", began.Sub(killed).Round(time.Millisecond), took.Round(time.Millisecond))
	if time.Since(killed) > unheardFor/2 {
		t.Errorf("admissions were back %v after the promotion", took)
	}
	l.progress(t, someMore, "us-east", "eu-west")
	stop()
	r.Database = server.URL("tranche")
	l.judge(t, map[string][]string{"big": charges["big"]})
	if now, err := incarnationOf(t.Context(), r.Database); err != nil || now != life {
		t.Errorf("us-east is %s, and was %s: %v", now, life, err)
	}
	th.answers(r.Nodes[1], "big", allocation.Allow)
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

func promote(t *testing.T, server *cluster.Cluster) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL("tranche"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var done bool
	if err := conn.QueryRow(t.Context(), "select pg_promote()").Scan(&done); err != nil || !done {
		t.Fatal(done, err)
	}
}
