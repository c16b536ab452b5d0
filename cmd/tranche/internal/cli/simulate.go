package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/simulations"
)

// simulateFlags are what `tranche simulate` is told. Which of them count depends on what is simulated.
type simulateFlags struct {
	seed     uint64
	runs     int
	length   time.Duration
	within   time.Duration
	kind     string
	parallel int
	goOn     bool
	trace    string
	expected bool

	out      string
	requests string
	policy   string
	walk     bool
	figures  bool
	mutants  string
}

func (a *App) simulateCommand() *cobra.Command {
	var f simulateFlags
	c := &cobra.Command{
		Use: "simulate [SCENARIO.yaml]", Short: "Run the real services through faults, or a scenario, without any server",
		Long: `Run the real coordinator and the real nodes in a simulated world: etcd, Postgres, network and clocks are simulated, and
a seed decides what there is, what goes wrong, and in which order everything happens. Checkers hold every commit and
every revision against the invariants of the design. The same seed is the same run, to the byte.

Without a scenario: so many runs of fresh seeds, each with a minute of faults, after which everything must come right.
The status is 1 if an invariant did not hold; what led there is printed, and the command that shows it again.

With --figures: how much of a budget of policy demand is used, what that costs in ledger writes, and what callers with a home
get; the status is 1 if a figure is missed.

With a scenario: a table of what a partition or a failure would cost, next to other designs under the same demand.`,
		Example: `  tranche simulate --runs 200
  tranche simulate --seed 311 --trace -
  tranche simulate --expected
  tranche simulate --figures
  tranche simulate simulations/scenarios/worst-moment.yaml --out report/
  tranche simulate --requests log.ndjson --policy budgets/`,
		Args: atMostOne("SCENARIO"),
		RunE: func(c *cobra.Command, args []string) error { return a.simulate(c, f, args) },
	}
	s := c.Flags()
	s.Uint64Var(&f.seed, "seed", 1, "the first seed; each run has the next one")
	s.IntVar(&f.runs, "runs", 0, "how many runs (default 1, or as many as --within holds)")
	s.DurationVar(&f.length, "for", simulations.DefaultFor, "how long faults last in each run, in simulated time")
	s.DurationVar(&f.within, "within", 0, "begin no run after so much real time")
	s.StringVar(&f.kind, "kind", "", "`KIND` of the runs: faults, calm, or the name of an expected failure")
	s.IntVar(&f.parallel, "parallel", 2, "runs at once")
	s.BoolVar(&f.goOn, "go-on", false, "go on after a violation")
	s.StringVar(&f.trace, "trace", "", "write every event of the runs to `FILE`, one line of fixed width each; - is standard output")
	s.BoolVar(&f.expected, "expected", false, "run the named expected failures: faults that today's code does not survive, and how it ends")
	s.StringVar(&f.out, "out", "", "`FOLDER` for a scenario's report.html and report.json")
	s.StringVar(&f.requests, "requests", "", "replay `FILE` of requests (one JSON object a line) against --policy")
	s.StringVar(&f.policy, "policy", "", "`FILE|FOLDER` of budgets for --requests")
	s.BoolVar(&f.walk, "walk", false, "walk every interleaving of small worlds instead")
	s.BoolVar(&f.figures, "figures", false, "measure what policy demand and policy home reach, and compare it with what they must")
	s.StringVar(&f.mutants, "mutants", "", "hunt the mutants whose name holds `PART`; without a value all of them")
	s.Lookup("mutants").NoOptDefVal = allMutants
	a.withJSON(c)
	return c
}

// atMostOne takes one argument or none.
func atMostOne(name string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usagef("`%s` takes at most one %s, not %d arguments", c.CommandPath(), name, len(args))
		}
		return nil
	}
}

// simulate does the one thing that the flags name.
func (a *App) simulate(c *cobra.Command, f simulateFlags, args []string) error {
	named := 0
	for _, is := range []bool{len(args) == 1, f.requests != "", f.walk, f.mutants != "", f.expected, f.figures} {
		if is {
			named++
		}
	}
	switch {
	case named > 1:
		return usagef("a scenario, --requests, --walk, --mutants, --expected and --figures exclude each other; give one of them")
	case (f.requests == "") != (f.policy == ""):
		return usagef("--requests and --policy go together: a log, and the budgets that it is held against")
	case f.out != "" && len(args) == 0:
		return usagef("--out is for the report of a scenario")
	case len(args) == 1:
		return a.simulateScenario(c.Context(), f, args[0])
	case f.requests != "":
		return a.simulateRequests(c.Context(), f)
	case f.walk:
		return a.simulateWalk(c.Context())
	case f.mutants != "":
		return a.simulateMutants(c.Context(), f)
	case f.figures:
		return a.simulateFigures(c.Context(), f)
	case f.expected:
		return a.simulateExpected(c.Context(), f)
	}
	return a.simulateFaults(c, f)
}

// simulateFaults makes runs of faults.
func (a *App) simulateFaults(c *cobra.Command, f simulateFlags) error {
	o := simulations.Options{
		Seed: f.seed, Runs: f.runs, For: f.length, Within: f.within, Kind: f.kind, Parallel: f.parallel, Go: f.goOn,
		Progress: func(r simulations.Result) { a.live("%s", runsLine(r)) },
	}
	if err := o.Check(); err != nil {
		return usageError{err}
	}
	trace, closed, err := a.traceTo(f.trace)
	if err != nil {
		return err
	}
	o.Trace = trace
	r, err := simulations.Run(c.Context(), o)
	a.liveEnd()
	if closeErr := closed(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return a.showRuns(r)
}

// traceTo opens where a trace goes; nil if nowhere.
func (a *App) traceTo(name string) (io.Writer, func() error, error) {
	switch name {
	case "":
		return nil, func() error { return nil }, nil
	case "-":
		return a.out, func() error { return nil }, nil
	}
	file, err := os.Create(name)
	if err != nil {
		return nil, nil, fmt.Errorf("write the trace: %w", err)
	}
	return file, file.Close, nil
}

func runsLine(r simulations.Result) string {
	return fmt.Sprintf("%d runs from seed %d: %d violations; %s of simulated time, %.0f times as fast as real",
		r.Runs, r.Seed, r.Violations, (time.Duration(r.Simulated) * time.Second).String(), r.Speed)
}

// showRuns prints what came of the runs; a violation is an error.
func (a *App) showRuns(r simulations.Result) error {
	if a.json {
		if err := a.printLine(r); err != nil {
			return err
		}
	} else {
		for _, v := range r.Found {
			a.printf("%s\n", violationText(v))
		}
		a.printf("%s\n%d decisions, %d admitted, %d periods spent to the last permit, %d faults\n", runsLine(r), r.Decisions, r.Admitted, r.Exhausted, total(r.Faults))
	}
	if r.Violations == 0 {
		return nil
	}
	v := r.Found[0]
	return fmt.Errorf("seed %d: %s; see it again with: %s", v.Seed, headline(v), v.Replay)
}

func total(counts map[string]int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

func headline(v simulations.Violation) string {
	if v.Invariant == 0 {
		return v.Detail
	}
	return fmt.Sprintf("invariant %d does not hold: %s", v.Invariant, v.Detail)
}

func violationText(v simulations.Violation) string {
	return fmt.Sprintf("seed %d, %s, at %.6f s: %s\n  world: %s\n%s\n  again: %s\n", v.Seed, v.Kind, v.At, headline(v), v.World, strings.Join(v.Trace, "\n"), v.Replay)
}
