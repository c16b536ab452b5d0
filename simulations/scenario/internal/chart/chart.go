// Package chart draws lines and stacked areas over time as SVG that stands inside an HTML page. Colours are CSS classes, so
// that the page decides how they look on a screen, in the dark and on paper.
package chart

import (
	"fmt"
	"html"
	"math"
	"strings"
	"time"
)

// Line is one series over the chart's steps.
type Line struct {
	Name  string
	Class string    // of CSS: it has a colour
	Y     []float64 // NaN where there is nothing to show
	Dash  bool
	Fill  bool
	Peak  bool // where points are taken together the highest counts, not the mean
}

// Span is a shaded stretch of time; From and To are steps.
type Span struct {
	From, To float64
	Label    string
}

// Chart is one picture. Stack is drawn first, as areas on top of each other, then Lines.
type Chart struct {
	Title string
	Unit  string // of the y axis
	Start time.Time
	Step  time.Duration
	Steps int
	Stack []Line
	Lines []Line
	Spans []Span
	Marks []Span // moments: From only
	Top   float64
	Width int // 0: 720
}

const (
	height      = 230
	left        = 54
	right       = 22
	above       = 34
	below       = 26
	mostPoints  = 360
	labelHeight = 11
	letter      = 5.2 // width of one in a label, about
)

// Max is the highest value that the chart shows: for charts that share a scale.
func (c Chart) Max() float64 {
	most := 0.0
	for _, list := range append([][]Line{c.Lines}, c.stacked()) {
		for _, l := range list {
			for _, y := range reduce(l.Y, l.Peak) {
				if !math.IsNaN(y) {
					most = max(most, y)
				}
			}
		}
	}
	return most
}

// stacked adds each line of the stack to those below it.
func (c Chart) stacked() []Line {
	var out []Line
	sum := make([]float64, c.Steps)
	for _, l := range c.Stack {
		y := make([]float64, c.Steps)
		for i := range y {
			sum[i] += l.Y[i]
			y[i] = sum[i]
		}
		l.Y = y
		out = append(out, l)
	}
	return out
}

// reduce takes points together until there are few enough for a picture.
func reduce(y []float64, peak bool) []float64 {
	n := (len(y) + mostPoints - 1) / mostPoints
	if n <= 1 {
		return y
	}
	var out []float64
	for i := 0; i < len(y); i += n {
		part := y[i:min(i+n, len(y))]
		v := 0.0
		known := 0
		for _, p := range part {
			switch {
			case math.IsNaN(p):
				continue
			case peak:
				v = max(v, p)
			default:
				v += p
			}
			known++
		}
		switch {
		case known == 0:
			v = math.NaN()
		case !peak:
			v /= float64(known)
		}
		out = append(out, v)
	}
	return out
}

// canvas is a chart while it is drawn.
type canvas struct {
	Chart
	strings.Builder
	width, top float64
}

// SVG draws the chart.
func (c Chart) SVG() string {
	if c.Width == 0 {
		c.Width = 720
	}
	k := &canvas{Chart: c, width: float64(c.Width)}
	k.top, _ = nice(max(c.Top, c.Max()))
	fmt.Fprintf(k, `<svg class="chart" viewBox="0 0 %d %d" role="img" aria-label="%s">`, c.Width, height, html.EscapeString(c.Title))
	fmt.Fprintf(k, `<text class="t" x="0" y="12">%s</text>`, html.EscapeString(c.Title))
	k.spans()
	k.axes()
	k.areas()
	for _, l := range c.Lines {
		k.line(l)
	}
	k.marks()
	k.WriteString(`</svg>`)
	k.legend()
	return k.String()
}

func (k *canvas) x(step float64) float64 {
	return left + (k.width-left-right)*step/float64(max(1, k.Steps))
}

func (k *canvas) y(v float64) float64 {
	return above + (height-above-below)*(1-v/k.top)
}

