package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/simulations"
	"tranche/simulations/mutants"
	"tranche/simulations/replay"
	"tranche/simulations/scenario"
	"tranche/simulations/walk"
)

// allMutants is --mutants without a value.
const allMutants = "all"

// expectedRuns is how often each expected failure is run unless --runs says otherwise.
const expectedRuns = 20

// printLine prints one JSON object on one line.
func (a *App) printLine(v any) error {
	out, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("print JSON: %w", err)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", out)
	return err
}

// live replaces the last line of standard error if a person reads it, and else says nothing.
func (a *App) live(format string, args ...any) {
	if file, is := a.err.(*os.File); is && terminal(file) {
		fmt.Fprintf(a.err, "\r\x1b[K"+format, args...)
	}
}

// liveEnd clears the line.
func (a *App) liveEnd() {
	if file, is := a.err.(*os.File); is && terminal(file) {
		fmt.Fprint(a.err, "\r\x1b[K")
	}
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (a *App) simulateScenario(ctx context.Context, f simulateFlags, path string) error {
	s, err := scenario.Load(path)
	if err != nil {
		return usageError{err}
	}
	r, err := scenario.Run(ctx, s, scenario.Options{Seed: f.seed, Progress: func(what string, done float64) { a.live("%s %3.0f %%", what, done*100) }})
	a.liveEnd()
	if err != nil {
		return err
	}
	if f.out != "" {
		if err := r.WriteFiles(f.out); err != nil {
			return err
		}
	}
	if a.json {
		return a.printLine(r)
	}
	return r.Table(a.out)
}

func (a *App) simulateRequests(ctx context.Context, f simulateFlags) error {
	declared, err := manifest.Load(a.in, f.policy)
	if err != nil {
		return err
	}
	var policy []allocation.Budget
	for _, b := range declared {
		policy = append(policy, b.Budget)
	}
	log := a.in
	if f.requests != "-" {
		file, err := os.Open(f.requests)
		if err != nil {
			return fmt.Errorf("read the log of requests: %w", err)
		}
		defer file.Close()
		log = file
	}
	r, err := replay.Run(ctx, log, policy, replay.Options{Name: f.requests, Progress: func(lines, bytes int64) { a.live("%d requests, %d MiB", lines, bytes>>20) }})
	a.liveEnd()
	if err != nil {
		return err
	}
	if a.json {
		return a.printLine(r)
	}
	return r.Table(a.out)
}

// simulateWalk walks the small worlds, those of the models, and those without one rule each.
func (a *App) simulateWalk(ctx context.Context) error {
	type line struct {
		World     string   `json:"world"`
		Without   []string `json:"without,omitempty"`
		States    int      `json:"states"`
		Steps     int      `json:"steps"`
		Complete  bool     `json:"complete"`
		Violation string   `json:"violation,omitempty"`
		Expected  bool     `json:"expected_violation"`
		Trace     []string `json:"trace,omitempty"`
	}
	states := 0
	cases := slices.Concat(walk.Worlds(), walk.Models(), walk.Residuals(), walk.Mutants())
	wrong := walk.Run(cases, func(n, _, depth int) bool {
		a.live("%d states, depth %d", n, depth)
		return ctx.Err() == nil
	}, func(c walk.Case, r walk.Result) {
		a.liveEnd()
		states += r.States
		if a.json {
			_ = a.printLine(line{c.Name, r.Off, r.States, r.Steps, r.Complete, r.Violation, c.Violated, r.Trace})
			return
		}
		verdict := "as it must be"
		if (r.Violation != "") != c.Violated {
			verdict = "NOT as it must be"
		}
		short, _, _ := strings.Cut(r.String(), "\n  ")
		a.printf("%s  %s\n", short, verdict)
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	if a.json {
		if err := a.printLine(map[string]int{"worlds": len(cases), "states": states, "violations": wrong}); err != nil {
			return err
		}
	} else {
		a.printf("%d worlds, %d states\n", len(cases), states)
	}
	if wrong > 0 {
		return fmt.Errorf("%d worlds did not come out as they must", wrong)
	}
	return nil
}

func (a *App) simulateMutants(ctx context.Context, f simulateFlags) error {
	o := mutants.Options{Seed: f.seed, MaxRuns: f.runs, Workers: f.parallel, Progress: func(c mutants.Caught) {
		if a.json {
			_ = a.printLine(c)
			return
		}
		a.printf("%s\n", c)
	}}
	if f.mutants != allMutants {
		if o.Only = mutants.Names(f.mutants); len(o.Only) == 0 {
			return usagef("no mutant's name holds %q; all are: %s", f.mutants, strings.Join(mutants.Names(""), ", "))
		}
	}
	r, err := mutants.Hunt(ctx, o)
	if err != nil {
		return err
	}
	for _, c := range r.Controls {
		switch {
		case a.json:
			_ = a.printLine(c)
		case c.Violation != "":
			a.printf("%s, without a mutant, seed %d: %s\n%s\n", c.World, c.Seed, c.Violation, strings.Join(c.Trace, "\n"))
		}
	}
	if a.json {
		if err := a.printLine(map[string]int{"mutants": len(r.Mutants), "missed": r.Missed, "controls": len(r.Controls), "false_alarms": r.Alarms}); err != nil {
			return err
		}
	} else {
		a.printf("%d mutants, %d not caught; %d worlds without a mutant, %d false alarms\n", len(r.Mutants), r.Missed, len(r.Controls), r.Alarms)
	}
	if !r.Good() {
		return fmt.Errorf("%d mutants were not caught, and %d worlds without a mutant showed something", r.Missed, r.Alarms)
	}
	return nil
}

// simulateExpected runs each expected failure, and shows how it ends.
func (a *App) simulateExpected(ctx context.Context, f simulateFlags) error {
	if f.runs == 0 {
		f.runs = expectedRuns
	}
	var rows [][]any
	odd := 0
	for _, e := range simulations.ExpectedFailures() {
		a.live("%s", e.Name)
		r, err := simulations.Run(ctx, simulations.Options{Seed: f.seed, Runs: f.runs, For: f.length, Parallel: f.parallel, Kind: e.Name, Go: true})
		if err != nil {
			return err
		}
		broken, ends := map[int]int{}, 0
		for _, v := range r.Found {
			if v.Invariant != 0 {
				broken[v.Invariant]++
			}
		}
		for end, n := range r.Ends {
			if !slices.Contains(e.Ends, end) {
				ends += n
			}
		}
		odd += ends
		if a.json {
			if err := a.printLine(struct {
				simulations.Expected
				Runs   int            `json:"runs"`
				Ended  map[string]int `json:"ended"`
				Broken map[int]int    `json:"broken,omitempty"`
			}{e, r.Runs, r.Ends, broken}); err != nil {
				return err
			}
			continue
		}
		rows = append(rows, []any{e.Name, r.Ends["survived"], r.Ends["stopped"], r.Ends["broke"], r.Ends["stuck"], strings.Trim(fmt.Sprint(broken), "map[]")})
	}
	a.liveEnd()
	if !a.json {
		a.table([]string{"FAULT", "SURVIVED", "STOPPED", "BROKE", "STUCK", "INVARIANT:RUNS"}, rows)
	}
	if odd > 0 {
		return fmt.Errorf("%d runs ended in a way that was not expected", odd)
	}
	return nil
}
