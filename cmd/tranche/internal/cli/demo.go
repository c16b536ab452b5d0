package cli

import (
	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/demo"
)

func (a *App) demoCommand() *cobra.Command {
	var keep bool
	c := &cobra.Command{
		Use: "demo", Short: "Walk through what Tranche promises, on this machine, in under a minute", Args: exactly(),
		Long: `Start an etcd, a coordinator, and two regions with a Postgres and two nodes each, and walk through what
Tranche promises: shares, a race for the last permit, a partition, stranded permits, a period's boundary,
a killed node, and at the end the whole account. It needs an installed Postgres and leaves nothing behind.

The status is 0 only if every step was as promised.`,
		Example: "  tranche demo\n  tranche demo --keep",
		RunE: func(c *cobra.Command, _ []string) error {
			return demo.Run(c.Context(), demo.Options{Out: a.out, Err: a.err, JSON: a.json, Keep: keep})
		},
	}
	c.Flags().BoolVar(&keep, "keep", false, "leave it running until Ctrl-C, to play with")
	a.withJSON(c)
	return c
}
