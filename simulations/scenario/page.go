package scenario

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"

	"tranche/allocation"
)

//go:embed page.html.tmpl
var pageText string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// page is what the template shows.
type page struct {
	Report
	Title   string
	Command string
	Budgets []pageBudget
}

// pageBudget is the part of one budget.
type pageBudget struct {
	Name, Says string
	Verdict    []string // the trade in sentences
	Tiles      []tile
	TradeLeft  []template.HTML // Tranche's pictures
	TradeRight []template.HTML // the home's
	Trips      []trip
	Incidents  []pageIncident
	Designs    [][]string
	Bars       template.HTML
	Regions    []pageRegion
	Over       template.HTML
}

// tile sets one number of Tranche beside that of the single home.
type tile struct{ What, Ours, Theirs, Note string }

// trip is what a region's callers wait for.
type trip struct{ Region, Requests, Ours, Home, Row string }

type pageRegion struct {
	Name string
	Left template.HTML
	Hold template.HTML
}

type pageIncident struct {
	Head string
	Rows [][]string
}

// HTML is the report as a page with charts.
func (r Report) HTML() ([]byte, error) {
	p := page{Report: r, Title: "Simulation: " + r.Scenario, Command: fmt.Sprintf("tranche simulate %s.yaml --seed %d --out DIR", r.Scenario, r.Seed)}
	for i, b := range r.Declared {
		v := view{r: &r, budget: i, unit: b.Unit}
		p.Budgets = append(p.Budgets, v.page(b))
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, fmt.Errorf("write the page of %s: %w", r.Scenario, err)
	}
	return out.Bytes(), nil
}

// When tells when an event was.
func (e ReportEvent) When() string {
	if e.Until > 0 {
		return clock(e.At) + "–" + clock(e.Until)
	}
	return clock(e.At)
}

// HomeName is the region of the single home.
func (r Report) HomeName() string { return r.title(NameHome) }

func (v view) page(b allocation.Budget) pageBudget {
	ours, home := v.summary(NameTranche), v.summary(NameHome)
	out := pageBudget{
		Name: b.Name, Says: fmt.Sprintf("%s %s %s", grouped(b.LimitOrZero()), b.Unit, b.Window),
		Verdict: v.verdict(), Tiles: tiles(ours, home), Designs: v.designs(), Bars: v.bars(), Over: v.over(),
		Incidents: v.incidents(), Trips: v.trips(),
	}
	out.TradeLeft, out.TradeRight = v.trade()
	for i, region := range v.r.Regions {
		out.Regions = append(out.Regions, pageRegion{region.Name, v.flow(i), v.holdings(i)})
	}
	return out
}

func tiles(ours, home Summary) []tile {
	return []tile{
		{"admitted", percent(ours.OfPossible), percent(home.OfPossible), "of what a perfect counter admits of this demand"},
		{"refused", grouped(ours.Refused), grouped(home.Refused), ours.Unit + ", for whatever reason"},
		{"of it for a failure", grouped(ours.failed()), grouped(home.failed()), "not because a limit or a share was spent: what could not be reached or was stranded"},
		{"stranded at most", grouped(ours.StrandedMost), grouped(home.StrandedMost), ours.Unit + " that nobody else may use, as last stated"},
		{"added latency, p99", millis(ours.P99Micros), millis(home.P99Micros), "round trips between regions in a request's path"},
		{"over the limit", grouped(ours.Over), grouped(home.Over), ours.Unit + " admitted above the limit"},
	}
}

// failed is what was refused for another reason than that a limit, or the region's share of it, was spent.
func (s Summary) failed() int64 {
	return s.Refused - s.RefusedBy[string(allocation.CeilingReached)] - s.RefusedBy[string(allocation.RegionShareSpent)] -
		s.RefusedBy[string(allocation.CostExceedsLimit)]
}

// designs is the table of all designs.
func (v view) designs() [][]string {
	var rows [][]string
	for _, d := range v.r.Designs {
		s := v.summary(d.Name)
		rows = append(rows, []string{
			d.Title, grouped(s.Admitted), percent(s.Utilisation), percent(s.OfPossible), grouped(s.Missed), grouped(s.Refused),
			reasons(s.RefusedBy), permitHours(s.StrandedSeconds), grouped(s.Over), millis(s.P50Micros), millis(s.P99Micros),
		})
	}
	return rows
}

// reasons lists what was refused by reason, the most first.
func reasons(by map[string]int64) string {
	names := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(names, func(a, b string) int {
		switch {
		case by[a] > by[b]:
			return -1
		case by[a] < by[b]:
			return 1
		}
		return 0
	})
	text := ""
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += name + " " + grouped(by[name])
	}
	return text
}

func (v view) trips() []trip {
	var out []trip
	ours, home, row := v.summary(NameTranche), v.summary(NameHome), v.summary(NameRow)
	for i, region := range ours.Regions {
		out = append(out, trip{
			region.Region, percentOf(region.Requests, ours.Requests), millis(region.P99Micros),
			millis(home.Regions[i].P99Micros), millis(row.Regions[i].P99Micros),
		})
	}
	return out
}

// incidents are the tables of what each lasting event cost.
func (v view) incidents() []pageIncident {
	var out []pageIncident
	for _, x := range v.r.Incidents {
		if x.Budget != v.r.Declared[v.budget].Name {
			continue
		}
		i := pageIncident{Head: x.when() + ": " + x.Says}
		for _, p := range x.Designs {
			if p.Design == NamePossible {
				continue
			}
			elsewhere := "–"
			if p.Elsewhere.Demanded > 0 {
				elsewhere = grouped(p.Elsewhere.Refused)
			}
			i.Rows = append(i.Rows, []string{
				v.r.title(p.Design), percentOf(p.There.Admitted, p.There.Demanded), grouped(p.There.Refused), elsewhere,
				reasons(merged(p.There.RefusedBy, p.Elsewhere.RefusedBy)), grouped(p.Stranded), grouped(p.Over),
			})
		}
		out = append(out, i)
	}
	return out
}

// when tells how long it lasted, and how long it was felt if that was longer.
func (x Incident) when() string {
	text := clock(x.At) + "–" + clock(x.Until)
	if x.Felt > x.Until {
		text += ", felt until " + clock(x.Felt)
	}
	return text
}

func merged(a, b map[string]int64) map[string]int64 {
	out := map[string]int64{}
	for _, m := range []map[string]int64{a, b} {
		for name, n := range m {
			out[name] += n
		}
	}
	return out
}
