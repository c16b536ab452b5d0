package scenario

import (
	"maps"
	"slices"
)

// Summary is one design's result for one budget. Numbers are units of the budget unless they say otherwise.
type Summary struct {
	Design string `json:"design"`
	Budget string `json:"budget"`
	Unit   string `json:"unit"`
	Totals
	Capacity    int64   `json:"capacity"`    // the limits of all periods
	Utilisation float64 `json:"utilisation"` // admitted, as a part of capacity
	OfPossible  float64 `json:"of_possible"` // admitted, as a part of what a perfect counter admits
	Missed      int64   `json:"missed"`      // what a perfect counter admits more
	Over        int64   `json:"over_admitted"`
	Lowered     int64   `json:"above_lowered"`        // admitted above a lowered limit, within what was handed out before
	P50Micros   int64   `json:"added_latency_p50_us"` // of admitted requests
	P99Micros   int64   `json:"added_latency_p99_us"`

	Regions []RegionSummary `json:"by_region"`
}

// RegionSummary is one region's part.
type RegionSummary struct {
	Region string `json:"region"`
	Totals
	P50Micros int64 `json:"added_latency_p50_us"`
	P99Micros int64 `json:"added_latency_p99_us"`
}

// Totals are sums over the run.
type Totals struct {
	Requests         int64            `json:"requests"`
	AdmittedRequests int64            `json:"admitted_requests"`
	RetriedRequests  int64            `json:"retried_requests"`
	Demanded         int64            `json:"demanded"`
	Admitted         int64            `json:"admitted"`
	Refused          int64            `json:"refused"`
	RefusedBy        map[string]int64 `json:"refused_by_reason"`
	StrandedSeconds  int64            `json:"stranded_permit_seconds"`
	StrandedMost     int64            `json:"stranded_most"`
}

func (r *Report) summarize(design, budget int) Summary {
	b := &r.Series[design].Budgets[budget]
	possible := int64(0)
	for i := range r.series(NamePossible, budget).Regions {
		possible += sum(r.series(NamePossible, budget).Regions[i].Spent)
	}
	out := Summary{
		Design: r.Series[design].Name, Budget: b.Budget, Unit: b.Unit, Capacity: b.Capacity, Over: sum(b.Over), Lowered: sum(b.Lowered),
		Totals: Totals{RefusedBy: map[string]int64{}},
	}
	all := map[int64]int64{}
	stranded := make([]int64, len(b.Limit))
	for i := range b.Regions {
		x := &b.Regions[i]
		of := map[int64]int64{}
		for _, d := range x.LatencyHistogram {
			of[d.Micros] += d.Requests
			all[d.Micros] += d.Requests
		}
		t := x.totals(0, len(x.Spent))
		t.Requests, t.AdmittedRequests, t.RetriedRequests, t.StrandedSeconds = x.Requests, x.Admitted, x.Retried, x.StrandedSeconds
		out.Regions = append(out.Regions, RegionSummary{
			Region: x.Region, Totals: t, P50Micros: percentile(of, 50), P99Micros: percentile(of, 99),
		})
		out.add(t)
		for k, n := range x.Stranded {
			stranded[k] += n
		}
	}
	out.StrandedMost = slices.Max(stranded)
	out.P50Micros, out.P99Micros = percentile(all, 50), percentile(all, 99)
	out.Utilisation, out.OfPossible = ratio(out.Admitted, out.Capacity), ratio(out.Admitted, possible)
	out.Missed = max(0, possible-out.Admitted)
	return out
}

// totals sums the steps from one up to, not including, another; what is not recorded by step is left out.
func (x *RegionSeries) totals(from, to int) Totals {
	t := Totals{RefusedBy: map[string]int64{}}
	t.Demanded, t.Admitted = sum(x.Demanded[from:to]), sum(x.Spent[from:to])
	for reason, list := range x.Refused {
		if n := sum(list[from:to]); n > 0 {
			t.RefusedBy[reason] = n
			t.Refused += n
		}
	}
	for _, n := range x.Stranded[from:to] {
		t.StrandedMost = max(t.StrandedMost, n)
	}
	return t
}

func (t *Totals) add(o Totals) {
	t.Requests += o.Requests
	t.AdmittedRequests += o.AdmittedRequests
	t.RetriedRequests += o.RetriedRequests
	t.Demanded += o.Demanded
	t.Admitted += o.Admitted
	t.Refused += o.Refused
	for reason, n := range o.RefusedBy {
		t.RefusedBy[reason] += n
	}
	t.StrandedSeconds += o.StrandedSeconds
	t.StrandedMost = max(t.StrandedMost, o.StrandedMost)
}

func sum(list []int64) int64 {
	var n int64
	for _, x := range list {
		n += x
	}
	return n
}

// ratio is a part of a whole, to four places, so that it reads the same everywhere.
func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(int64(float64(a)/float64(b)*10000+0.5)) / 10000
}

// percentile is the least delay that p per cent of the requests do not exceed; 0 without requests.
func percentile(of map[int64]int64, p int64) int64 {
	var all, seen int64
	for _, n := range of {
		all += n
	}
	for _, d := range slices.Sorted(maps.Keys(of)) {
		if seen += of[d]; seen*100 >= all*p {
			return d
		}
	}
	return 0
}
