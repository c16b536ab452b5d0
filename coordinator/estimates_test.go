package coordinator_test

import (
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// settled is a count of so many settlements that cost so many percent of an estimate of 1000.
func settled(capability string, n int, percent int64) allocation.EstimateCount {
	c := allocation.EstimateCount{Capability: capability, Unit: "requests"}
	for range n {
		c.Add(1000, 10*percent, 0)
	}
	return c
}

func told(run string, counts ...allocation.EstimateCount) coordinator.RefusalReport {
	return coordinator.RefusalReport{Format: allocation.SyncFormat, Node: "n", Run: run, Estimates: counts}
}

// The nodes' counts come to one report over all regions, each counted once through lost and repeated messages and a restart
// of the coordinator, with a suggestion that a person can follow, and the largest overdraft in flight. If this fails a person sets
// estimates by what never happened.
func TestEstimates(t *testing.T) {
	w, _, west, r := cutEast(t)
	for _, q := range []struct {
		region string
		report coordinator.RefusalReport
	}{
		{"eu-west", told("one", settled("model", 40, 130), settled("export", 5, 100))},
		{"eu-west", told("one", settled("model", 60, 130))},
		{"eu-west", told("one", settled("model", 60, 130))}, // repeated
		{"eu-west", told("one", settled("model", 50, 130))}, // late
		{"eu-west", told("two", settled("model", 20, 130))},
		{"us-east", told("one", settled("model", 70, 130))},
	} {
		if err := r.HearRefusals(q.region, q.report); err != nil {
			t.Fatal(err)
		}
	}
	west.spend("acme/year", 40)
	for ref, rows := range west.used {
		for key, u := range rows { // it is held, and not spent yet
			if ref.Budget == "acme/year" {
				u.Spent, u.Reserved = u.Spent-40, 40
				rows[key] = u
			}
		}
	}
	west.untilQuiet(r)
	check := func(on *replica) {
		a := get[coordinator.EstimatesAnswer](w, on, "/v1/estimates")
		if len(a.Estimates) != 2 || a.Estimates[0].Capability != "export" || a.Estimates[0].Suggestion != nil || !strings.Contains(a.Estimates[0].Change, "too few") {
			t.Fatalf("%+v", a.Estimates)
		}
		m := a.Estimates[1]
		if m.Settled != 150 || m.BiasPercent != 30 || m.Worst != 130 || len(m.Regions) != 2 || len(m.Ratios) != 1 || m.Ratios[0].Count != 150 {
			t.Errorf("%+v", m)
		}
		if s := m.Suggestion; s == nil || s.Factor != 1.41 || s.Capped || s.From != 1000 || s.To != 1410 || !strings.Contains(m.Change, "costs.requests") {
			t.Errorf("%+v: %s", s, m.Change)
		}
		if len(a.InFlight) != 1 || a.InFlight[0].Budget != "acme/year" || a.InFlight[0].Reserved != 40 || a.InFlight[0].AtWorst == nil || *a.InFlight[0].AtWorst != 12 || a.Rule == "" {
			t.Errorf("in flight: %+v", a.InFlight)
		}
	}
	check(r)
	w.pass(10e9, west)
	check(w.start())
}

// What cannot be a count is refused, and names the field.
func TestEstimatesThatCannotBe(t *testing.T) {
	_, _, _, r := cutEast(t)
	broken := settled("model", 3, 100)
	broken.Ratios[0]++
	nameless := settled("", 3, 100)
	var many []allocation.EstimateCount
	for range allocation.MaxEstimates + 1 {
		many = append(many, settled("model", 1, 100))
	}
	for _, q := range [][]allocation.EstimateCount{{broken}, {nameless}, many, {{Capability: "model", Unit: "tokens", Settled: -1}}} {
		if err := r.HearRefusals("eu-west", told("one", q...)); err == nil || !strings.Contains(err.Error(), "estimates") {
			t.Errorf("%d counts are taken: %v", len(q), err)
		}
	}
}

// A region that made up capabilities, or runs, without end keeps a bounded number of rows.
func TestEstimatesAreBounded(t *testing.T) {
	w, _, west, r := cutEast(t)
	for i := range 30 {
		var counts []allocation.EstimateCount
		for j := range 10 {
			counts = append(counts, settled(string(rune('a'+j)), i+1, 100))
		}
		if err := r.HearRefusals("eu-west", told(string(rune('A'+i)), counts...)); err != nil {
			t.Fatal(err)
		}
	}
	w.pass(10e9, west)
	total := int64(0)
	for _, e := range get[coordinator.EstimatesAnswer](w, w.start(), "/v1/estimates").Estimates {
		total += e.Settled
	}
	if total == 0 || total > 100*30 {
		t.Errorf("%d settlements are kept", total)
	}
}
