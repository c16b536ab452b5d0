package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

func openStage(t *testing.T, o stage.Options) *theatre {
	t.Helper()
	s, err := stage.Start(t.Context(), o)
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &theatre{s, t}
}

// ask asks one node for one admission: once, and by the same id again while nobody knows whether it was made.
func (th *theatre) ask(node *stage.Server, tenant string) (d api.Decision, err error) {
	th.t.Helper()
	client, err := th.Gateway(stage.Edge1, node)
	if err != nil {
		th.t.Fatal(err)
	}
	a := api.Admission{
		ID: fmt.Sprintf("%s-%06d", tenant, serial.Add(1)), Op: "spend", Labels: map[string]string{"tenant": tenant}, Deadline: 2 * time.Second,
	}
	for range truthTries {
		if d, err = api.Admit(th.t.Context(), client, a); err == nil && !d.Unknown() {
			break
		}
		<-time.After(retryEvery)
	}
	return d, err
}

// answers waits until a node answers for a reason.
func (th *theatre) answers(node *stage.Server, tenant string, want allocation.Reason) {
	th.t.Helper()
	got := ""
	err := stage.Until(th.t.Context(), progressWait, node.Name+" answers "+string(want), func() (bool, error) {
		d, err := th.ask(node, tenant)
		got = d.Reason
		return d.Reason == string(want), err
	})
	if err != nil {
		th.t.Fatalf("%v; it answers %s", err, got)
	}
}

// refused runs a command that must fail, and say why.
func (th *theatre) refused(why string, args ...string) {
	th.t.Helper()
	status, printed := inProcess(append(args, "--coordinator", th.Coordinators[0].Address, "--token", th.AdminToken)...)
	if status == 0 || !strings.Contains(printed, why) {
		th.t.Fatalf("%v ended with %d, and does not say %q: %s", args, status, why, printed)
	}
}

func named(args ...string) []string {
	return append(args, "--yes", "--reason", "a test", "--by", "Ada")
}

// promoted is a copy of a region's database as a failover makes it: another timeline, with all that was committed. The
// original goes on beside it.
func promoted(t *testing.T, r *stage.Region) *cluster.Cluster {
	t.Helper()
	copied := filepath.Join(clustertest.Dir(t), "promoted")
	if err := r.Postgres.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := stage.CopyTree(t.Context(), r.Postgres.Dir(), copied); err != nil {
		t.Fatal(err)
	}
	if err := r.Postgres.StartAgain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "data", "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	server, err := cluster.Start(t.Context(), cluster.Options{Dir: copied})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Kill() })
	promote(t, server)
	return server
}

// A promoted database is refused while the recorded one called a moment ago, until an operator declares it: the same
// incarnation goes on there, and the old one is refused.
func TestAdoptFailoverByCommand(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, Unreachable: 2 * time.Minute})
	th.declare(fixed("ops/a", 1000, "a", allocation.Window{Calendar: "year"}))
	r := th.Regions["us-east"]
	old := r.Nodes[0]
	th.answers(old, "a", allocation.Allow)
	th.untilStated("ops/a", map[string]int64{"us-east": 1})
	life, err := incarnationOf(t.Context(), r.Database)
	if err != nil {
		t.Fatal(err)
	}
	old.Kill()
	server := promoted(t, r)
	node, err := th.NodeOn(r, server.URL("tranche"))
	if err == nil {
		err = node.Launch()
	}
	if err != nil {
		t.Fatal(err)
	}
	err = stage.Until(t.Context(), progressWait, "the second database is refused", func() (bool, error) {
		s, err := th.status()
		return err == nil && strings.Contains(fmt.Sprint(s.Problems), "another database calls with the token of region us-east"), err
	})
	if err != nil {
		t.Fatal(err)
	}
	th.answers(node, "a", allocation.Starting)
	if preview := th.operate("regions", "adopt-failover", "us-east"); !strings.Contains(preview, "nothing was changed") {
		t.Error(preview)
	}
	if done := th.operate(named("regions", "adopt-failover", "us-east")...); !strings.Contains(done, "it serves with its next call") {
		t.Error(done)
	}
	th.answers(node, "a", allocation.Allow)
	if now, err := incarnationOf(t.Context(), server.URL("tranche")); err != nil || now != life {
		t.Errorf("us-east is %s, and was %s: %v", now, life, err)
	}
	if err := old.Launch(); err != nil {
		t.Fatal(err)
	}
	err = stage.Until(t.Context(), progressWait, "the old one is refused", func() (bool, error) {
		d, err := th.ask(old, "a")
		if d.Admitted() {
			return false, stage.Fatal{Err: errors.New("the old one admits")}
		}
		return d.Reason == string(allocation.Starting), err
	})
	if err != nil {
		t.Error(err)
	}
}

