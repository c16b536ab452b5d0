package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) rebalanceCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List rebalances, the latest last", Args: exactly(), Example: "  tranche rebalance list",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var all coordinator.RebalancesList
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/rebalances"}, &all); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(all)
			}
			if len(all.Rebalances) == 0 {
				a.printf("nothing was rebalanced\n")
				return nil
			}
			var rows [][]any
			for _, r := range all.Rebalances {
				rows = append(rows, []any{r.ID, r.Budget, r.Units, r.From + " to " + r.To, r.State, r.Waiting, r.By})
			}
			a.table([]string{"id", "budget", "units", "move", "state", "waiting", "by"}, rows)
			return nil
		},
	}
	a.withCoordinator(list)
	a.withJSON(list)
	return parent("rebalance", "Move permits from one region to another", "  tranche rebalance plan acme/requests --from us-east --to eu-west --units 10",
		a.moveCommand("plan", "Show what a move would do", true), a.moveCommand("apply", "Move permits: the giver returns them first", false), list)
}

func (a *App) moveCommand(verb, short string, dry bool) *cobra.Command {
	var q coordinator.RebalanceRequest
	c := &cobra.Command{
		Use: verb + " BUDGET --from REGION --to REGION --units N", Short: short, Args: exactly("BUDGET"),
		Example: "  tranche rebalance " + verb + " acme/requests --from us-east --to eu-west --units 10",
		RunE: func(c *cobra.Command, args []string) error {
			q.Budget = args[0]
			if q.From == "" || q.To == "" || q.Units <= 0 {
				return usagef("`%s` needs --from REGION, --to REGION and --units N, N at least 1", c.CommandPath())
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			call := api.Call{Method: http.MethodPost, Path: "/v1/rebalances", Body: q}
			if dry {
				call.Query = url.Values{"dry_run": {"true"}}
			}
			var r coordinator.RebalanceAnswer
			if _, err := client.Do(c.Context(), call, &r); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(r)
			}
			a.showMove(r)
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&q.From, "from", "", "`REGION` that gives")
	f.StringVar(&q.To, "to", "", "`REGION` that takes")
	f.Int64Var(&q.Units, "units", 0, "permits of each period")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showMove(r coordinator.RebalanceAnswer) {
	said := "moving"
	if r.DryRun {
		said = "would move"
	}
	a.printf("%s %s of each period of %s from %s to %s, from %s until %s\n", said, counted(r.Units, "permit"), r.Budget, r.From, r.To, r.Since, r.Until)
	var parts []string
	for _, region := range slices.Sorted(maps.Keys(r.Targets)) {
		parts = append(parts, fmt.Sprintf("%s %d", region, r.Targets[region]))
	}
	a.printf("once it is done: %s\n", strings.Join(parts, ", "))
	for _, n := range r.Notes {
		a.printf("note: %s\n", n)
	}
	if r.DryRun {
		a.printf("nothing was changed; `tranche rebalance apply` with the same arguments does it\n")
		return
	}
	a.printf("`tranche rebalance list` shows how far it is (id %s)\n", r.ID)
}
