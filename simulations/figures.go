package simulations

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/fleet"
)

// What the figures must reach.
const (
	leastUtilisation   = 0.99
	mostWritesPer100   = 5.0
	figuresRoundTrip   = 80 * time.Millisecond
	figuresOffered     = 1.5 // times the limit
	callersPerMinute   = 10
	callersAskedBeyond = 2 // requests a minute beyond its limit that each caller makes
	cutAfter           = 5 * time.Second
)

// FiguresOptions says how much is measured.
type FiguresOptions struct {
	Seed     uint64
	Limits   []int64           // nil: 300 and 10,000
	Callers  int               // 0: 1,000
	Progress func(what string) // hears what is measured; nil: nobody does
}

// Figures are what policy demand and policy home reach with the real services, in a simulated world in which nothing fails
// but what is cut off.
type Figures struct {
	RoundTrip float64         `json:"round_trip_ms"`
	Demand    []DemandFigure  `json:"demand"`
	Callers   []CallersFigure `json:"callers"`
	Missed    []string        `json:"missed"` // in words; empty: all was reached
}

// DemandFigure is one minute of a budget of policy demand over three regions.
type DemandFigure struct {
	Limit        int64   `json:"limit"`
	Skew         string  `json:"skew"` // what part of the load is where, in percent
	Cut          bool    `json:"cut_off"`
	Offered      int     `json:"offered"`
	Admitted     int64   `json:"admitted"`
	Available    int64   `json:"available"`    // the limit, less what regions that are cut off hold
	Utilisation  float64 `json:"utilisation"`  // admitted of what was available; with Cut, by the region in contact
	Static       float64 `json:"static_split"` // what an even split would admit of the same load, of the limit
	LedgerWrites int     `json:"ledger_writes"`
	WritesPer100 float64 `json:"ledger_writes_per_100_admissions"`
	Refused      int     `json:"region_share_spent"`
	Took         int     `json:"took_more_than_50_ms"` // answers
}

// CallersFigure is one minute of many callers, each with a limit of its own and at home in one of four regions.
type CallersFigure struct {
	Callers      int      `json:"callers"`
	Cut          string   `json:"cut_off,omitempty"` // a region without contact to the coordinator
	Exact        int      `json:"callers_with_their_limit"`
	Elsewhere    int      `json:"asked_elsewhere"`
	Sent         int      `json:"sent_home"` // of those, told their home's name
	LedgerWrites int      `json:"ledger_writes"`
	Stranded     []string `json:"stranded_regions"`
}

// MeasureFigures measures them all. An error is a broken invariant, or that of ctx.
func MeasureFigures(ctx context.Context, o FiguresOptions) (Figures, error) {
	f := Figures{RoundTrip: float64(figuresRoundTrip.Milliseconds()), Missed: []string{}}
	if o.Limits == nil {
		o.Limits = []int64{300, 10_000}
	}
	if o.Callers == 0 {
		o.Callers = 1000
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	for _, limit := range o.Limits {
		for _, skew := range [][3]int{{34, 33, 33}, {50, 30, 20}, {80, 15, 5}, {100, 0, 0}} {
			o.Progress(fmt.Sprintf("demand, limit %d, skew %s", limit, skewText(skew)))
			if err := f.demand(ctx, o.Seed, limit, skew, false); err != nil {
				return f, err
			}
		}
		o.Progress(fmt.Sprintf("demand, limit %d, two regions cut off", limit))
		if err := f.demand(ctx, o.Seed, limit, [3]int{80, 10, 10}, true); err != nil {
			return f, err
		}
	}
	for _, cut := range []int{-1, 1} {
		o.Progress(fmt.Sprintf("%d callers", o.Callers))
		if err := f.callers(ctx, o.Seed, o.Callers, cut); err != nil {
			return f, err
		}
	}
	return f, nil
}

var figureRegions = []string{"ap", "eu", "sa", "us"}

func skewText(skew [3]int) string { return fmt.Sprintf("%d:%d:%d", skew[0], skew[1], skew[2]) }

func (f *Figures) demand(ctx context.Context, seed uint64, limit int64, skew [3]int, cut bool) error {
	d := fleet.Drive{
		Seed: seed, Regions: figureRegions[:3], RoundTrip: figuresRoundTrip, CutAt: cutAfter,
		Budget: allocation.Budget{
			Name: "figures", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute}, WaitForShare: 1,
			Allocation: allocation.Policy{Policy: allocation.PolicyDemand},
		},
	}
	even := allocation.SplitFixed(limit, map[string]int64{"ap": 1, "eu": 1, "sa": 1})
	row := DemandFigure{Limit: limit, Skew: skewText(skew), Cut: cut, Available: limit}
	var static int64
	for i, part := range skew {
		n := int(figuresOffered * float64(limit) * float64(part) / 100)
		d.Offered = append(d.Offered, n)
		static += min(int64(n), even[figureRegions[i]])
	}
	if cut {
		d.Cut = []bool{false, true, true}
	}
	out, err := fleet.RunDrive(ctx, d)
	if err != nil {
		return fmt.Errorf("limit %d, skew %s: %w", limit, row.Skew, err)
	}
	row.Offered, row.Admitted, row.Static = out.Offered, out.Spent, float64(static)/float64(limit)
	row.LedgerWrites, row.WritesPer100 = out.LedgerWrites, 100*float64(out.LedgerWrites)/float64(max(1, out.Spent))
	row.Refused, row.Took = out.Reasons[allocation.RegionShareSpent], out.Waited
	used := out.Spent
	if cut {
		row.Available = limit - out.Held[1] - out.Held[2]
		used = int64(out.Admitted[0])
	}
	row.Utilisation = float64(used) / float64(max(1, row.Available))
	f.Demand = append(f.Demand, row)
	f.judge(row)
	return nil
}

