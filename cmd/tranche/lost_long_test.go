//go:build long

package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/coordinator/etcd/embedded"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// The budget of these tests: two regions with the same share, and a part that is kept for one that starts with nothing.
const (
	lostLimit = 6000
	lostShare = 2700
	lostKept  = lostLimit - 2*lostShare
	moved     = 500 // from us-east to eu-west, in what etcd then loses
)

// lostTheatre is a deployment with one budget, and an etcd of one member, whose data can be taken back.
func lostTheatre(t *testing.T, databases map[string]string) *theatre {
	t.Helper()
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 2, EtcdMembers: 1, Unreachable: 3 * time.Second, Databases: databases,
	})
	t.Cleanup(func() {
		if t.Failed() {
			tellLogs(t, s.Dir)
			tellDatabase(t, s.Regions["us-east"].Database)
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	th := &theatre{s, t}
	th.declareLost()
	return th
}

// declareLost declares the budgets of these tests.
func (th *theatre) declareLost() {
	th.t.Helper()
	limit := int64(lostLimit)
	th.declare(allocation.Budget{
		Name: "lost/all", Unit: "requests", Limit: &limit, Window: allocation.Window{Calendar: "year"}, Match: map[string]string{"tenant": "big"},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"us-east": 1, "eu-west": 1}, KeepPercent: 10},
	})
	seconds := fixed("lost/seconds", 1_000_000, "big", allocation.Window{Every: 1})
	seconds.Allocation.KeepPercent = 10 // a region that starts with nothing gets it in all periods that are opened
	th.declare(seconds)
}

