package scenario

import (
	"bufio"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/simulations/scenario/internal/tree"
)

// Bounds of a trace.
const (
	MaxTraceRows   = 2_000_000
	maxTraceFaults = 20
)

// readTrace reads lines time,region,units; time is an instant, or a duration since the start. A first line with exactly
// these words is a heading. A relative name is looked for beside the scenario.
func (l *loader) readTrace(t *Trace, v *tree.Value) {
	if t.Every == 0 {
		l.Wrong(at(v, "every"), "is 0", "say how long a line holds, like 1m")
		return
	}
	path := t.File
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(l.File), path)
	}
	file, err := os.Open(path)
	if err != nil {
		l.Wrong(at(v, "file"), err.Error(), "name a CSV file of lines time,region,units")
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	wrong := 0
	for n := 1; lines.Scan() && wrong < maxTraceFaults; n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || n == 1 && strings.ReplaceAll(text, " ", "") == "time,region,units" {
			continue
		}
		row, problem, fix := l.traceRow(text)
		if len(t.Rows) == MaxTraceRows {
			problem, fix = fmt.Sprintf("is row %d", MaxTraceRows+1), "give fewer rows: sum them up by minute"
			wrong = maxTraceFaults
		}
		if problem != "" {
			wrong++
			l.Faults = append(l.Faults, tree.Fault{File: path, Line: n, Problem: problem, Fix: fix})
			continue
		}
		t.Rows = append(t.Rows, row)
	}
	if err := lines.Err(); err != nil {
		l.Wrong(at(v, "file"), err.Error(), "name a CSV file of lines time,region,units")
	}
	if len(t.Rows) == 0 && wrong == 0 {
		l.Wrong(at(v, "file"), "has no rows", "give lines like 2026-03-02T13:00:00Z,us-east,120")
	}
	slices.SortStableFunc(t.Rows, func(a, b TraceRow) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), cmp.Compare(a.At, b.At))
	})
}

func (l *loader) traceRow(text string) (row TraceRow, problem, fix string) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 {
		return row, fmt.Sprintf("has %d fields", len(parts)), "write time,region,units"
	}
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	at, err := l.traceTime(parts[0])
	if err != nil {
		return row, fmt.Sprintf("%.40q is no time", parts[0]), "write an instant like 2026-03-02T13:00:00Z, or a duration since the start like 13h5m"
	}
	if at < 0 || at >= l.s.Duration {
		return row, fmt.Sprintf("%s lies outside the run", parts[0]), fmt.Sprintf("drop it, or change start and duration (%s)", l.s.Duration)
	}
	region := l.s.region(parts[1])
	if region < 0 {
		return row, fmt.Sprintf("region %.70q is not declared", parts[1]), "use " + strings.Join(l.s.RegionNames(), ", ")
	}
	units, err := strconv.ParseInt(parts[2], 10, 64)
	switch {
	case err != nil || units > allocation.MaxUnits:
		return row, fmt.Sprintf("%.40q is no number of units", parts[2]), "write a whole number"
	case units < 0:
		return row, "a demand of " + parts[2] + " is negative", "write 0 or more"
	}
	return TraceRow{At: at, Region: region, Units: units}, "", ""
}

func (l *loader) traceTime(text string) (allocation.Duration, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return allocation.Duration(allocation.At(t) - l.s.Start), nil
	}
	var d allocation.Duration
	err := d.UnmarshalText([]byte(text))
	return d, err
}
