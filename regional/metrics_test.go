package regional

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"tranche/allocation"
)

// If this failed, a dashboard would show another story than callers were told, or a caller's text become a label.
func TestMetrics(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.status.Budgets = 2
	w.owner.status.Runway = &Runway{Seconds: 90, Budget: "acme/requests"}
	w.owner.status.Sync.AgeSeconds = 1.5
	w.owner.status.Reservations.Open, w.owner.status.Reservations.OldestSeconds = 3, 75
	evidence := 2.5
	w.owner.status.Config, w.owner.status.Sync.EvidenceAgeSeconds = 41, &evidence
	w.owner.status.Stopped = "written by a newer version"
	admit := `{"labels":{"tenant":"acme"},"costs":{"requests":40}}`
	w.admit("a", admit)
	w.admit("a", admit)
	w.admit("b", admit)
	w.admit("c", `{"labels":{"tenant":"acme"},"op":"check"}`)
	w.call("POST", "/v1/settle", `{"tenant":"acme"}`, "Admission-Id: a")
	w.admit("d", `{`)
	w.owner.force, w.undocumented = "a reason of tomorrow", true
	w.admit("e", admit)
	w.undocumented = false
	w.config.Metrics.ObserveCommit(3 * time.Millisecond)
	w.config.Metrics.ObserveBatch(17)

	text := bodyOf(t, w.call("GET", "/metrics", ""))
	for _, line := range []string{
		`tranche_admissions_total{reason="allow",result="admitted"} 1`,
		`tranche_admissions_total{reason="allow",result="replayed"} 1`,
		`tranche_admissions_total{reason="allow",result="checked"} 1`,
		`tranche_admissions_total{reason="region_share_spent",result="refused"} 1`,
		`tranche_admissions_total{reason="other",result="refused"} 1`,
		`tranche_refused_units_total{reason="region_share_spent"} 40`,
		`tranche_http_requests_total{code="2xx",route="/v1/admit"} 3`,
		`tranche_http_requests_total{code="4xx",route="/v1/admit"} 2`,
		`tranche_http_requests_total{code="5xx",route="/v1/admit"} 1`,
		`tranche_http_requests_total{code="2xx",route="/v1/settle"} 1`,
		`tranche_decision_duration_seconds_count 6`,
		`tranche_commit_duration_seconds_sum 0.003`,
		`tranche_batch_size_sum 17`,
		`tranche_sync_age_seconds 1.5`,
		`tranche_runway_seconds 90`,
		`tranche_open_reservations 3`,
		`tranche_stopped{reason="other"} 1`,
		`tranche_ready 1`,
		`tranche_policy_version 41`,
		`tranche_evidence_age_seconds 2.5`,
		`tranche_reconciliation_lag_seconds 75`,
		`tranche_reservation_conflicts_total 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("lacks %s", line)
		}
	}
	if strings.Contains(text, "tomorrow") || strings.Contains(text, "acme") {
		t.Error("a label that is no constant")
	}
	w.owner.status.Runway = nil
	if text := bodyOf(t, w.call("GET", "/metrics", "")); !strings.Contains(text, "tranche_runway_seconds +Inf\n") {
		t.Error("an endless runway is not told")
	}
}

// If this failed, our metrics would not read like others'.
func TestMetricsLint(t *testing.T) {
	w := newAPIWorld(t)
	w.owner.status.Stopped = allocation.HistoryLost
	w.owner.status.Budgets = 1
	families, err := w.config.Metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	// A second listener of the same node shares them.
	newAPI(w.config, w.owner)
	if _, err := w.config.Metrics.registry.Gather(); err != nil {
		t.Error(err)
	}
}
