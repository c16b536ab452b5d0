package coordinator_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// Whoever reads that lost permits are free again when the region calls waits for what never comes: the region does call.
func TestWordsForLostHistory(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	w.settle(r)
	w.pass(2*time.Minute, east, west)
	former := east.incarnation
	east.lost = true
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)

	line := w.lineOf(r, "us-east", "acme/year")
	if line == nil || line.Incarnation != former {
		t.Fatalf("%+v", line)
	}
	var hows []string
	for _, remedy := range line.Resolve {
		hows = append(hows, remedy.How)
	}
	if !slices.Equal(hows, []string{coordinator.ResolvedPeriodEnd, coordinator.ResolvedWrittenOff}) {
		t.Errorf("it is resolved by %v", hows)
	}
	next := ""
	for _, p := range get[coordinator.Status](w, r, "/v1/status").Problems {
		if strings.HasSuffix(p.What, "are stranded") {
			next = p.Next
		}
	}
	if strings.Contains(next, "when the region calls") || !strings.Contains(next, "no call frees them") {
		t.Errorf("the status says %q", next)
	}

	q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east"}
	var preview coordinator.CompensateAnswer
	if answer := w.request(r, "POST", "/v1/compensations?dry_run=true", q); json.Unmarshal(answer.Body.Bytes(), &preview) != nil || answer.Code != 200 {
		t.Fatal(answer.Body)
	}
	notes := strings.Join(preview.Notes, "; ")
	if strings.Contains(notes, "calls again") || !strings.Contains(notes, former) || !strings.Contains(notes, "no call cancels it") {
		t.Errorf("the preview says: %s", notes)
	}
	q.Reason, q.By = "needed", "kim"
	w.must(r, 201, "POST", "/v1/compensations", q)
	w.settle(r)
	w.round(r, east, west)
	east.untilQuiet(r)
	west.untilQuiet(r)
	got := map[string]int64{"us-east": east.spend("acme/year", 1000), "eu-west": west.spend("acme/year", 1000)}
	if fmt.Sprint(got) != fmt.Sprint(preview.Permits) {
		t.Errorf("the preview said %v, and they spend %v", preview.Permits, got)
	}
	w.pass(time.Minute, east, west)
	if list := get[coordinator.CompensationsList](w, r, "/v1/compensations"); list.Compensations[0].State != coordinator.CompensationActive {
		t.Errorf("%+v", list.Compensations[0])
	}
	w.conserved()
}

// A line of a region that is silent goes with its next call, and a seal resolves it.
func TestWordsForSilentRegions(t *testing.T) {
	lost := coordinator.StrandedLine{Cause: coordinator.CauseLostHistory}
	lost.Stranded = 1
	silent := coordinator.StrandedLine{Cause: coordinator.CauseUnreachable}
	silent.Stranded = 1
	written := lost
	written.WrittenOff = &coordinator.WriteOff{}
	for want, lines := range map[string][]coordinator.StrandedLine{
		"they are free again when the region calls":                              {silent, written},
		"those of silent regions are free again when the region calls; of those": {silent, lost},
		"their incarnations are lost, and no call frees them":                    {lost, written},
		"nothing of them waits for a call":                                       {written, {Cause: coordinator.CauseLostHistory}},
	} {
		if got := coordinator.StrandedNext(lines); !strings.HasPrefix(got, want) {
			t.Errorf("%q is told for %q", got, want)
		}
	}
}
