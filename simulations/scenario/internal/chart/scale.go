package chart

import (
	"math"
	"strconv"
	"time"
)

// tick is a distance between times that gives an axis five to ten of them.
func tick(whole time.Duration) time.Duration {
	for _, m := range []int{1, 2, 5, 10, 15, 30, 60, 120, 240, 1440, 2880, 7 * 1440, 30 * 1440} {
		if every := time.Duration(m) * time.Minute; whole/every <= 9 {
			return every
		}
	}
	return 90 * 24 * time.Hour
}

// num writes a coordinate to a tenth.
func num(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// nice is the first round number that is not below v, and a step that divides it into four or five.
func nice(v float64) (top, step float64) {
	if v <= 0 {
		return 1, 0.5
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []struct{ top, parts float64 }{{1, 5}, {1.5, 3}, {2, 4}, {2.5, 5}, {3, 3}, {4, 4}, {5, 5}, {6, 3}, {8, 4}, {10, 5}} {
		if v <= m.top*unit*1.0000001 {
			return m.top * unit, m.top * unit / m.parts
		}
	}
	return 10 * unit, 2 * unit
}

// Short writes a number in at most five characters: 950, 1.2k, 15M.
func Short(v float64) string {
	for _, s := range []struct {
		size float64
		name string
	}{{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if math.Abs(v) >= s.size {
			return strconv.FormatFloat(math.Round(v/s.size*10)/10, 'f', -1, 64) + s.name
		}
	}
	if v != 0 && math.Abs(v) < 10 {
		return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
	}
	return strconv.FormatFloat(math.Round(v), 'f', -1, 64)
}
