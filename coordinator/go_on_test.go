package coordinator_test

import (
	"testing"

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
	w.vanish(r, true)
	w.restoreAll(nil)
	w.admin = ""
	w.spoil = func(c *coordinator.Config) {
		c.GoOn = &coordinator.GoOn{Deployment: id, Regions: []string{"us-east", "eu-west"}}
	}
	r = w.start()
	if s := w.standing(); s.Freeze == nil || w.must(r, 200, "GET", "/v1/status", nil)["deployment"] != id {
		t.Fatalf("the standing is %+v", s)
	}
	known := func(f *fakeRegion) *coordinator.KnownOwner {
		return &coordinator.KnownOwner{Incarnation: f.incarnation, Home: f.home}
	}
	w.must(r, 422, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "us-east", Owner: &coordinator.KnownOwner{}})
	w.must(r, 201, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "us-east", Owner: known(east)})
	w.must(r, 201, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "eu-west", Owner: known(west)})
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
	w.must(r, 409, "POST", "/v1/regions", coordinator.RegisterRequest{Region: "ap-south", Owner: known(east)})
	w.conserved()
}
