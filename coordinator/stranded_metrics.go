package coordinator

import (
	"github.com/prometheus/client_golang/prometheus"
)

// maxUnitLabels bounds how many units are told apart in metrics; of a deployment with more, the rest is left out.
const maxUnitLabels = 50

// strandedCollector makes the report once for all its metrics. Sums are by unit, since units are never added up; a unit is
// a word of the operator's own, of which there are a few. What is written off is no longer counted as stranded.
type strandedCollector struct{ service *Service }

var (
	strandedDesc = prometheus.NewDesc("tranche_coordinator_stranded_permits",
		"Stranded permits of the running periods, as last stated, by unit.", []string{"unit"}, nil)
	strandedAheadDesc = prometheus.NewDesc("tranche_coordinator_stranded_ahead_permits",
		"Stranded permits of the later periods of the opened terms, by unit.", []string{"unit"}, nil)
	exposedDesc = prometheus.NewDesc("tranche_coordinator_exposed_permits",
		"The most that owners that cannot be asked may still come to spend in the running periods, by unit.", []string{"unit"}, nil)
	writtenOffDesc = prometheus.NewDesc("tranche_coordinator_written_off_permits",
		"Permits of the running periods that were written off, by unit.", []string{"unit"}, nil)
	strandedLinesDesc = prometheus.NewDesc("tranche_coordinator_stranded_lines",
		"Lines of the stranded report: a budget's part of an incarnation, by cause.", []string{"cause"}, nil)
	compensatedDesc = prometheus.NewDesc("tranche_coordinator_compensations_active",
		"Budgets whose limit is raised while a region is away.", nil, nil)
)

// Describe names the metrics.
func (c strandedCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{strandedDesc, strandedAheadDesc, exposedDesc, writtenOffDesc, strandedLinesDesc, compensatedDesc} {
		out <- d
	}
}

// Collect makes the report.
func (c strandedCollector) Collect(out chan<- prometheus.Metric) {
	set := func(d *prometheus.Desc, value int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	report := c.service.stranded(StrandedFilter{})
	for i, unit := range sortedUnits(report.Total) {
		if i == maxUnitLabels {
			break
		}
		t := report.Total[unit]
		set(strandedDesc, t.Stranded, unit)
		set(strandedAheadDesc, t.AheadStranded, unit)
		set(exposedDesc, t.Exposed, unit)
		set(writtenOffDesc, t.WrittenOff, unit)
	}
	lines := map[string]int64{CauseUnreachable: 0, CauseLostHistory: 0, CauseFrozen: 0}
	for _, l := range report.Lines {
		lines[l.Cause]++
	}
	for cause, n := range lines {
		set(strandedLinesDesc, n, cause)
	}
	s := c.service.state
	s.mu.Lock()
	active := int64(0)
	for _, d := range s.compensations {
		if d.value.State == CompensationActive {
			active++
		}
	}
	s.mu.Unlock()
	set(compensatedDesc, active)
}