// etcd goes back under running coordinators: all is frozen, until an operator gives up the region that is gone. When it comes
// back it begins anew, with nothing, and what it held is stranded.
func TestGiveUpByCommand(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, EtcdMembers: 1, Unreachable: 3 * time.Second})
	th.declare(fixed("ops/a", 10, "a", allocation.Window{Calendar: "year"}))
	r := th.Regions["us-east"]
	th.answers(r.Nodes[0], "a", allocation.Allow)
	life, err := incarnationOf(t.Context(), r.Database)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(t.TempDir(), "etcd")
	if err := th.KeepEtcd(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	th.declare(fixed("ops/lost", 10, "lost", allocation.Window{Calendar: "year"}))
	r.Cut()
	if err := th.TakeBackEtcd(t.Context(), kept, nil); err != nil {
		t.Fatal(err)
	}
	err = stage.Until(t.Context(), progressWait, "it waits for us-east alone", func() (bool, error) {
		s, err := th.status()
		return err == nil && s.Frozen != nil && fmt.Sprint(s.Frozen.Missing) == "[us-east]", err
	})
	if err != nil {
		t.Fatal(err)
	}
	th.silent("us-east")
	if shown := th.operate("ledgers", "recover"); !strings.Contains(shown, "bring back its nodes and the link") || strings.ContainsAny(shown, "{}") {
		t.Error(shown)
	}
	if s, err := th.status(); err != nil || len(s.LostChanges) != 1 || s.LostChanges[0].Budget != "ops/lost" {
		t.Errorf("eu-west knows of ops/lost, and named are %v, %v", s.LostChanges, err)
	}
	if preview := th.operate("ledgers", "recover", "--give-up", "us-east"); !strings.Contains(preview, "would be given up") || !strings.Contains(preview, "ops/a") {
		t.Error(preview)
	}
	if done := th.operate(named("ledgers", "recover", "--give-up", "us-east")...); !strings.Contains(done, "grants go on") {
		t.Error(done)
	}
	if s, err := th.status(); err != nil || s.Frozen != nil {
		t.Errorf("%+v, %v", s.Frozen, err)
	}
	if preview := th.operate("ledgers", "recover", "--limits-known"); !strings.Contains(preview, "would be granted") {
		t.Error(preview)
	}
	if done := th.operate(named("ledgers", "recover", "--limits-known")...); !strings.Contains(done, "are granted from now on") {
		t.Error(done)
	}
	if shown := th.operate("ledgers", "recover"); !strings.Contains(shown, "RAISES THERE") || !strings.Contains(shown, "granted") {
		t.Error(shown)
	}
	r.Heal()
	for range 4 {
		th.answers(th.Regions["eu-west"].Nodes[0], "a", allocation.Allow)
	}
	// The former incarnation spends of its 6 until it hears that it was given up. What is left then is stranded; if nothing is,
	// all 10 are spent, which is known, since its last word is heard.
	admitted, told := 1, ""
	err = stage.Until(t.Context(), progressWait, "us-east has nothing, and says why", func() (bool, error) {
		d, err := th.ask(r.Nodes[0], "a")
		if told = d.Reason; told == string(allocation.Allow) {
			admitted++
		}
		return admitted < 6 && told == string(allocation.CapacityStranded) || admitted == 6 && told == string(allocation.CeilingReached), err
	})
	if err != nil || admitted > 6 {
		t.Fatalf("%v; it admitted %d and answers %s", err, admitted, told)
	}
	if now, err := incarnationOf(t.Context(), r.Database); err != nil || now == life {
		t.Errorf("us-east is %s still: %v", now, err)
	}
}

