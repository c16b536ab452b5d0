package main

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/books"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// theatre is a deployment that is meant to suffer: three etcd members, two coordinators, two regions of two nodes.
type theatre struct {
	*stage.Stage
	t *testing.T
}

const (
	smallLimit = 500
	someMore   = 100 // admissions that show that a region goes on
)

func openTheatre(t *testing.T) *theatre {
	t.Helper()
	s, err := stage.Start(t.Context(), stage.Options{
		Regions: []string{"us-east", "eu-west"}, NodesEach: 2, Coordinators: 2, EtcdMembers: 3, Unreachable: 3 * time.Second,
	})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	th := &theatre{s, t}
	th.declareAll()
	return th
}

// declareAll declares what the loads are charged to.
func (th *theatre) declareAll() {
	th.t.Helper()
	for _, b := range []allocation.Budget{
		// Two budgets of every request, one of which rolls over each second; and two of which one runs out.
		fixed("faults/all", 1_000_000, "big", allocation.Window{Calendar: "year"}),
		fixed("faults/seconds", 1_000_000, "big", allocation.Window{Every: 1}),
		fixed("faults/small", smallLimit, "small", allocation.Window{Calendar: "year"}),
		fixed("faults/beside", 1_000_000, "small", allocation.Window{Calendar: "year"}),
	} {
		th.declare(b)
	}
}

// charges is what an admission of each tenant is charged to.
var charges = map[string][]string{"big": {"faults/all", "faults/seconds"}, "small": {"faults/small", "faults/beside"}}

// declare makes a budget through whichever coordinator answers, and waits until both regions hold their shares.
func (th *theatre) declare(b allocation.Budget) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, b.Name+" is declared", func() (bool, error) {
		var err error
		for i := range th.Coordinators {
			admin, failed := th.Admin(i)
			if failed != nil {
				return false, stage.Fatal{Err: failed}
			}
			_, err = admin.Do(th.t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: b}, nil)
			if answer, told := err.(*api.Error); err == nil || told && answer.Code == coordinator.CodeExists {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil {
		th.t.Fatal(err)
	}
	for _, r := range th.Regions {
		client, err := th.Gateway(stage.Edge1, r.Nodes[0])
		if err != nil {
			th.t.Fatal(err)
		}
		err = stage.Until(th.t.Context(), progressWait, r.Name+" holds its share of "+b.Name, func() (bool, error) {
			d, err := api.Admit(th.t.Context(), client, api.Admission{Op: "check", Labels: b.Match})
			held := slices.ContainsFunc(d.Budgets, func(p api.BudgetPart) bool { return p.Budget == b.Name && p.Share > 0 })
			return held, err
		})
		if err != nil {
			th.t.Fatal(err)
		}
	}
}

// start starts a server again.
func (th *theatre) start(servers ...*stage.Server) {
	th.t.Helper()
	for _, s := range servers {
		if err := s.Start(th.t.Context()); err != nil {
			th.t.Fatal(err)
		}
	}
}

// killNode kills one node: the region's other one goes on.
func (th *theatre) killNode(l *load) {
	node := th.Regions["us-east"].Nodes[0]
	node.Kill()
	l.progress(th.t, someMore, "us-east", "eu-west")
	th.start(node)
	l.progress(th.t, someMore, "us-east")
}

// killPostgres kills a region's database: the region refuses, the other goes on, and it heals by itself, as the same
// incarnation: nothing that was acknowledged is lost.
func (th *theatre) killPostgres(l *load) {
	r := th.Regions["us-east"]
	before, err := incarnationOf(th.t.Context(), r.Database)
	if err != nil {
		th.t.Fatal(err)
	}
	defer func() {
		if now, err := incarnationOf(th.t.Context(), r.Database); now != before {
			th.t.Errorf("us-east is incarnation %s, and was %s: %v", now, before, err)
		}
	}()
	if err := r.Postgres.Kill(); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "eu-west")
	if err := r.Postgres.StartAgain(th.t.Context()); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "us-east", "eu-west")
}

