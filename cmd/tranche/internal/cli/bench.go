package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/bench"
)

func (a *App) benchCommand() *cobra.Command {
	var o bench.Options
	c := &cobra.Command{
		Use: "bench", Short: "Measure admissions on this machine, beside what its database can do at all", Args: exactly(),
		Long: `Start a Postgres and a node, and measure what they admit, beside what the same Postgres does with the same rows without
Tranche: one transaction a request, in bulk, a bare commit. All take turns within one run, and what counts are the ratios.
It needs an installed Postgres and leaves nothing behind. The status is 1 if a case's books do not agree.

` + benchLines(),
		Example: "  tranche bench\n  tranche bench --all --json > bench.json\n  tranche bench --case hot --each 5s --rounds 5",
		RunE: func(c *cobra.Command, _ []string) error {
			if len(o.Cases) == 1 && o.Cases[0] == "list" {
				return a.listBench()
			}
			if err := checkBench(o); err != nil {
				return err
			}
			file, is := a.err.(*os.File)
			collectSeldom() // the node that is measured runs in this process
			o.Out, o.Err, o.JSON, o.Version, o.Terminal = a.out, a.err, a.json, Version(), is && terminal(file)
			return bench.Run(c.Context(), o)
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Cases, "case", nil, "measure these `CASES` only; list: show which there are")
	f.BoolVar(&o.All, "all", false, "measure the further cases too")
	f.DurationVar(&o.Each, "each", 3*time.Second, "how long each arm of a case is measured in one round")
	f.IntVar(&o.Rounds, "rounds", 3, "how often the arms of a case take turns")
	f.Float64Var(&o.Rate, "rate", 0, "requests a second of the open loop (default half of what the closed loop reached)")
	f.BoolVar(&o.Random, "random-ids", false, "random admission ids (UUID version 4), not ones that begin with the time (version 7)")
	f.StringVar(&o.Profiles, "profiles", "", "write a profile of each case to this `FOLDER`, for go tool pprof")
	a.withJSON(c)
	c.AddCommand(a.benchGlobalCommand(), a.benchClientCommand())
	return c
}

// benchClientCommand is what the case of two client processes runs. It is told to begin on its standard input.
func (a *App) benchClientCommand() *cobra.Command {
	var o bench.ClientOptions
	c := &cobra.Command{
		Use: "client", Short: "Ask a node for admissions, for another tranche bench", Hidden: true, Args: exactly(),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.Check(); err != nil {
				return usagef("%w", err)
			}
			collectSeldom()
			return bench.RunClient(c.Context(), o, os.Stdin, a.out)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Address, "address", "", "`HOST:PORT` of the node")
	f.IntVar(&o.Connections, "connections", 128, "how many connections, each with one request at a time")
	f.DurationVar(&o.For, "for", time.Second, "for how long")
	f.BoolVar(&o.Random, "random-ids", false, "random admission ids")
	return c
}

func checkBench(o bench.Options) error {
	switch {
	case o.Each < 50*time.Millisecond || o.Each > time.Hour:
		return usagef("--each %s: use 50ms to 1h", o.Each)
	case o.Rounds < 1 || o.Rounds > 1000:
		return usagef("--rounds %d: use 1 to 1000", o.Rounds)
	case o.Rate < 0 || o.Rate > 10_000_000:
		return usagef("--rate %g: use 1 to 10000000, or leave it out", o.Rate)
	case o.All && len(o.Cases) > 0:
		return usagef("--all measures all cases; leave out --case, or --all")
	}
	if err := bench.Known(o.Cases); err != nil {
		return usagef("--case: %w", err)
	}
	return nil
}

// benchLines are the cases, a line each.
func benchLines() string {
	var b strings.Builder
	for _, k := range bench.List() {
		only := ""
		if k.All {
			only = " (with --all)"
		}
		fmt.Fprintf(&b, "  %-10s %s%s\n", k.Name, k.What, only)
	}
	return b.String()
}

func (a *App) listBench() error {
	if a.json {
		return a.printJSON(bench.List())
	}
	a.printf("%s", benchLines())
	return nil
}
