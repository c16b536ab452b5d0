package coordinator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are this replica's. Label values are constants; no tenant, budget or region is one.
type metrics struct {
	syncs     *prometheus.CounterVec
	duration  prometheus.Histogram
	refusals  prometheus.Counter
	conflicts prometheus.Counter
	opened    prometheus.Counter
	events    prometheus.Counter
	webhook   *prometheus.CounterVec
}

// The results of a sync call.
const (
	syncAnswered = "answered"
	syncRefused  = "refused"
	syncFailed   = "failed"
	syncInvalid  = "invalid"
)

func newMetrics(s *Service, registry prometheus.Registerer) *metrics {
	m := &metrics{
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tranche_coordinator_sync_calls_total", Help: "Sync calls of regions, by result.",
		}, []string{"result"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tranche_coordinator_sync_duration_seconds", Help: "Time to answer a sync call, with the time that it was held.",
			Buckets: []float64{.001, .005, .01, .05, .1, .5, 1, 2, 4, 8},
		}),
		refusals: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tranche_coordinator_contradictions_total", Help: "Sync calls that contradicted what was known: lost history on one side.",
		}),
		conflicts: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tranche_coordinator_commit_conflicts_total", Help: "Transactions that met a document changed by somebody else and were decided anew.",
		}),
		opened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tranche_coordinator_terms_opened_total", Help: "Terms opened by this replica's background work.",
		}),
	}
	m.ofEvents()
	for _, result := range []string{syncAnswered, syncRefused, syncFailed, syncInvalid} {
		m.syncs.WithLabelValues(result)
	}
	if registry == nil {
		return m
	}
	registry.MustRegister(m.syncs, m.duration, m.refusals, m.conflicts, m.opened, m.events, m.webhook)
	gauge := func(name, help string, value func() float64) {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	locked := func(count func() int) func() float64 {
		return func() float64 {
			s.state.mu.Lock()
			defer s.state.mu.Unlock()
			return float64(count())
		}
	}
	gauge("tranche_coordinator_budgets", "Budgets, without the deleted ones.", locked(s.state.liveBudgets))
	gauge("tranche_coordinator_ledgers", "Ledgers: terms that are not closed.", locked(func() int { return len(s.state.ledgers) }))
	gauge("tranche_coordinator_ledgers_behind", "Ledgers that have yet to follow their budget or the regions.", locked(func() int { return s.state.countBehind(s.instant()) }))
	gauge("tranche_coordinator_openings_late", "Budgets of which a term is due and not opened, by this replica's clock. Above 0: somebody should look.", locked(s.countLate))
	gauge("tranche_coordinator_regions_in_contact", "Regions that called within report_unreachable_after.", locked(s.inContact))
	gauge("tranche_coordinator_regions_out_of_contact", "Regions with an incarnation that did not call within report_unreachable_after.",
		locked(func() int { return s.state.withIncarnation() - s.inContact() }))
	registry.MustRegister(strandedCollector{s})
	gauge("tranche_coordinator_conservation_violations", "Ledgers that are not conserved. Anything above 0 is an alarm.",
		locked(func() int { return len(s.state.broken) }))
	gauge("tranche_coordinator_unknown_documents", "Documents of a format that this version does not know.", locked(func() int { return len(s.state.strange) }))
	gauge("tranche_coordinator_evidence_age_seconds", "Time since the last linearizable read of etcd that the picture is as new as.",
		func() float64 { return s.evidenceAge().Seconds() })
	gauge("tranche_coordinator_frozen", "1 while nothing is granted or opened, because etcd lost history.", locked(func() int {
		if s.state.frozen() {
			return 1
		}
		return 0
	}))
	gauge("tranche_coordinator_frozen_regions_missing", "Regions that have yet to state what they hold, for a freeze to end.", locked(func() int { return len(s.state.awaited()) }))
	gauge("tranche_coordinator_webhook_lag_seconds", "Age of the oldest event that the webhook has not taken.", s.webhookLag)
	gauge("tranche_coordinator_leading", "1 while this replica does the background work.", func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.leading {
			return 1
		}
		return 0
	})
	return m
}

func (m *metrics) sync(result string, took time.Duration) {
	m.syncs.WithLabelValues(result).Inc()
	m.duration.Observe(took.Seconds())
}

func (s *state) liveBudgets() int {
	n := 0
	for _, d := range s.budgets {
		if !d.value.Deleted {
			n++
		}
	}
	return n
}

func (s *state) withIncarnation() int {
	n := 0
	for _, r := range s.regions {
		if r.doc != nil && r.doc.value.Incarnation != "" {
			n++
		}
	}
	return n
}

// inContact counts regions, under the lock of the state.
func (s *Service) inContact() int {
	n, now := 0, s.now()
	for _, r := range s.state.regions {
		if r.doc != nil && r.doc.value.Incarnation != "" && r.inContact(now, s.config.ReportUnreachableAfter) {
			n++
		}
	}
	return n
}

// ofEvents makes the metrics of the feed.
func (m *metrics) ofEvents() {
	m.events = prometheus.NewCounter(prometheus.CounterOpts{Name: "tranche_coordinator_events_total", Help: "Events that this replica wrote to the feed."})
	m.webhook = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tranche_coordinator_webhook_attempts_total", Help: "Attempts to deliver an event, by result."}, []string{"result"})
	for _, result := range []string{webhookDelivered, webhookFailed, webhookGivenUp} {
		m.webhook.WithLabelValues(result)
	}
}
