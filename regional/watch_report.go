package regional

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"tranche/allocation"
)

// ShadowReport is what one node saw since it began to watch.
type ShadowReport struct {
	Region    string         `json:"region"`
	Node      string         `json:"node"`
	Shadow    bool           `json:"shadow"` // the node itself refuses nobody
	Since     time.Time      `json:"since"`
	Until     time.Time      `json:"until"`
	Decisions int64          `json:"decisions"` // that were watched
	Lost      int64          `json:"lost"`      // that came faster than they were gathered, and are counted nowhere else
	Budgets   []ShadowBudget `json:"budgets"`   // by name; "" has the causes that are no budget's
}

// ShadowBudget is one budget of a report.
type ShadowBudget struct {
	Budget      string `json:"budget"`
	Unit        string `json:"unit,omitempty"`
	Enforcement string `json:"enforcement,omitempty"` // as last seen
	Limit       int64  `json:"limit"`                 // of the whole budget, as last seen
	Share       int64  `json:"share"`                 // of the region
	Decided     int64  `json:"decided"`
	Asked       int64  `json:"asked"` // units
	// Impossible are the requests whose cost is above the whole limit; they are in no peak. GreatestCost is the most of them.
	Impossible   int64 `json:"impossible"`
	GreatestCost int64 `json:"greatest_impossible_cost,omitempty"`
	// WouldRefuse are the requests that enforcement refused, or would have.
	WouldRefuse int64         `json:"would_refuse"`
	Causes      []ShadowCause `json:"causes"`
	// Where the other limiter said otherwise: it allowed what enforcement would refuse, or denied what that would admit.
	Stricter int64       `json:"stricter_than_legacy"`
	Looser   int64       `json:"looser_than_legacy"`
	Peak     *ShadowPeak `json:"peak,omitempty"`
}

// ShadowCause is one reason for which a budget would have refused.
type ShadowCause struct {
	Reason      string         `json:"reason"`
	Count       int64          `json:"count"`
	Units       int64          `json:"units"`
	LegacyAllow int64          `json:"legacy_allow"`
	LegacyDeny  int64          `json:"legacy_deny"`
	To          []ShadowCaller `json:"to"`     // the first label sets that it met, most often first
	Others      int64          `json:"others"` // requests with other labels than those
}

// ShadowCaller is a set of labels that would have been refused.
type ShadowCaller struct {
	Labels map[string]string `json:"labels"`
	Count  int64             `json:"count"`
	Units  int64             `json:"units"`
}

// ShadowPeak is how much was asked in the period of which most was, and the limit that would have refused nobody.
type ShadowPeak struct {
	Period    string `json:"period"`
	Instance  string `json:"instance,omitempty"` // of a template
	Asked     int64  `json:"asked"`
	Periods   int    `json:"periods"`   // that were seen
	Whole     int    `json:"whole"`     // of those, how many were watched from beginning to end
	Suggested int64  `json:"suggested"` // a limit
	How       string `json:"how"`
}

// Headroom is what a suggested limit has above the peak, in percent.
const Headroom = 20

// SuggestLimit is a limit for a peak. Of one node it is what this node needs; add up the nodes of all regions.
func SuggestLimit(peak int64) int64 {
	return min(peak+(peak*Headroom+99)/100, allocation.MaxUnits)
}

const howSuggested = "the most that was asked of this node in one period, and 20 % more, rounded up; add up all nodes of all regions"

// Report tells what was seen.
func (w *Watch) Report(now time.Time) ShadowReport {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gather()
	out := ShadowReport{Since: w.since, Until: now.UTC(), Decisions: w.all, Lost: w.lost, Budgets: []ShadowBudget{}}
	for name, of := range w.budgets {
		out.Budgets = append(out.Budgets, of.report(name, allocation.At(w.since), allocation.At(now)))
	}
	slices.SortFunc(out.Budgets, func(a, b ShadowBudget) int { return cmp.Compare(a.Budget, b.Budget) })
	return out
}

func (of *watchedBudget) report(name string, since, now allocation.Instant) ShadowBudget {
	out := ShadowBudget{
		Budget: name, Unit: of.unit, Enforcement: of.enforcement, Limit: of.limit, Share: of.share, Decided: of.decided, Asked: of.asked,
		Impossible: of.impossible, GreatestCost: of.greatest, Stricter: of.stricter, Looser: of.looser, Causes: []ShadowCause{},
	}
	for reason, c := range of.causes {
		out.WouldRefuse += c.count
		cause := ShadowCause{
			Reason: string(reason), Count: c.count, Units: c.units, LegacyAllow: c.legacyAllow, LegacyDeny: c.legacyDeny,
			To: []ShadowCaller{}, Others: c.others,
		}
		for _, to := range c.callers {
			cause.To = append(cause.To, ShadowCaller{Labels: to.labels, Count: to.count, Units: to.units})
		}
		slices.SortFunc(cause.To, func(a, b ShadowCaller) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(allocation.Labels(a.Labels).Canonical(), allocation.Labels(b.Labels).Canonical()))
		})
		out.Causes = append(out.Causes, cause)
	}
	slices.SortFunc(out.Causes, func(a, b ShadowCause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Reason, b.Reason))
	})
	if len(of.sums) == 0 {
		return out
	}
	key, sum := of.peak()
	out.Peak = &ShadowPeak{
		Period: key.period.String(), Instance: key.instance, Asked: sum, Periods: len(of.periods), Suggested: SuggestLimit(sum), How: howSuggested,
	}
	for start, end := range of.periods {
		if start >= since && end <= now {
			out.Peak.Whole++
		}
	}
	return out
}

// shadowReport answers GET /v1/shadow.
func (a *api) shadowReport(w http.ResponseWriter, _ *http.Request, _ string) {
	report, s := a.watch.Report(a.config.Now()), a.Status()
	report.Region, report.Node, report.Shadow = s.Region, s.Node, a.config.Shadow
	writeJSON(w, http.StatusOK, "application/json", report)
}
