package coordinator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// A region that is granted permits before another one knows that it exists is forgotten by an etcd that goes back to before
// it was registered, and what it holds is granted once more.
func TestNothingIsGrantedToARegionThatNobodyKnows(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	east.join(r) // the first needs nobody
	before := w.backup()
	west := w.addRegion("eu-west")
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100"))
	waits := func() bool {
		status := get[coordinator.Status](w, r, "/v1/status")
		said := false
		for _, p := range status.Problems {
			said = said || strings.Contains(p.What, "region eu-west is granted nothing before another region")
		}
		for _, region := range status.Regions {
			if region.Region == "eu-west" && region.Unannounced != said {
				t.Errorf("it is unannounced: %v, and the status says so: %v", region.Unannounced, said)
			}
		}
		return said
	}
	for range 3 {
		west.sync(r)
		w.settle(r)
	}
	if west.incarnation == "" || west.held() != 0 || len(west.shares) != 0 || !waits() {
		t.Fatalf("incarnation %q holds %d", west.incarnation, west.held())
	}
	if a := east.sync(r); len(a.Regions) != 2 {
		t.Fatalf("us-east is told of %v", a.Regions)
	}
	west.sync(r)
	w.settle(r)
	if west.sync(r); west.held() != 0 || !waits() {
		t.Fatalf("us-east has not said yet that it knows eu-west, which holds %d", west.held())
	}
	east.sync(r)
	if waits() {
		t.Error("it waits still")
	}
	w.round(r, east, west)
	if west.held() != 40 || east.held() != 60 {
		t.Fatalf("they hold %d and %d of 100", east.held(), west.held())
	}

	// Now etcd goes back to before the region was registered. It is waited for, since us-east names it.
	w.restore(before)
	for range 3 {
		east.sync(r)
		w.settle(r)
	}
	if f := get[coordinator.Status](w, r, "/v1/status").Frozen; f == nil || !slices.Equal(f.Missing, []string{"eu-west"}) {
		t.Errorf("the freeze does not wait for a region that etcd does not know: %+v", f)
	}
}

// A call that is held must not keep a region from naming a new one.
func TestARegionHearsOfANewOneAtOnce(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east := w.addRegion("us-east")
	east.join(r)
	call := east.call()
	call.WaitMillis = 60_000
	answers := make(chan allocation.SyncAnswer, 1)
	go func() {
		a, _ := r.Sync(t.Context(), call) // an answer that names nobody is found out below
		answers <- a
	}()
	w.addRegion("eu-west")
	select {
	case a := <-answers:
		if len(a.Regions) != 2 {
			t.Errorf("it is told of %v", a.Regions)
		}
	case <-time.After(20 * time.Second):
		t.Error("the call is held")
	}
}
