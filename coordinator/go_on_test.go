package coordinator_test

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// An etcd that was lost whole goes on as the deployment that its regions belong to: nothing is granted before each of them
// has stated, they keep what they hold, and no permit is sold twice.
func TestEmptyEtcdGoesOn(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.move(r, east, west, 20)
	east.spend(acmeBudget, 7)
	w.round(r, east, west)
	id, before := w.must(r, 200, "GET", "/v1/status", nil)["deployment"].(string), east.incarnation
	r = w.goesOnInAnEmptyEtcd(r)
	if s := w.standing(); s.Freeze == nil || w.must(r, 200, "GET", "/v1/status", nil)["deployment"] != id {
		t.Fatalf("the standing is %+v", s)
	}
	w.must(r, 422, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "us-east", Owner: &coordinator.KnownOwner{}})
	w.registerOwners(r, east, west)
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100")) // else it is taken for deleted, and recalled
	w.round(r, east)
	if w.standing().Freeze == nil {
		t.Fatal("it thawed before eu-west had stated")
	}
	w.round(r, east, west)
	if w.standing().Freeze != nil || len(w.standing().Lost) > 0 {
		t.Fatalf("the standing is %+v", w.standing())
	}
	if east.incarnation != before || east.held()+west.held() != 100 || east.spend(acmeBudget, 100) != east.held()-7 {
		t.Errorf("us-east is %s after %s and holds %d, eu-west %d", east.incarnation, before, east.held(), west.held())
	}
	w.must(r, 409, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "ap-south", Owner: &coordinator.KnownOwner{Incarnation: east.incarnation, Home: east.home}})
	w.conserved()
}

// A block that is made before a region has stated must reach it, although the region has stored higher numbers: those were
// of a configuration that is lost, and an empty etcd gives them out again.
func TestEmptyEtcdForgetsNobodyInItsConfiguration(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.round(r, east, west)
	r = w.goesOnInAnEmptyEtcd(r)
	east.config, east.through = 12, 12
	w.registerOwners(r, east, west)
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100"))
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON("acme/new", "10"))
	b := typed[coordinator.BlockAnswer](w, r, 201, "POST", "/v1/blocks", `{"match":{"tenant":"acme"},"for":"2h","reason":"leak"}`)
	w.round(r, east, west)
	w.round(r, east, west)
	if w.standing().Freeze != nil {
		t.Fatalf("the standing is %+v", w.standing())
	}
	for _, f := range []*fakeRegion{east, west} {
		if d, ok := f.documents[allocation.DocumentRef{Kind: allocation.KindBlock, Name: b.ID}]; !ok || d.Number > 12 {
			t.Errorf("%s has the block %v: %+v", f.name, ok, d)
		}
		if c, ok := f.budgets["acme/new"]; !ok || c.Number > 12 {
			t.Errorf("%s has the budget %v: %+v", f.name, ok, c)
		}
	}
}

// A region is registered with its owner, and its database is lost before it calls. Nobody has stated a mark that could be
// missed: without a rule of its own such a call is taken for a late one for ever, and all stays frozen. One that is late, and
// its repetition, must replace nothing.
func TestEmptyEtcdAndAnOwnerThatWasLostBeforeItCalled(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.round(r, east, west)
	before := east.incarnation
	r = w.goesOnInAnEmptyEtcd(r)
	w.registerOwners(r, east, west)
	east.lose()
	late := east.call()
	for range 3 {
		if a, err := r.Sync(t.Context(), late); err == nil {
			t.Fatalf("a call that may be late is answered %+v", a)
		}
		w.clock.move(2 * time.Minute)
	}
	if _, err := r.Sync(t.Context(), east.call()); err != nil {
		t.Fatal(err)
	}
	east.sync(r)
	if east.incarnation == "" || east.incarnation == before {
		t.Fatalf("us-east is %q", east.incarnation)
	}
	w.round(r, east, west)
	w.round(r, east, west)
	if s := w.standing(); s.Freeze != nil {
		t.Errorf("the standing is %+v", s)
	}
}

// lose empties the region's database: it is as it was before it ever called.
func (f *fakeRegion) lose() {
	f.incarnation, f.history, f.config, f.through, f.frozen = "", allocation.History{}, 0, 0, false
	f.marks = []allocation.Mark{{Writer: f.name + "-again", Count: 1, Value: "b"}}
	clear(f.shares)
	clear(f.used)
	clear(f.changed)
	clear(f.numbers)
	clear(f.acked)
	clear(f.budgets)
	clear(f.documents)
}

// goesOnInAnEmptyEtcd ends a replica, empties etcd, and starts another one that goes on as the deployment that was there.
func (w *world) goesOnInAnEmptyEtcd(r *replica) *replica {
	w.t.Helper()
	id := w.must(r, 200, "GET", "/v1/status", nil)["deployment"].(string)
	w.vanish(r, true)
	w.restoreAll(nil)
	w.admin = ""
	w.spoil = func(c *coordinator.Config) {
		c.GoOn = &coordinator.GoOn{Deployment: id, Regions: []string{"us-east", "eu-west"}}
	}
	return w.start()
}

// registerOwners registers regions with what their databases say of themselves.
func (w *world) registerOwners(r *replica, regions ...*fakeRegion) {
	w.t.Helper()
	for _, f := range regions {
		w.must(r, 201, "POST", "/v1/regions", coordinator.RegisterRequest{Region: f.name, Owner: &coordinator.KnownOwner{Incarnation: f.incarnation, Home: f.home}})
	}
}
