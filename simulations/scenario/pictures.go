package scenario

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"

	"tranche/simulations/scenario/internal/chart"
)

// reasonOrder is how reasons lie on each other in a picture: what a design is to blame for first.
var reasonOrder = []string{
	"capacity_stranded", Unreachable, "region_share_spent", "no_allocation", "database_unavailable", "starting", NodeDown, "overloaded",
	"ceiling_reached",
}

func (v view) base(title, unit string) chart.Chart {
	c := chart.Chart{Title: title, Unit: unit, Start: v.r.Start.Time(), Step: v.r.Step.Std(), Steps: int(v.r.Duration / v.r.Step)}
	for _, e := range v.r.Events {
		at, until := float64(e.At)/float64(v.r.Step), float64(e.Until)/float64(v.r.Step)
		if e.Until > 0 {
			c.Spans = append(c.Spans, chart.Span{From: at, To: until, Label: e.Says})
		} else {
			c.Marks = append(c.Marks, chart.Span{From: at, Label: clock(e.At) + " " + e.Says})
		}
	}
	return c
}

// perSecond turns what happened in each step into a rate.
func (v view) perSecond(list []int64) []float64 {
	out := make([]float64, len(list))
	for i, n := range list {
		out[i] = float64(n) / float64(v.r.Step)
	}
	return out
}

func plain(list []int64) []float64 {
	out := make([]float64, len(list))
	for i, n := range list {
		out[i] = float64(n)
	}
	return out
}

func (v view) series(design string) *BudgetSeries { return v.r.series(design, v.budget) }

// refusals are the stack of what some regions of a design refused, by reason.
func (v view) refusals(regions []RegionSeries) []chart.Line {
	by := map[string][]int64{}
	for i := range regions {
		for reason, list := range regions[i].Refused {
			if by[reason] == nil {
				by[reason] = make([]int64, len(list))
			}
			for k, n := range list {
				by[reason][k] += n
			}
		}
	}
	names := slices.Sorted(maps.Keys(by))
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	var lines []chart.Line
	for _, name := range names {
		lines = append(lines, chart.Line{Name: name, Class: "r-" + name, Y: v.perSecond(by[name]), Fill: true})
	}
	return lines
}

func rank(reason string) int {
	if i := slices.Index(reasonOrder, reason); i >= 0 {
		return i
	}
	return len(reasonOrder)
}

// stranded adds up what a design's regions show as stranded; truly is what they really could still spend in that moment.
func (v view) stranded(design string) (stated, truly []float64) {
	b := v.series(design)
	stated, truly = make([]float64, len(b.Limit)), make([]float64, len(b.Limit))
	for i := range b.Regions {
		for k, n := range b.Regions[i].Stranded {
			stated[k] += float64(n)
			if n > 0 {
				truly[k] += float64(min(n, b.Regions[i].Held[k]))
			}
		}
	}
	return stated, truly
}

// trade are the pictures of Tranche and of the single home, side by side on the same scales.
func (v view) trade() (ours, theirs []template.HTML) {
	pair := func(a, b chart.Chart) {
		a.Width, b.Width = 560, 560
		top := max(a.Max(), b.Max())
		a.Top, b.Top = top, top
		ours, theirs = append(ours, template.HTML(a.SVG())), append(theirs, template.HTML(b.SVG()))
	}
	a, b := v.base("Refused, and why", v.unit+" per second"), v.base("Refused, and why", v.unit+" per second")
	a.Stack, b.Stack = v.refusals(v.series(NameTranche).Regions), v.refusals(v.series(NameHome).Regions)
	pair(a, b)
	stated, truly := v.stranded(NameTranche)
	a, b = v.base("Stranded: permits that nobody else may use", v.unit), v.base("Added to each admitted request: the way to the home", "ms")
	a.Lines = []chart.Line{
		{Name: "as last stated, in the running period", Class: "c-stranded", Y: stated, Fill: true, Peak: true},
		{Name: "of which the region that is cut off really had left", Class: "c-ours", Y: truly},
	}
	for i, region := range v.series(NameHome).Regions {
		list := plain(region.Latency)
		for k := range list {
			list[k] /= 1000
			if region.Spent[k] == 0 {
				list[k] = math.NaN() // nobody was admitted
			}
		}
		b.Lines = append(b.Lines, chart.Line{Name: region.Region, Class: fmt.Sprintf("c-region%d", i%6), Y: list})
	}
	a.Width, b.Width = 560, 560
	return append(ours, template.HTML(a.SVG())), append(theirs, template.HTML(b.SVG()))
}

