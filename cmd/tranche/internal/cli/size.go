package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/bench"
	"tranche/regional/postgres"
)

func (a *App) sizeCommand() *cobra.Command {
	l := bench.Load{}
	c := &cobra.Command{
		Use: "size", Short: "Say what a load takes: disk, connections, processors, etcd", Args: exactly(),
		Long: `Say what a deployment takes for given rates, regions and budgets, from what was measured on the machine of
deploy/docs/speed.md. Processors differ from machine to machine: measure yours with "tranche bench". Nothing is looked at
and nothing is changed.`,
		Example: "  tranche size --admissions 500 --regions 3 --nodes 2 --budgets 1000 --rows 1440000\n  tranche size --admissions 2000 --peak 10000 --retention 2h --json",
		RunE: func(*cobra.Command, []string) error {
			s, err := bench.SizeOf(l)
			if err != nil {
				return usagef("--%w", err)
			}
			if a.json {
				return a.printJSON(s)
			}
			a.showSize(s)
			return nil
		},
	}
	f := c.Flags()
	f.Float64Var(&l.Admissions, "admissions", 100, "admissions a second and region, the mean over a day")
	f.Float64Var(&l.Peak, "peak", 0, "the most a second (default three times the mean)")
	f.IntVar(&l.Regions, "regions", 2, "how many regions")
	f.IntVar(&l.Nodes, "nodes", 2, "nodes of each region")
	f.IntVar(&l.Pool, "connections", postgres.DefaultMaxConns, "connections of each node, as --postgres-connections")
	f.IntVar(&l.Budgets, "budgets", 100, "budgets that are declared; a template is one")
	f.IntVar(&l.Rows, "rows", 100_000, "usage rows that a region makes in a day: one for each budget, or instance of a template, and period in which it is used")
	f.DurationVar(&l.Retention, "retention", 24*time.Hour, "how long admission ids are remembered, as the node's --retention")
	a.withJSON(c)
	return c
}

func (a *App) showSize(s bench.Size) {
	rows := [][]any{
		{"each region's disk", sizeOf(s.DiskBytes), "rows below, and 4 GiB for the log"},
		{"  admission ids", sizeOf(s.IDBytes), fmt.Sprintf("%s a day, kept for up to %s", sizeOf(s.PerDay), s.Load.Retention*3/2)},
		{"  usage rows", sizeOf(s.UsageBytes), ""},
		{"each region's log", sizeOf(s.LogBytes), "a day, to archive and to send to replicas"},
		{"each region's connections", s.Connections, fmt.Sprintf("max_connections at least; %d nodes of %d, and some for people", s.Load.Nodes, s.Load.Pool)},
		{"each region's processors", fmt.Sprintf("%.1f", s.Processors), fmt.Sprintf("busy at %.0f admissions a second, nodes and Postgres together", s.Load.Peak)},
		{"etcd", sizeOf(s.EtcdBytes), fmt.Sprintf("keys and values; at most %.0f writes a second", s.EtcdWrites)},
		{"each coordinator's memory", sizeOf(s.MemoryBytes), ""},
	}
	a.table([]string{"of", "takes", ""}, rows)
}
