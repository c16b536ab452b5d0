//go:build long

package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/coordinator/etcd/embedded"
)

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