// killCoordinators kills one coordinator and then the other: regions need none to go on.
func (th *theatre) killCoordinators(l *load) {
	for _, c := range th.Coordinators {
		c.Kill()
		l.progress(th.t, someMore, "us-east", "eu-west")
	}
	th.start(th.Coordinators...)
	l.progress(th.t, someMore, "us-east", "eu-west")
}

// killLeader kills the leading etcd member: the ledger goes on with two of three.
func (th *theatre) killLeader(l *load, name string) {
	leader := th.leader()
	if err := th.Etcd.Kill(leader); err != nil {
		th.t.Fatal(err)
	}
	l.progress(th.t, someMore, "us-east", "eu-west")
	th.declare(fixed(name, 10, name, allocation.Window{Calendar: "year"}))
	if err := th.Etcd.Restart(th.t.Context(), leader); err != nil {
		th.t.Fatal(err)
	}
}

func (th *theatre) leader() (index int) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, "etcd has a leader", func() (bool, error) {
		admin, err := th.Admin(0)
		if err != nil {
			return false, err
		}
		var s coordinator.Status
		if _, err := admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/status"}, &s); err != nil {
			return false, err
		}
		for _, m := range s.Members {
			if i := slices.Index(th.Etcd.Endpoints(), m.Endpoint); m.Leader && i >= 0 {
				index = i
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		th.t.Fatal(err)
	}
	return index
}

// account verifies the whole account once all is healed.
func (th *theatre) account() {
	th.t.Helper()
	th.accountBut(0)
}

// accountBut verifies the account where so many incarnations can be read no more.
func (th *theatre) accountBut(lost int) {
	th.t.Helper()
	nodes := map[string][]string{}
	for name, r := range th.Regions {
		nodes[name] = []string{r.Nodes[0].Address, r.Nodes[1].Address}
	}
	err := stage.Until(th.t.Context(), progressWait, "the account stands still and adds up", func() (bool, error) {
		admin, err := th.Admin(0)
		if err != nil {
			return false, err
		}
		r, err := books.Read(th.t.Context(), books.Sources{
			Coordinator: admin, Nodes: nodes, Now: time.Now,
			Node: func(address string) (*api.Client, error) {
				return api.New("node", address, th.Gateways[stage.Edge2], "")
			},
		})
		if err != nil {
			return false, err
		}
		e := books.Judge(r, time.Now(), "")
		for _, v := range e.Report.Violations {
			th.t.Logf("at the moment: %s", v)
		}
		return e.Report.Conserved() && len(e.Report.Unread) == lost && !e.Report.Moving(), nil
	})
	if err != nil {
		th.t.Error(err)
	}
}

// small checks that the budget that ran out was spent to its last permit in each region, and no further.
func (th *theatre) small() {
	for name, share := range map[string]int64{"us-east": smallLimit * 3 / 5, "eu-west": smallLimit * 2 / 5} {
		if got := readCharged(th.t.Context(), th.t, th.Regions[name].Database).spent["faults/small"]; got != share {
			th.t.Errorf("%s spent %d of its %d permits of faults/small", name, got, share)
		}
	}
}

// Whatever is killed, every admission that a client saw is in the database once, and nothing else was charged: kill -9 of
// a node, of Postgres, of both coordinators, and of the leading etcd member, under load.
func TestKillsUnderLoad(t *testing.T) {
	t.Parallel()
	th := openTheatre(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	l := startLoad(ctx, t, th.Stage, "big", "small")
	l.progress(t, someMore, "us-east", "eu-west")
	th.killNode(l)
	th.killPostgres(l)
	th.killCoordinators(l)
	th.killLeader(l, "faults-after")
	l.progress(t, someMore, "us-east", "eu-west")
	stop()
	l.judge(t, charges)
	th.small()
	th.account()
	if err := th.Failure(); err != nil {
		t.Error(err)
	}
}
