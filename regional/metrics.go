package regional

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"tranche/allocation"
)

// Metrics are what a node counts. Label values are constants: a tenant, a caller or a budget is never one.
type Metrics struct {
	registry  *prometheus.Registry
	admitted  map[string]map[allocation.Reason]counter // by result
	refused   map[allocation.Reason]counter
	decisions prometheus.Histogram
	commits   prometheus.Histogram
	batches   prometheus.Histogram
	requests  *prometheus.CounterVec
	limits    map[string]counter // Envoy's calls by code
	shadows   map[allocation.Reason]counter
	upstream  *prometheus.CounterVec // by capability, a word of the operator's, and outcome
	records   map[string]counter     // of refusals that are kept in full, by fate

	startedOver prometheus.Counter
	conflicts   prometheus.Counter
}

type counter = prometheus.Counter

// The results of an admission, as metrics name them.
const (
	resultAdmitted = "admitted"
	resultReplayed = "replayed"
	resultRefused  = "refused"
	resultChecked  = "checked"
)

// otherReason stands in metrics for a reason that this version does not know.
const otherReason allocation.Reason = "other"

var (
	latencyBuckets = []float64{.0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}
	batchBuckets   = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, MaxBatchRequests}
)

// NewMetrics registers a node's metrics. It panics if they are there already: a program's mistake.
func NewMetrics(registry *prometheus.Registry) *Metrics {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
		registry.MustRegister(h)
		return h
	}
	vector := func(name, help string, labels ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
		registry.MustRegister(v)
		return v
	}
	m := &Metrics{
		registry: registry, admitted: map[string]map[allocation.Reason]counter{}, refused: map[allocation.Reason]counter{},
		shadows:   map[allocation.Reason]counter{},
		decisions: histogram("tranche_decision_duration_seconds", "Time from the arrival of a request for decisions to its answer.", latencyBuckets),
		commits:   histogram("tranche_commit_duration_seconds", "Time that the database took to commit one batch of decisions.", latencyBuckets),
		batches:   histogram("tranche_batch_size", "Requests that were decided in one transaction.", batchBuckets),
		requests:  vector("tranche_http_requests_total", "HTTP requests by route and class of status.", "route", "code"),
	}
	m.startedOver = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tranche_started_over_total", Help: "How often this node made its region a new incarnation, which holds nothing: after lost history, or a seal.",
	})
	m.conflicts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tranche_reservation_conflicts_total", Help: "Requests that were decided anew, since another transaction had changed the rows or ids that they were decided on. Nothing was charged for them before.",
	})
	registry.MustRegister(m.startedOver, m.conflicts)
	admissions := vector("tranche_admissions_total", "Decisions by result and reason; checks, which charge nothing, are a result of their own.", "result", "reason")
	refused := vector("tranche_refused_units_total", "Units that were asked of the budget that refused, by reason. Units of different kinds are added up.", "reason")
	limits := vector("tranche_envoy_requests_total", "Calls of Envoy's rate limit service by the code of the answer.", "code")
	m.upstream = vector("tranche_upstream_outcomes_total", "What gateways said that the upstream did with admitted requests, by capability and outcome. No refusal of ours is among them.", "capability", "outcome")
	records := vector("tranche_refusal_records_total", "Refusals that were to be kept in full, by what became of them: kept, dropped (more than the node keeps), or lost (the database did not take them).", "fate")
	m.records = map[string]counter{}
	for _, fate := range []string{recordKept, recordDropped, recordLost} {
		m.records[fate] = records.WithLabelValues(fate)
	}
	m.limits = map[string]counter{}
	for _, code := range []string{"ok", "over_limit", "unavailable", "unauthenticated"} {
		m.limits[code] = limits.WithLabelValues(code)
	}
	shadows := vector("tranche_shadow_total", "Calls that were let through in shadow, by the reason for which enforcement would have refused them.", "reason")
	reasons := []allocation.Reason{otherReason}
	for _, a := range allocation.Answers() {
		reasons = append(reasons, a.Reason)
	}
	for _, reason := range reasons {
		if reason != allocation.Allow {
			m.shadows[reason] = shadows.WithLabelValues(string(reason))
			m.refused[reason] = refused.WithLabelValues(string(reason))
		}
		for _, result := range []string{resultAdmitted, resultReplayed, resultRefused, resultChecked} {
			if admits := result == resultAdmitted || result == resultReplayed; result != resultChecked && admits != (reason == allocation.Allow) {
				continue
			}
			if m.admitted[result] == nil {
				m.admitted[result] = map[allocation.Reason]counter{}
			}
			m.admitted[result][reason] = admissions.WithLabelValues(result, string(reason))
		}
	}
	return m
}

// ObserveCommit records how long the database took to commit one batch.
func (m *Metrics) ObserveCommit(took time.Duration) { m.commits.Observe(took.Seconds()) }

// ObserveBatch records how many requests one transaction decided.
func (m *Metrics) ObserveBatch(requests int) { m.batches.Observe(float64(requests)) }