func (f *Figures) judge(row DemandFigure) {
	name := fmt.Sprintf("limit %d, skew %s", row.Limit, row.Skew)
	if row.Cut {
		name += ", two regions cut off"
	}
	if row.Admitted > row.Limit {
		f.missed("%s: %d were admitted", name, row.Admitted)
	}
	if row.Utilisation < leastUtilisation {
		f.missed("%s: %.3f of what was available was used, and %.2f is wanted", name, row.Utilisation, leastUtilisation)
	}
	if row.Limit >= 10_000 && row.WritesPer100 > mostWritesPer100 {
		f.missed("%s: %.1f ledger writes per 100 admissions, and at most %.0f are wanted", name, row.WritesPer100, mostWritesPer100)
	}
}

func (f *Figures) missed(format string, args ...any) {
	f.Missed = append(f.Missed, fmt.Sprintf(format, args...))
}

// callers drives callers that ask at home, and some that ask elsewhere; cut is the region that loses the coordinator.
func (f *Figures) callers(ctx context.Context, seed uint64, n, cut int) error {
	limit := int64(callersPerMinute)
	b := allocation.Budget{
		Name: "callers/{caller}", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
		Allocation: allocation.Policy{Policy: allocation.PolicyHome, HashOf: "caller"},
	}
	at := map[string][]string{}
	home := map[string]string{}
	for i := range n {
		caller := fmt.Sprint("caller-", i)
		home[caller], _ = b.Home("", allocation.Labels{"caller": caller}, figureRegions)
		at[home[caller]] = append(at[home[caller]], caller)
	}
	row := CallersFigure{Callers: n}
	d := fleet.Drive{Seed: seed, Regions: figureRegions, RoundTrip: figuresRoundTrip, Budget: b, CutAt: cutAfter}
	strays := max(1, n/40) // requests to each region from callers of the next one
	for i, region := range figureRegions {
		d.Offered = append(d.Offered, strays+(callersPerMinute+callersAskedBeyond)*len(at[region]))
		d.Cut = append(d.Cut, i == cut)
		row.Elsewhere += min(strays, len(at[figureRegions[(i+1)%4]]))
	}
	d.Labels = func(region, i int) allocation.Labels {
		here := at[figureRegions[region]]
		if i < strays {
			here = at[figureRegions[(region+1)%4]]
		}
		return allocation.Labels{"tenant": "figures", "caller": here[i%len(here)]}
	}
	if cut < 0 {
		d.Cut = nil
	} else {
		row.Cut = figureRegions[cut]
	}
	out, err := fleet.RunDrive(ctx, d)
	if err != nil {
		return fmt.Errorf("%d callers: %w", n, err)
	}
	for caller, region := range home {
		if out.By[caller] == callersPerMinute {
			row.Exact++
		}
		if out.Homes[caller] == region {
			row.Sent++
		}
	}
	row.LedgerWrites, row.Stranded = out.LedgerWrites, []string{}
	for region, exposed := range out.Stranded {
		if exposed > 0 {
			row.Stranded = append(row.Stranded, region)
		}
	}
	slices.Sort(row.Stranded)
	f.Callers = append(f.Callers, row)
	f.judgeCallers(row)
	return nil
}

func (f *Figures) judgeCallers(row CallersFigure) {
	name := fmt.Sprintf("%d callers", row.Callers)
	wanted := ""
	if row.Cut != "" {
		name, wanted = name+", "+row.Cut+" cut off", row.Cut
	}
	if row.Exact != row.Callers {
		f.missed("%s: %d got exactly their %d", name, row.Exact, callersPerMinute)
	}
	if row.Sent != row.Elsewhere {
		f.missed("%s: %d of %d that asked elsewhere were told their home", name, row.Sent, row.Elsewhere)
	}
	if row.LedgerWrites > 0 {
		f.missed("%s: %d ledger writes, and none is wanted", name, row.LedgerWrites)
	}
	if got := strings.Join(row.Stranded, ", "); got != wanted {
		f.missed("%s: stranded in %q, and %q is wanted", name, got, wanted)
	}
}
