package coordinator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// problemsOf are the lines of a status that name something, like a region.
func problemsOf(w *world, r *replica, region string) (lines []string) {
	w.t.Helper()
	for _, p := range get[coordinator.Status](w, r, "/v1/status").Problems {
		if strings.Contains(p.What, region) {
			lines = append(lines, p.Severity+": "+p.What+"; "+p.Next)
		}
	}
	return lines
}

// A region that had stopped before it fell silent serves nobody: "it goes on alone" would send people to bed.
func TestStoppedRegionDoesNotGoOnAlone(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	call := east.call()
	call.Stopped = "history_lost"
	if _, err := r.Sync(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	west.marks[0].Count = 0 // its database lost commits
	west.sync(r)
	for _, silence := range []time.Duration{0, 9 * time.Hour} {
		w.clock.move(silence)
		for _, region := range []string{"us-east", "eu-west"} {
			lines := problemsOf(w, r, region)
			text := strings.Join(lines, "\n")
			if len(lines) == 0 || !strings.HasPrefix(lines[0], "critical: region "+region+" admits nothing: history_lost") || strings.Contains(text, "alone") || strings.Contains(text, "warning") {
				t.Errorf("after %s: %s", silence, text)
			}
			if silence > 0 && !strings.Contains(text, "it has not called for 9h") {
				t.Errorf("the silence is not told: %s", text)
			}
		}
	}
}

// A region that goes on alone and is out of terms refuses; its status says so, and of which budget.
func TestSilentRegionWithoutTerms(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	w.clock.move(9 * time.Hour)
	text := strings.Join(problemsOf(w, r, "us-east"), "\n")
	if !strings.Contains(text, "refuses budget acme/requests with no_allocation") || strings.Contains(text, "for 0s") {
		t.Error(text)
	}
}

// A node that refuses nobody must not be forgotten: the status of the deployment names it.
func TestANodeInShadowIsTold(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	call := east.call()
	call.Shadow = true
	if _, err := r.Sync(t.Context(), call); err != nil {
		t.Fatal(err)
	}
	if text := strings.Join(problemsOf(w, r, "in shadow"), "\n"); !strings.Contains(text, "note: node us-east-node of region us-east is in shadow: it refuses nobody") || strings.Contains(text, "eu-west") {
		t.Error(text)
	}
	w.clock.move(time.Minute)
	east.sync(r)
	if text := problemsOf(w, r, "in shadow"); len(text) > 0 {
		t.Error("it was started again without, and is told still", text)
	}
}

// unnamed is an etcd of which one member does not answer and is known by its address only.
type unnamed struct{ coordinator.Store }

func (unnamed) Members(context.Context) ([]coordinator.Member, error) {
	return []coordinator.Member{{Endpoint: "http://127.0.0.1:9", Problem: "no answer"}}, nil
}

// What is not there is not told: neither the name of a member nor 0 stranded units.
func TestStatusTellsNothingEmpty(t *testing.T) {
	w := newWorld(t, 0)
	w.store = unnamed{w.store}
	r := w.start()
	east := w.addRegion("us-east")
	east.join(r)
	w.must(r, 201, "POST", "/v1/budgets", `{"budget":"b","unit":"tokens","limit":7,"window":{"calendar":"day"},"allocation":{"policy":"home","region":"us-east"}}`)
	east.untilQuiet(r)
	east.spend("b", 7)
	east.untilQuiet(r)
	w.clock.move(2 * time.Minute)
	if text := strings.Join(problemsOf(w, r, "stranded"), "\n"); text != "" {
		t.Error(text)
	}
	if text := strings.Join(problemsOf(w, r, "etcd member"), "\n"); !strings.HasPrefix(text, "warning: etcd member http://127.0.0.1:9 is not healthy: no answer") {
		t.Error(text)
	}
}