// observeDecision records how long a request for decisions took.
func (m *Metrics) observeDecision(took time.Duration) { m.decisions.Observe(took.Seconds()) }

// countShadow counts what was let through.
func (m *Metrics) countShadow(d *allocation.Decision) {
	if d.Would == "" {
		return
	}
	c, known := m.shadows[d.Would]
	if !known {
		c = m.shadows[otherReason]
	}
	c.Inc()
}

// countDecision counts one decision on an admission; what is said of an earlier admission does not count.
func (m *Metrics) countDecision(d *allocation.Decision) {
	m.countShadow(d)
	result := resultRefused
	switch {
	case d.Op == allocation.Check:
		result = resultChecked
	case d.Op != allocation.Spend && d.Op != allocation.Reserve:
		return
	case d.Admitted() && d.Replayed:
		result = resultReplayed
	case d.Admitted():
		result = resultAdmitted
	}
	counters := m.admitted[result]
	c, known := counters[d.Reason]
	if !known {
		c = counters[otherReason]
	}
	c.Inc()
	if result != resultRefused {
		return
	}
	if b := blamed(d); b != nil {
		units, known := m.refused[d.Reason]
		if !known {
			units = m.refused[otherReason]
		}
		units.Add(float64(max(0, b.Requested)))
	}
}

// envoy is the counter of an answer of Envoy's rate limit service.
func (m *Metrics) envoy(code string) counter { return m.limits[code] }

// route is the counters of one route by class of status.
func (m *Metrics) route(path string) (counts [6]counter) {
	for class := 1; class < len(counts); class++ {
		counts[class] = m.requests.WithLabelValues(path, string('0'+rune(class))+"xx")
	}
	return counts
}

// handler serves the registry.
func (m *Metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Registry: m.registry})
}

// watch registers gauges that are read from the node's status when somebody asks. A second handler of one node shares them.
func (m *Metrics) watch(b Backend) {
	err := m.registry.Register(statusCollector{b})
	if already := (prometheus.AlreadyRegisteredError{}); err != nil && !errors.As(err, &already) {
		panic(err)
	}
}

// statusCollector turns a NodeStatus into gauges.
type statusCollector struct{ backend Backend }

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	readyGauge        = gauge("tranche_ready", "1 while admissions commit, else 0.")
	stoppedGauge      = gauge("tranche_stopped", "1 for the reason for which the owner admits nothing.", "reason")
	syncAgeGauge      = gauge("tranche_sync_age_seconds", "Time since the last successful sync with the coordinator.")
	runwayGauge       = gauge("tranche_runway_seconds", "How long the region can go on alone, by the budget whose terms end first.")
	reservationsGauge = gauge("tranche_open_reservations", "Reservations that are neither settled nor released nor lapsed.")
	budgetsGauge      = gauge("tranche_budgets", "Budgets that the region knows.")
	snapshotGauge     = gauge("tranche_oldest_snapshot_seconds", "How long another transaction of the database, such as a dump, has kept dead rows from being pruned; 0: none is seen.")
	evidenceGauge     = gauge("tranche_evidence_age_seconds", "Time since the coordinator read the ledgers that this region goes by; absent: it never told.")
	policyGauge       = gauge("tranche_policy_version", "The coordinator's configuration number that this region's budgets, keys and blocks are of.")
	lagGauge          = gauge("tranche_reconciliation_lag_seconds", "Age of the oldest reservation that is neither settled nor released nor lapsed; 0: there is none.")
)

// Describe names the gauges.
func (c statusCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyGauge, stoppedGauge, syncAgeGauge, runwayGauge, reservationsGauge, budgetsGauge, snapshotGauge, evidenceGauge, policyGauge, lagGauge} {
		out <- d
	}
}

// Collect reads the status once.
func (c statusCollector) Collect(out chan<- prometheus.Metric) {
	s := c.backend.Status()
	set := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	ready := 0.0
	if s.Ready {
		ready = 1
	}
	set(readyGauge, ready)
	if s.Stopped != "" {
		set(stoppedGauge, 1, string(knownReason(s.Stopped)))
	}
	set(syncAgeGauge, s.Sync.AgeSeconds)
	switch {
	case s.Runway != nil:
		set(runwayGauge, float64(s.Runway.Seconds))
	case s.Budgets > 0: // none of them ever ends
		set(runwayGauge, math.Inf(1))
	}
	set(reservationsGauge, float64(s.Reservations.Open))
	set(budgetsGauge, float64(s.Budgets))
	set(snapshotGauge, s.OldestSnapshotSeconds)
	set(policyGauge, float64(s.Config))
	set(lagGauge, s.Reservations.OldestSeconds)
	if age := s.Sync.EvidenceAgeSeconds; age != nil {
		set(evidenceGauge, *age)
	}
}

// knownReason keeps label values within the constants.
func knownReason(r allocation.Reason) allocation.Reason {
	for _, a := range allocation.Answers() {
		if a.Reason == r {
			return r
		}
	}
	return otherReason
}