// A region that held permits is removed when it has given them back, and one that is gone when they are written off. Nobody
// gets what the latter held.
func TestRemoveRegionsByCommand(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west", "ap-south"}, NodesEach: 1, Coordinators: 1, Unreachable: 3 * time.Second})
	limit := int64(300)
	b := allocation.Budget{
		Name: "ops/a", Unit: "requests", Limit: &limit, Window: allocation.Window{Calendar: "year"}, Match: map[string]string{"tenant": "a"},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"us-east": 1, "eu-west": 1, "ap-south": 1}},
	}
	th.declare(b)
	for name, r := range th.Regions {
		if name != "us-east" {
			th.answers(r.Nodes[0], "a", allocation.Allow)
		}
	}
	th.untilStated("ops/a", map[string]int64{"eu-west": 1, "ap-south": 1})
	th.Regions["ap-south"].Nodes[0].Kill()
	th.silent("ap-south")
	th.refused("it takes part: drain it first", named("regions", "remove", "eu-west")...)
	th.operate("regions", "drain", "eu-west")
	th.operate("regions", "drain", "ap-south")
	b.Allocation.Weights = map[string]int64{"us-east": 1}
	th.change(b)
	th.refused("ops/a", named("regions", "remove", "ap-south")...)
	th.operate(named("stranded", "write-off", "--budget", "ops/a", "--region", "ap-south")...)
	for _, name := range []string{"eu-west", "ap-south"} {
		err := stage.Until(t.Context(), progressWait, name+" can be removed", func() (bool, error) {
			printed := th.operate("regions", "remove", name)
			if !strings.Contains(printed, "can be removed; nothing was changed") {
				return false, errors.New(printed)
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if done := th.operate(named("regions", "remove", name)...); !strings.Contains(done, "region "+name+" is removed") {
			t.Error(done)
		}
	}
	// us-east has its own 100 and the 99 that eu-west gave back; what ap-south held stays out.
	admitted := 0
	err := stage.Until(t.Context(), progressWait, "us-east has spent what is left", func() (bool, error) {
		d, err := th.ask(th.Regions["us-east"].Nodes[0], "a")
		if d.Admitted() {
			admitted++
		}
		return admitted >= 199 && !d.Admitted(), err
	})
	if err != nil || admitted != 199 {
		t.Errorf("us-east admitted %d, not 199: %v", admitted, err)
	}
	if s, err := th.status(); err != nil || len(s.Regions) != 1 || !s.Conserved {
		t.Errorf("%+v, %v", s.Regions, err)
	}
	th.operate("regions", "register", "eu-west", "--token-file", filepath.Join(t.TempDir(), "token")) // the name is free
}

// untilStated waits until regions have stated what they spent.
func (th *theatre) untilStated(budget string, want map[string]int64) {
	th.t.Helper()
	th.untilShares(budget, want, "stated", func(r coordinator.RegionShare) bool {
		n, named := want[r.Region]
		return !named || n == r.Spent
	})
}

// untilHeld waits until regions hold so much.
func (th *theatre) untilHeld(budget string, want map[string]int64) {
	th.t.Helper()
	th.untilShares(budget, want, "held", func(r coordinator.RegionShare) bool { return r.Granted-r.Returned == want[r.Region] })
}

// untilShares waits until all shares of the running term are right, and each region that is wanted has one.
func (th *theatre) untilShares(budget string, want map[string]int64, word string, right func(coordinator.RegionShare) bool) {
	th.t.Helper()
	err := stage.Until(th.t.Context(), progressWait, fmt.Sprint(want, " are ", word), func() (bool, error) {
		admin, err := th.Admin(0)
		if err != nil {
			return false, err
		}
		var shares coordinator.SharesAnswer
		if _, err := admin.Do(th.t.Context(), api.Call{Method: http.MethodGet, Path: "/v1/shares/" + budget}, &shares); err != nil {
			return false, err
		}
		seen := map[string]bool{}
		for _, r := range shares.Terms[0].Regions {
			if !right(r) {
				return false, nil
			}
			seen[r.Region] = true
		}
		for region := range want {
			if !seen[region] {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		th.t.Fatal(err)
	}
}

// change declares another version of a budget.
func (th *theatre) change(b allocation.Budget) {
	th.t.Helper()
	admin, err := th.Admin(0)
	if err != nil {
		th.t.Fatal(err)
	}
	var known coordinator.BudgetAnswer
	call := api.Call{Method: http.MethodGet, Path: "/v1/budgets/" + b.Name}
	if _, err := admin.Do(th.t.Context(), call, &known); err != nil {
		th.t.Fatal(err)
	}
	call.Method, call.Body, call.Header = http.MethodPut, b, http.Header{"If-Match": {fmt.Sprintf("%q", fmt.Sprint(known.Version))}}
	if _, err := admin.Do(th.t.Context(), call, nil); err != nil {
		th.t.Fatal(err)
	}
}
