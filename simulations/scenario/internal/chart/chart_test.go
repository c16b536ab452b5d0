package chart

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Scales end above the highest value, at a round number; numbers stay short.
func TestScales(t *testing.T) {
	for v, want := range map[float64]float64{0: 1, 0.3: 0.3, 7: 8, 101: 150, 5000: 5000, 5001: 6000} {
		if top, step := nice(v); math.Abs(top-want) > 1e-9 || math.Abs(math.Mod(top+step/2, step)-step/2) > 1e-6 {
			t.Errorf("%g: up to %g by %g", v, top, step)
		}
	}
	for v, want := range map[float64]string{0: "0", 0.25: "0.25", 950: "950", 1200: "1.2k", 15e6: "15M", 9e15: "9P"} {
		if got := Short(v); got != want {
			t.Errorf("%g is written %s", v, got)
		}
	}
}

// A line breaks where nothing is known, a short peak is not averaged away, and names cannot break out of the page.
func TestSVG(t *testing.T) {
	y := make([]float64, 3600)
	y[1800] = 100
	c := Chart{Title: "<b>", Step: time.Second, Steps: len(y), Start: time.Unix(0, 0), Lines: []Line{{Name: "x", Class: "c", Y: y, Peak: true}}}
	if c.Max() != 100 {
		t.Errorf("the peak is drawn at %g", c.Max())
	}
	c.Lines[0].Peak = false
	if c.Max() != 10 {
		t.Errorf("the mean of ten steps is drawn at %g", c.Max())
	}
	c.Lines = []Line{{Name: "<i>", Class: "c", Y: []float64{1, math.NaN(), 2}}}
	c.Steps = 3
	svg := c.SVG()
	if strings.Contains(svg, "<b>") || strings.Contains(svg, "<i>") || strings.Contains(svg, "NaN") || strings.Count(svg, `d="M`) != 1 || !strings.Contains(svg, " M") {
		t.Errorf("%s", svg)
	}
}