// decided waits until so many more were admitted or refused in the regions: they go on, whatever they have left.
func (l *load) decided(t *testing.T, more int, regions ...string) {
	t.Helper()
	count := func(name string) int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.admitted[name]) + len(l.refused[name])
	}
	for _, name := range regions {
		from := count(name)
		err := stage.Until(t.Context(), progressWait, fmt.Sprintf("%s has decided %d more", name, more), func() (bool, error) {
			return count(name) >= from+more, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// usedUp waits until a region refuses: it has spent what it holds.
func (l *load) usedUp(t *testing.T, regions ...string) {
	t.Helper()
	for _, name := range regions {
		err := stage.Until(t.Context(), progressWait, name+" has spent what it holds", func() (bool, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.refused[name]) > someMore, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// capped checks that no more was admitted than the limit, by what the clients saw.
func (l *load) capped(t *testing.T, limit int) {
	t.Helper()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	total := 0
	for region, ids := range l.admitted {
		total += len(ids)
		t.Logf("%s admitted %d", region, len(ids))
	}
	if total > limit {
		t.Errorf("%d were admitted of %d", total, limit)
	}
	for _, problem := range l.strange {
		t.Errorf("no truth: %s", problem)
	}
}

// another waits until the region is another incarnation.
func (th *theatre) another(region, before string) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, region+" starts anew", func() (bool, error) {
		now, err := incarnationOf(th.t.Context(), th.Regions[region].Database)
		return err == nil && now != "" && now != before, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// startsAnew does something that loses what a region's database held, and checks what must come of it: a new incarnation
// that gets what was kept and no more, while the former one's permits stay stranded.
func startsAnew(t *testing.T, th *theatre, remember, lose func(r *stage.Region)) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := th.Regions["us-east"]
	before := incarnation(t, r.Database)
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	remember(r)
	l.decided(t, someMore, "us-east", "eu-west")
	lose(r)
	th.another("us-east", before)
	l.usedUp(t, "us-east", "eu-west")
	stop()
	l.capped(t, lostLimit)
	l.mu.Lock()
	former := len(l.admitted["us-east"]) - lostKept
	l.mu.Unlock()
	if spent := readCharged(t.Context(), t, r.Database).spent["lost/all"]; spent != lostKept {
		t.Errorf("the new incarnation spent %d, and %d were kept", spent, lostKept)
	}
	stranded, err := th.stranded("lost/all")
	if err != nil {
		t.Fatal(err)
	}
	// What was spent and never stated is counted as stranded: the report is never too low.
	if got := stranded["us-east"]; got < int64(lostShare-former) || got > lostShare {
		t.Errorf("stranded are %v; the former incarnation held %d, of which clients saw %d", stranded, lostShare, former)
	}
	th.accountBut(1)
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// A logical backup that is restored under running nodes: system, database and timeline stay the same, and the log goes on.
func TestPgRestoreUnderLoad(t *testing.T) {
	th := lostTheatre(t, nil)
	dump := filepath.Join(t.TempDir(), "dump")
	startsAnew(t, th,
		func(r *stage.Region) { must(t, r.Dump(t.Context(), dump)) },
		func(r *stage.Region) { must(t, r.Restore(t.Context(), dump)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A copy of the files, put back over the database that went on.
func TestPhysicalRestoreUnderLoad(t *testing.T) {
	th := lostTheatre(t, nil)
	copied := filepath.Join(clustertest.Dir(t), "copy")
	startsAnew(t, th,
		func(r *stage.Region) {
			must(t, r.Postgres.Kill())
			must(t, stage.CopyTree(t.Context(), filepath.Join(r.Postgres.Dir(), "data"), copied))
			must(t, r.Postgres.StartAgain(t.Context()))
		},
		func(r *stage.Region) {
			must(t, r.Postgres.Kill())
			must(t, os.RemoveAll(filepath.Join(r.Postgres.Dir(), "data")))
			must(t, stage.CopyTree(t.Context(), copied, filepath.Join(r.Postgres.Dir(), "data")))
			must(t, r.Postgres.StartAgain(t.Context()))
		})
}

// bump makes a copy's revision higher than any that the lost history had.
func (th *theatre) bump(dir string) {
	th.t.Helper()
	server, err := embedded.Start(th.t.Context(), embedded.Options{Dir: dir, Name: "member-0"})
	if err != nil {
		th.t.Fatal(err)
	}
	defer server.Close()
	client, err := clientv3.New(clientv3.Config{Endpoints: server.Endpoints()})
	if err != nil {
		th.t.Fatal(err)
	}
	defer client.Close()
	for range 20_000 / 100 {
		operations := make([]clientv3.Op, 100)
		for i := range operations {
			operations[i] = clientv3.OpPut(fmt.Sprintf("bump/%d", i), "")
		}
		if _, err := client.Txn(th.t.Context()).Then(operations...).Commit(); err != nil {
			th.t.Fatal(err)
		}
	}
}

// rebalance moves permits between regions and waits until that is done.
func (th *theatre) rebalance(budget, from, to string, units int64) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, "permits are moved", func() (bool, error) {
		admin, err := th.Admin(0)
		if err != nil {
			return false, stage.Fatal{Err: err}
		}
		_, err = admin.Do(th.t.Context(), api.Call{
			Method: http.MethodPost, Path: "/v1/rebalances",
			Body: coordinator.RebalanceRequest{Budget: budget, From: from, To: to, Units: units},
		}, nil)
		return err == nil, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// shareIs waits until a region's nodes hold so many permits of a budget.
func (th *theatre) shareIs(budget, region string, want int64) {
	th.t.Helper()
	client, err := th.Gateway(stage.Edge1, th.Regions[region].Nodes[0])
	if err != nil {
		th.t.Fatal(err)
	}
	err = stage.Until(th.t.Context(), progressWait, fmt.Sprintf("%s holds %d of %s", region, want, budget), func() (bool, error) {
		d, err := api.Admit(th.t.Context(), client, api.Admission{Op: "check", Labels: map[string]string{"tenant": "big"}})
		for _, p := range d.Budgets {
			if p.Budget == budget && p.Share == want {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// An etcd that is restored from a snapshot, twice from the same one, under coordinators that run: in what it lost, permits
// had moved from one region to the other. The region that gave them says so last.
func TestEtcdRestoredUnderLoad(t *testing.T) {
	for name, restart := range map[string]bool{"coordinators run on": false, "coordinators start again": true} {
		for bumped, prepare := range map[string]func(*theatre) func(string){
			"":                        func(*theatre) func(string) { return nil },
			" with a bumped revision": func(th *theatre) func(string) { return th.bump },
		} {
			t.Run(name+bumped, func(t *testing.T) { etcdRestored(t, restart, prepare) })
		}
	}
}

func etcdRestored(t *testing.T, restart bool, prepare func(*theatre) func(string)) {
	th := lostTheatre(t, nil)
	kept := filepath.Join(t.TempDir(), "etcd")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	must(t, th.KeepEtcd(t.Context(), kept))
	th.rebalance("lost/all", "us-east", "eu-west", moved)
	th.shareIs("lost/all", "us-east", lostShare-moved)
	th.shareIs("lost/all", "eu-west", lostShare+moved)
	for round := range 2 {
		th.Regions["us-east"].Cut()
		must(t, th.TakeBackEtcd(t.Context(), kept, prepare(th)))
		if restart {
			for _, c := range th.Coordinators {
				c.Kill()
			}
			th.start(th.Coordinators...)
		}
		l.decided(t, someMore, "eu-west")
		th.Regions["us-east"].Heal()
		// Declaring opens terms, which needs every region to have stated what it holds.
		th.declare(fixed(fmt.Sprintf("lost/after-%d", round), 10, "after", allocation.Window{Calendar: "year"}))
	}
	l.usedUp(t, "us-east", "eu-west")
	stop()
	l.capped(t, lostLimit)
	l.judge(t, map[string][]string{"big": {"lost/all", "lost/seconds"}})
	th.account()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}

// stranded is what the report says of one budget in the running period, by region.
func (th *theatre) stranded(budget string) (map[string]int64, error) {
	admin, err := th.Admin(0)
	if err != nil {
		return nil, err
	}
	var report coordinator.StrandedReport
	_, err = admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded"}, &report)
	of := map[string]int64{}
	for _, l := range report.Lines {
		if l.Budget == budget {
			of[l.Region] += l.Stranded
		}
	}
	return of, err
}

func incarnation(t *testing.T, url string) string {
	t.Helper()
	name, err := incarnationOf(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// tellLogs shows the ends of what the nodes and coordinators logged.
func tellLogs(t *testing.T, dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, name := range logs {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		t.Logf("%s:\n%s", filepath.Base(name), text[max(0, len(text)-3000):])
	}
}

// tellDatabase shows what the leading Postgres does.
func tellDatabase(t *testing.T, url string) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Log(err)
		return
	}
	defer conn.Close(ctx)
	for _, query := range []string{
		"select 'replica ' || application_name || ' ' || state || ' ' || sync_state from pg_stat_replication",
		"select 'owner ' || to_jsonb(o)::text from tranche.owner o",
		"select 'waits for ' || current_setting('synchronous_standby_names')",
		"select concat_ws(' ', pid, state, wait_event, now() - query_start, left(query, 60)) from pg_stat_activity where datname = 'tranche'",
	} {
		rows, _ := conn.Query(ctx, query)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		t.Log(strings.Join(lines, "\n"), err)
	}
}

// A copy of a region's database that runs beside the original, with a node on it: whether the original is in contact or
// not, no permit is spent in both.
func TestCloneUnderLoad(t *testing.T) {
	for name, cut := range map[string]bool{"the original in contact": false, "the original cut off": true} {
		t.Run(name, func(t *testing.T) { cloneBeside(t, cut) })
	}
}

func cloneBeside(t *testing.T, cut bool) {
	th := lostTheatre(t, nil)
	r := th.Regions["us-east"]
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, th.Stage, "big")
	l.progress(t, someMore, "us-east", "eu-west")
	if err := r.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(clustertest.Dir(t), "clone")
	must(t, stage.CopyTree(t.Context(), r.Postgres.Dir(), copied))
	if err := r.Postgres.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.progress(t, someMore, "us-east")
	clone, err := cluster.Start(t.Context(), cluster.Options{Dir: copied})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = clone.Kill() })
	links := r.Links
	if cut {
		// The original's nodes reach nobody. The clone's node has links of its own.
		r.Cut()
		if r.Links, err = th.MoreLinks(); err != nil {
			t.Fatal(err)
		}
	}
	node, err := th.NodeOn(r, clone.URL("tranche"))
	if err != nil {
		t.Fatal(err)
	}
	r.Links = links
	if err := node.Launch(); err != nil {
		t.Fatal(err)
	}
	beside := askBeside(ctx, t, th.Stage, node)
	l.usedUp(t, "eu-west")
	pause := time.NewTimer(2 * hung)
	defer pause.Stop()
	<-pause.C
	stop()
	l.done.Wait()
	beside.done.Wait()
	t.Logf("the clone admitted %d", len(beside.admitted["us-east"]))
	l.mu.Lock()
	for id, tries := range beside.admitted["us-east"] {
		l.admitted["clone"] = mergeTries(l.admitted["clone"], id, tries)
	}
	l.mu.Unlock()
	l.capped(t, lostLimit)
}

func mergeTries(all map[string]int, id string, tries int) map[string]int {
	if all == nil {
		all = map[string]int{}
	}
	all[id] = tries
	return all
}

// askBeside is clients of one node only.
func askBeside(ctx context.Context, t *testing.T, s *stage.Stage, node *stage.Server) *load {
	t.Helper()
	l := &load{
		stage: s, count: map[string]*atomic.Int64{"us-east": new(atomic.Int64)},
		admitted: map[string]map[string]int{"us-east": {}}, refused: map[string]map[string]bool{"us-east": {}},
	}
	client, err := s.Gateway(stage.Edge1, node)
	if err != nil {
		t.Fatal(err)
	}
	for range askersEach {
		l.done.Go(func() {
			for ctx.Err() == nil {
				once, cancel := context.WithTimeout(ctx, 2*time.Second)
				l.ask(once, "us-east", "big", []*api.Client{client})
				cancel()
			}
		})
	}
	return l
}
