package coordinator_test

import (
	"slices"
	"testing"
	"time"

	"tranche/coordinator"
)

// A freeze ends without a region that an operator gives up, and what that one may hold is nobody's: not what the ledger knew,
// and not what it may have been granted in what was lost. If this fails, a wrong word of an operator sells permits twice.
func TestGiveUp(t *testing.T) {
	for name, registered := range map[string]bool{"registered": true, "only named by another": false} {
		t.Run(name, func(t *testing.T) { giveUp(t, registered) })
	}
}

func giveUp(t *testing.T, registered bool) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	const path = "/v1/history/give-up"
	act := coordinator.GiveUpRequest{Region: "us-east", Reason: "the site is gone", By: "kim"}
	w.must(r, 409, "POST", path, act) // nothing is frozen
	before := w.backup()
	if !registered {
		before = slices.DeleteFunc(before, func(i coordinator.Item) bool { return i.Key == coordinator.Root+"regions/us-east" })
	}
	w.move(r, west, east, 10) // west had 40 and east 60: now 30 and 70, which etcd loses
	w.restore(before)
	west.sync(r)
	if w.standing().Freeze == nil {
		t.Fatal("nothing is frozen")
	}
	w.clock.move(2 * time.Minute)
	w.round(r, west)
	if w.standing().Freeze == nil {
		t.Fatal("it thawed without us-east")
	}
	w.must(r, 422, "POST", path, coordinator.GiveUpRequest{Region: "us-east", By: "kim"})
	w.must(r, 409, "POST", path, coordinator.GiveUpRequest{Region: "mars", Reason: "no such", By: "kim"})
	w.must(r, 409, "POST", path, coordinator.GiveUpRequest{Region: "eu-west", Reason: "has stated", By: "kim"})
	if dry := w.must(r, 200, "POST", path+"?dry_run=true", coordinator.GiveUpRequest{Region: "us-east"}); dry["thawed"] != true || w.standing().Freeze == nil {
		t.Errorf("a dry run says %v, and the standing is %+v", dry, w.standing())
	}
	answer := w.must(r, 200, "POST", path, act)
	line := answer["lines"].([]any)[0].(map[string]any)
	if answer["thawed"] != true || w.standing().Freeze != nil || len(w.standing().Lost) != 1 || line["most"] != 70.0 {
		t.Errorf("it is answered %v, and the standing is %+v", answer, w.standing())
	}
	w.settle(r)
	w.round(r, west)
	if got := west.held(); got != 30 {
		t.Errorf("eu-west holds %d, and us-east may hold 70 of 100", got)
	}
	if n := len(w.acts(r, "history.give-up")); n != 1 {
		t.Errorf("%d lines in the audit", n)
	}
	if !registered {
		w.must(r, 201, "POST", "/v1/regions", map[string]string{"region": "us-east"})
	}
	// It comes back: nothing that it says counts, and it begins anew with nothing.
	former := east.incarnation
	w.round(r, east, west)
	if east.incarnation == former || east.held() != 0 || west.held() != 30 {
		t.Errorf("us-east is %s after %s and holds %d; eu-west %d", east.incarnation, former, east.held(), west.held())
	}
	w.conserved()
}