// flow is a region's demand with Tranche, and what became of it.
func (v view) flow(region int) template.HTML {
	x := v.series(NameTranche).Regions[region]
	c := v.base("What was asked for, spent and refused", v.unit+" per second")
	c.Width = 560
	c.Stack = append([]chart.Line{{Name: "spent", Class: "c-ours", Y: v.perSecond(x.Spent), Fill: true}}, v.refusals([]RegionSeries{x})...)
	c.Lines = []chart.Line{{Name: "demanded", Class: "c-demand", Y: v.perSecond(x.Demanded)}}
	return template.HTML(c.SVG())
}

// holdings are what a region holds with Tranche.
func (v view) holdings(region int) template.HTML {
	x := v.series(NameTranche).Regions[region]
	c := v.base("What it holds of the running period", v.unit)
	c.Width = 560
	c.Lines = []chart.Line{
		{Name: "stranded, as last stated", Class: "c-stranded", Y: plain(x.Stranded), Fill: true, Peak: true},
		{Name: "granted", Class: "c-granted", Y: plain(x.Granted)},
		{Name: "held, not yet spent", Class: "c-held", Y: plain(x.Held), Dash: true},
	}
	return template.HTML(c.SVG())
}

// over shows what designs admitted above the limit, if any did.
func (v view) over() template.HTML {
	c := v.base("Admitted above the limit, in all", v.unit)
	for i, d := range v.r.Designs {
		b := &v.r.Series[i].Budgets[v.budget]
		if d.Name == NamePossible || sum(b.Over) == 0 && d.Name != NameTranche {
			continue
		}
		line := chart.Line{Name: d.Title, Class: "d-" + d.Name, Y: make([]float64, len(b.Over))}
		total := int64(0)
		for k, n := range b.Over {
			total += n
			line.Y[k] = float64(total)
		}
		c.Lines = append(c.Lines, line)
	}
	if len(c.Lines) < 2 {
		return ""
	}
	c.Width = 1140
	return template.HTML(c.SVG())
}

// bars set the designs' admitted and refused demand beside each other.
func (v view) bars() template.HTML {
	const label, width, row = 190, 940, 30
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="admitted and refused by design">`, label+width+10, row*len(v.r.Designs)+4)
	for i, d := range v.r.Designs {
		s := v.summary(d.Name)
		y := i*row + 4
		all := max(1, s.Demanded)
		fmt.Fprintf(&b, `<text class="n" x="%d" y="%d" text-anchor="end">%s</text>`, label-8, y+16, template.HTMLEscapeString(d.Title))
		at := 0.0
		box := func(n int64, class, says string) {
			w := float64(n) / float64(all) * width
			fmt.Fprintf(&b, `<rect class="area %s" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s %s</title></rect>`,
				class, label+at, y, w, row-8, grouped(n), template.HTMLEscapeString(says))
			at += w
		}
		box(s.Admitted-s.Over, "c-ours", "admitted")
		box(s.Over, "c-over", "admitted above the limit")
		names := slices.Sorted(maps.Keys(s.RefusedBy))
		slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
		for _, name := range names {
			box(s.RefusedBy[name], "r-"+name, "refused: "+name)
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String() + v.barLegend())
}

func (v view) barLegend() string {
	text := `<p class="legend"><span><i class="box c-ours"></i>admitted</span>`
	seen := map[string]bool{}
	for _, d := range v.r.Designs {
		s := v.summary(d.Name)
		if s.Over > 0 {
			seen["over"] = true
		}
		for reason := range s.RefusedBy {
			seen[reason] = true
		}
	}
	if seen["over"] {
		text += `<span><i class="box c-over"></i>admitted above the limit</span>`
	}
	delete(seen, "over")
	names := slices.Sorted(maps.Keys(seen))
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	for _, name := range names {
		text += `<span><i class="box r-` + name + `"></i>` + name + `</span>`
	}
	return text + `</p>`
}
