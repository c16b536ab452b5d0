package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
)

// A region is removed while its database is stopped for a handover. A stopped owner makes no call, so if nobody could call the
// handover off any more, that database could never be used again. It goes on, and begins anew once the region is registered.
func TestHandoverOfARemovedRegionIsCalledOff(t *testing.T) {
	th := openStage(t, stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, Unreachable: 3 * time.Second})
	r := th.Regions["us-east"]
	life, err := incarnationOf(t.Context(), r.Database)
	if err != nil {
		t.Fatal(err)
	}
	move := []string{"regions", "handover", "us-east", "--from-url", r.Database}
	th.operate("regions", "drain", "us-east")
	th.operate(named(move...)...)
	if preview := th.operate("regions", "remove", "us-east"); !strings.Contains(preview, "stopped for a handover, by") || !strings.Contains(preview, "can be removed") {
		t.Error(preview)
	}
	th.operate(named("regions", "remove", "us-east")...)
	r.Nodes[0].Kill()

	th.refused("there is no region", named(move...)...)
	cancel := append(move, "--cancel")
	if preview := th.operate(cancel...); !strings.Contains(preview, "would not be stopped any more") {
		t.Error(preview)
	}
	if done := th.operate(named(cancel...)...); !strings.Contains(done, "begins anew, with nothing, when the region is registered") {
		t.Error(done)
	}
	th.refused("not stopped for a handover", named(cancel...)...)
	if audit := th.operate("audit"); strings.Count(audit, "region.handover-end") != 1 {
		t.Error(audit)
	}

	token := filepath.Join(th.Dir, "us-east.token")
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	th.operate("regions", "register", "us-east", "--token-file", token)
	th.start(r.Nodes[0])
	th.declare(fixed("ops/a", 10, "a", allocation.Window{Calendar: "year"}))
	th.answers(r.Nodes[0], "a", allocation.Allow)
	if now, err := incarnationOf(t.Context(), r.Database); err != nil || now == life {
		t.Errorf("us-east is %s still: %v", now, err)
	}
}
