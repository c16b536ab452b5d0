package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tranche/allocation"
)

// Bounds of a log.
const (
	MaxLine   = 64 << 10 // bytes
	MaxFaults = 20       // that are told; then reading ends
	// Reordered is how many lines are held back to put them in the order of time.
	Reordered = 10_000
)

// request is one line.
type request struct {
	Time     time.Time         `json:"time"`
	Region   string            `json:"region"`
	Labels   allocation.Labels `json:"labels"`
	Costs    map[string]int64  `json:"costs"`
	Priority string            `json:"priority"`

	line   int64
	region int
}

// Fault is one line that is wrong: where, what, and what to do.
type Fault struct {
	File    string
	Line    int64
	Problem string
	Fix     string
}

// Error is file:line: problem; fix.
func (f Fault) Error() string { return fmt.Sprintf("%s:%d: %s; %s", f.File, f.Line, f.Problem, f.Fix) }

// Faults are what is wrong, up to MaxFaults, as an error of one line each.
type Faults []Fault

// Error lists them.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

const form = `write {"time":"2026-03-02T13:00:00Z","region":"us-east","labels":{"tenant":"acme"},"costs":{"tokens":900},"priority":"batch"}`

// parseLine reads one line; problem is empty if it is good.
func parseLine(text []byte) (r request, problem, fix string) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return r, "is no request: " + jsonProblem(err), form
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r, "goes on behind the request", "write one object a line"
	}
	if r.Time.IsZero() {
		return r, "has no time", form
	}
	if r.Region == "" {
		return r, "has no region", form
	}
	if err := r.Labels.Validate(); err != nil {
		first, _ := errors.AsType[*allocation.FieldError](err)
		return r, first.Field + ": " + first.Problem, first.Fix
	}
	for unit, n := range r.Costs {
		if n < 0 || n > allocation.MaxUnits {
			return r, fmt.Sprintf("costs.%.70s is %d", unit, n), fmt.Sprintf("use 0 to %d", allocation.MaxUnits)
		}
	}
	return r, "", ""
}

// jsonProblem takes the package's name out of an error of encoding/json.
func jsonProblem(err error) string {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "it ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

// queue holds lines back until enough are there to tell their order; it is a heap by time, then line.
type queue []request

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if !q[i].Time.Equal(q[j].Time) {
		return q[i].Time.Before(q[j].Time)
	}
	return q[i].line < q[j].line
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)   { *q = append(*q, x.(request)) }
func (q *queue) Pop() any {
	old := *q
	last := old[len(old)-1]
	old[len(old)-1] = request{}
	*q = old[:len(old)-1]
	return last
}