func (k *canvas) spans() {
	for i, s := range k.Spans {
		a, b := k.x(s.From), max(k.x(s.To), k.x(s.From)+1.5)
		fmt.Fprintf(k, `<rect class="span" x="%s" y="%d" width="%s" height="%d"><title>%s</title></rect>`,
			num(a), above, num(b-a), height-above-below, html.EscapeString(s.Label))
		// A label that would leave the picture stands before the end of its stretch.
		at, anchor := a+3, "start"
		if long := letter * float64(len([]rune(s.Label))); at+long > k.width && b-3-long > left {
			at, anchor = b-3, "end"
		}
		fmt.Fprintf(k, `<text class="s" x="%s" y="%d" text-anchor="%s">%s</text>`,
			num(at), above+labelHeight+i%3*labelHeight, anchor, html.EscapeString(s.Label))
	}
}

func (k *canvas) marks() {
	for _, m := range k.Marks {
		x := num(k.x(m.From))
		fmt.Fprintf(k, `<line class="mark" x1="%s" x2="%s" y1="%d" y2="%d"><title>%s</title></line>`,
			x, x, above-4, height-below, html.EscapeString(m.Label))
	}
}

func (k *canvas) axes() {
	_, step := nice(k.top)
	for v := 0.0; v <= k.top+step/2; v += step {
		y := num(k.y(v))
		fmt.Fprintf(k, `<line class="grid" x1="%d" x2="%s" y1="%s" y2="%s"/><text class="a" x="%d" y="%s" text-anchor="end" dy="3">%s</text>`,
			left, num(k.width-right), y, y, left-5, y, Short(v))
	}
	fmt.Fprintf(k, `<text class="a" x="0" y="%d">%s</text>`, above-9, html.EscapeString(k.Unit))
	whole := k.Step * time.Duration(k.Steps)
	every := tick(whole)
	for t := k.Start.Truncate(every); !t.After(k.Start.Add(whole)); t = t.Add(every) {
		if t.Before(k.Start) {
			continue
		}
		x := k.x(float64(t.Sub(k.Start)) / float64(k.Step))
		form := "15:04"
		if every >= 24*time.Hour {
			form = "Jan 2"
		}
		fmt.Fprintf(k, `<text class="a" x="%s" y="%d" text-anchor="middle">%s</text>`, num(x), height-below+15, t.UTC().Format(form))
	}
}

func (k *canvas) areas() {
	stacked := k.stacked()
	floor := make([]float64, len(reduce(make([]float64, k.Steps), false)))
	for _, l := range stacked {
		y := reduce(l.Y, l.Peak)
		fmt.Fprintf(k, `<path class="area %s" d="M%sL%sZ"/>`, l.Class, k.points(y, false), k.points(floor, true))
		floor = y
	}
}

func (k *canvas) line(l Line) {
	y := reduce(l.Y, l.Peak)
	if l.Fill {
		fmt.Fprintf(k, `<path class="area %s" d="M%sL%sZ"/>`, l.Class, k.points(y, false), k.points(make([]float64, len(y)), true))
		return
	}
	dash := ""
	if l.Dash {
		dash = " dash"
	}
	fmt.Fprintf(k, `<path class="line %s%s" d="M%s"/>`, l.Class, dash, k.points(y, false))
}

// points are the corners of a line; each value stands in the middle of its step. Where none is known the line breaks.
func (k *canvas) points(y []float64, backwards bool) string {
	var b strings.Builder
	broken := false
	for i := range y {
		j := i
		if backwards {
			j = len(y) - 1 - i
		}
		if math.IsNaN(y[j]) {
			broken = true
			continue
		}
		if broken && b.Len() > 0 {
			b.WriteString("M")
		}
		broken = false
		x := (float64(j) + 0.5) / float64(len(y)) * float64(k.Steps)
		fmt.Fprintf(&b, "%s %s ", num(k.x(x)), num(k.y(y[j])))
	}
	return strings.TrimSpace(b.String())
}

func (k *canvas) legend() {
	k.WriteString(`<p class="legend">`)
	for _, list := range [][]Line{k.Stack, k.Lines} {
		for _, l := range list {
			kind := "box"
			if !l.Fill && len(k.Stack) == 0 || !l.Fill && contains(k.Lines, l.Name) {
				kind = "rule"
			}
			if l.Dash {
				kind += " dash"
			}
			fmt.Fprintf(k, `<span><i class="%s %s"></i>%s</span>`, kind, l.Class, html.EscapeString(l.Name))
		}
	}
	k.WriteString(`</p>`)
}

func contains(lines []Line, name string) bool {
	for _, l := range lines {
		if l.Name == name {
			return true
		}
	}
	return false
}
