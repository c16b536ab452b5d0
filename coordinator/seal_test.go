package coordinator_test

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// sealed is what a tool reads from the region's database after it has sealed it.
func (f *fakeRegion) sealed() allocation.Seal {
	s := allocation.Seal{Holder: allocation.Holder{Region: f.name, Incarnation: f.incarnation}, Home: f.home, Marks: f.marks}
	for ref, share := range f.shares {
		sh := allocation.SealedShare{Share: share.Seal()}
		for _, u := range f.used[ref] {
			sh.Used = append(sh.Used, u.Seal())
		}
		s.Shares = append(s.Shares, sh)
	}
	return s
}

// What a sealed region had not spent is granted again within the period, to the permit; before its incarnation was ended,
// or from another database, a seal proves nothing. If this fails, permits are sold twice.
func TestSeal(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	east.spend(acmeBudget, 20)
	east.sync(r)
	const path = "/v1/regions/us-east/seal"
	seal := east.sealed()
	w.must(r, 422, "POST", path, coordinator.SealRequest{})
	w.must(r, 409, "POST", path, coordinator.SealRequest{Reason: "too early", By: "kim", Seal: &seal})
	if ended := w.must(r, 200, "POST", path, coordinator.SealRequest{Reason: "its nodes are gone", By: "kim"}); ended["incarnation"] != east.incarnation {
		t.Errorf("it ended %v", ended)
	}
	if a := east.sync(r); a.Refusal == "" || len(a.Shares) > 0 {
		t.Errorf("the ended incarnation is answered %+v", a)
	}
	elsewhere := seal
	elsewhere.Home.System = "copy"
	w.must(r, 409, "POST", path, coordinator.SealRequest{Reason: "a copy", By: "kim", Seal: &elsewhere})
	unsealed := east.sealed()
	unsealed.Shares[0].Share.Sealed = false
	w.must(r, 409, "POST", path, coordinator.SealRequest{Reason: "open", By: "kim", Seal: &unsealed})
	for range 2 { // again, without harm
		w.must(r, 200, "POST", path, coordinator.SealRequest{Reason: "its nodes are gone", By: "kim", Seal: &seal})
	}
	w.settle(r)
	w.must(r, 200, "POST", "/v1/regions/us-east/drain", nil)
	w.round(r, west)
	if got := west.held(); got != 80 {
		t.Errorf("the other region holds %d of 100, and 20 were spent", got)
	}
	if n := len(w.acts(r, "region.sealed")); n == 0 {
		t.Error("nothing in the audit")
	}
	w.conserved()
}

// stays states a writer that does not go over to another database: its process may still be with the old one.
func (f *fakeRegion) stays(r *replica) {
	f.w.t.Helper()
	f.marks = append(f.marks, allocation.Mark{Writer: f.name + "-stays", Count: 3, Value: "s"})
	f.sync(r)
}

// A failover that an operator declares lossless and fenced is taken at once; the old primary is refused from then on.
func TestAdoptFailover(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	const path = "/v1/regions/us-east/adopt-failover"
	w.must(r, 409, "POST", path, coordinator.AdoptRequest{Reason: "nobody calls", By: "kim"})
	east.stays(r)
	old := east.home
	east.home.Timeline = 2
	before := east.incarnation
	if a := east.sync(r); a.Refusal == "" {
		t.Fatal("a second database is served while the recorded one is in contact")
	}
	w.must(r, 200, "POST", path, coordinator.AdoptRequest{Reason: "patroni says so", By: "kim"})
	if a := east.sync(r); a.Refusal != "" || a.Incarnation != before {
		t.Errorf("it is answered %+v", a)
	}
	east.home = old
	if a := east.sync(r); a.Refusal == "" {
		t.Error("the old primary is served")
	}
}

// A database with all marks in another home is the incarnation, once the recorded one is silent.
func TestMovedHome(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	before := east.incarnation
	east.stays(r)
	east.home.Timeline = 2
	if a := east.sync(r); a.Refusal == "" || w.flagOf(r, "us-east") == nil {
		t.Fatalf("a second database is served: %+v", a)
	}
	w.clock.move(2 * time.Minute)
	if a := east.sync(r); a.Refusal != "" || a.Incarnation != before {
		t.Errorf("it is answered %+v", a)
	}
	if c := w.flagOf(r, "us-east"); c != nil {
		t.Errorf("it is flagged still: %+v", c)
	}
	if n := len(w.acts(r, "region.moved")); n != 1 {
		t.Errorf("%d lines in the audit", n)
	}
}

// An owner whose database lost commits gets a new incarnation with nothing; what the old one had is nobody's until the
// period ends, and the old one is not listened to. If this fails, its permits are sold twice.
func TestOwnerLostHistory(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	former := east.incarnation
	late := east.call()
	east.sync(r)
	east.marks[0] = allocation.Mark{Writer: east.marks[0].Writer, Count: 0, Value: "restored"}
	if a := east.sync(r); a.Refusal == "" || len(a.Contradicted) == 0 || !east.lost {
		t.Fatalf("missing marks are not noticed: %+v", a)
	}
	asked := east.call()
	w.round(r, east, west)
	if east.incarnation == former || east.incarnation == "" || east.held() != 0 || west.held() != 40 {
		t.Errorf("incarnation %s after %s holds %d; the other %d", east.incarnation, former, east.held(), west.held())
	}
	for _, call := range []allocation.SyncCall{late, asked} {
		if a, err := r.Sync(t.Context(), call); err != nil || a.Refusal == "" || a.Incarnation == former {
			t.Errorf("a late call of the former incarnation is answered %+v %v", a, err)
		}
	}
	if w.round(r, east, west); w.standing().Freeze != nil || len(w.acts(r, "region.replaced")) != 1 {
		t.Errorf("%d replaced; %+v", len(w.acts(r, "region.replaced")), w.standing())
	}
	w.conserved()
}
