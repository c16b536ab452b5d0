package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/demo"
)

func (a *App) demoCommand() *cobra.Command {
	var keep bool
	var scenario string
	c := &cobra.Command{
		Use: "demo", Short: "Walk through what Tranche promises, on this machine, in under a minute", Args: exactly(),
		Long: `Start an etcd, a coordinator, and two regions with a Postgres and two nodes each, and walk through what
Tranche promises: shares, a race for the last permit, a partition, stranded permits, a period's boundary,
a killed node, and at the end the whole account. It needs an installed Postgres and leaves nothing behind.

A scenario is a short story of its own instead, under half a minute:

` + scenarioLines() + `
The status is 0 only if every step was as promised.`,
		Example: "  tranche demo\n  tranche demo --keep\n  tranche demo --scenario stranded",
		RunE: func(c *cobra.Command, _ []string) error {
			if scenario == "list" {
				return a.listScenarios()
			}
			if c.Flags().Changed("scenario") {
				if err := demo.Known(scenario); err != nil {
					return usagef("--scenario: %w", err)
				}
			}
			return demo.Run(c.Context(), demo.Options{Out: a.out, Err: a.err, JSON: a.json, Keep: keep, Scenario: scenario})
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave it running until Ctrl-C, to play with")
	c.Flags().StringVar(&scenario, "scenario", "", "tell this `STORY`; list: show which there are")
	a.withJSON(c)
	return c
}

// scenarioLines are the scenarios, a line each.
func scenarioLines() string {
	var b strings.Builder
	for _, s := range demo.Scenarios() {
		fmt.Fprintf(&b, "  %-10s %s\n", s.Name, s.Line)
	}
	return b.String()
}

func (a *App) listScenarios() error {
	if a.json {
		return a.printJSON(demo.Scenarios())
	}
	a.printf("%s", scenarioLines())
	return nil
}
