package coordinator_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// An alert on a metric that nobody tells would never fire.
func TestAlertsAreOnOurMetrics(t *testing.T) {
	text, err := os.ReadFile("../deploy/prometheus/coordinator.rules.yml")
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
	w, _, west := two(t, 1)
	west.sync(w.replicas[0])
	w.persist(w.replicas[0])
	w.clock.move(2 * time.Minute) // so that regions are away, and permits of a unit are stranded
	families, err := w.replicas[0].registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, f := range families {
		told[f.GetName()] = true
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
				if !told[n] {
					t.Errorf("%s: nobody tells %s", r.Alert, n)
				}
			}
		}
	}
	if alerts < 10 {
		t.Errorf("%d alerts were read", alerts)
	}
}
