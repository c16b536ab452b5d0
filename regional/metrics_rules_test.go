package regional

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"tranche/allocation"
)

// An alert on a metric that nobody tells would never fire.
func TestAlertsAreOnOurMetrics(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/node.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	w := newAPIWorld(t)
	w.owner.status.Budgets, w.owner.status.Stopped = 1, allocation.HistoryLost
	w.owner.status.OldestSnapshotSeconds = 301
	told := bodyOf(t, w.call("GET", "/metrics", ""))
	if !strings.Contains(told, "\ntranche_oldest_snapshot_seconds 301\n") {
		t.Error("the oldest snapshot is not told")
	}
	name, alerts := regexp.MustCompile(`tranche_[a-z_]+`), 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			alerts++
			names := name.FindAllString(r.Expr, -1)
			if r.Alert == "" || len(names) == 0 {
				t.Errorf("%q is on no metric of ours: %s", r.Alert, r.Expr)
			}
			for _, n := range names {
				if !strings.Contains(told, "\n"+n+" ") && !strings.Contains(told, "\n"+n+"{") {
					t.Errorf("%s: nobody tells %s", r.Alert, n)
				}
			}
		}
	}
	if alerts < 3 {
		t.Errorf("%d alerts were read", alerts)
	}
}
