package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// regionNamed is a region as it is listed.
func regionNamed(w *world, r *replica, name string) coordinator.RegionAnswer {
	w.t.Helper()
	for _, a := range get[coordinator.RegionsList](w, r, "/v1/regions").Regions {
		if a.Region == name {
			return a
		}
	}
	w.t.Fatalf("there is no region %s", name)
	return coordinator.RegionAnswer{}
}

// A region whose terms of one budget are over refuses it, however long those of another still last: a runway of hours would
// say that all is well. A window that has not begun or is over refuses by declaration and bounds nothing.
func TestRunwayNamesTheBudgetThatIsRefused(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	home := func(name, window string) string {
		return `{"budget":"` + name + `","unit":"requests","limit":10,"window":` + window + `,"allocation":{"policy":"home","region":"us-east"}}`
	}
	w.must(r, 201, "POST", "/v1/budgets", home("daily", `{"calendar":"day"}`))
	w.must(r, 201, "POST", "/v1/budgets", home("later", `{"once":{"from":"2027-01-01T00:00:00Z","until":"2027-02-01T00:00:00Z"}}`))
	w.must(r, 201, "POST", "/v1/budgets", home("over", `{"once":{"from":"2026-01-01T00:00:00Z","until":"2026-02-01T00:00:00Z"}}`))
	w.must(r, 201, "POST", "/v1/budgets", home("running", `{"once":{"from":"2026-05-01T00:00:00Z","until":"2026-05-04T10:30:00Z"}}`))
	east.untilQuiet(r)
	if a := regionNamed(w, r, "us-east"); a.RunwaySeconds == nil || *a.RunwaySeconds < 6*3600 || a.RunwayBudget != "acme/requests" {
		t.Errorf("held: %+v", a)
	}
	w.clock.move(9 * time.Hour)
	if a := regionNamed(w, r, "us-east"); a.RunwaySeconds == nil || *a.RunwaySeconds != 0 || a.RunwayBudget != "acme/requests" {
		t.Errorf("its terms are over: %+v", a)
	}
	east.sync(r) // so that the clock is trusted
	w.settle(r)
	east.untilQuiet(r)
	w.must(r, 201, "POST", "/v1/budgets", home("fresh", `{"every":"1m"}`))
	if a := regionNamed(w, r, "us-east"); a.RunwaySeconds == nil || *a.RunwaySeconds != 0 || a.RunwayBudget != "fresh" {
		t.Errorf("it holds no term: %+v", a)
	}
}

// Nodes of which nothing was heard for a minute are gone for all that is known: each restart under another name would
// count as one more for good. Of two sights of one node the later counts.
func TestNodesAreForgotten(t *testing.T) {
	w, east, _ := two(t, 2)
	r := w.replicas[0]
	called := func(name string, by *replica) {
		call := east.call()
		call.Node = name
		if _, err := by.Sync(t.Context(), call); err != nil {
			t.Fatal(err)
		}
	}
	called("old", r)
	w.clock.move(40 * time.Second)
	called("new", r)
	called("new", w.replicas[1])
	w.persist(w.replicas[1])
	w.persist(r)
	for _, c := range []struct {
		later time.Duration
		names string
	}{{0, "new old us-east-node"}, {20 * time.Second, "new"}, {time.Minute, ""}} {
		w.clock.move(c.later)
		var names []string
		for _, n := range regionNamed(w, r, "us-east").Nodes {
			names = append(names, n.Node)
		}
		if strings.Join(names, " ") != c.names {
			t.Errorf("%s later nodes are %v, not %s", c.later, names, c.names)
		}
	}
}
