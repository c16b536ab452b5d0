//go:build long

package main

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

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
