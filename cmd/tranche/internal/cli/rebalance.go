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
			var all struct {
				coordinator.RebalancesList
				Plans []coordinator.RebalancePlanAnswer `json:"plans"`
			}
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/rebalances"}, &all.RebalancesList); err != nil {
				return err
			}
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/plans"}, &all); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(all)
			}
			a.showPlansOfMoves(all.Plans)
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
		a.moveCommand("plan", "Show what a move would do", true), a.moveCommand("apply", "Move permits: the giver returns them first", false), list, a.showMoveCommand())
}

// wantedMove is what the flags ask for.
type wantedMove struct {
	from, to       string
	units, percent int64
	match          map[string]string
}

func (a *App) moveCommand(verb, short string, dry bool) *cobra.Command {
	var q wantedMove
	c := &cobra.Command{
		Use: verb + " [BUDGET] --from REGION --to REGION", Short: short, Args: atMostOne("BUDGET"),
		Long: short + `: of one budget, or of all that declare the labels of --match.

Permits of each period are moved, to the end of the opened terms. Of periods shorter than ten minutes the running one stays
as it is. A budget of policy demand moves permits by itself: set its min and max.`,
		Example: "  tranche rebalance " + verb + " acme/requests --from us-east --to eu-west --units 10\n  tranche rebalance " + verb + " --match tenant=acme --from us-east --to eu-west --percent 20",
		RunE: func(c *cobra.Command, args []string) error {
			if q.from == "" || q.to == "" || (q.units > 0) == (q.percent > 0) || q.units < 0 || q.percent < 0 {
				return usagef("`%s` needs --from REGION, --to REGION and --units N or --percent P, at least 1", c.CommandPath())
			}
			if (len(args) == 1) == (len(q.match) > 0) {
				return usagef("`%s` moves permits of one BUDGET, or of all that --match LABEL=VALUE finds", c.CommandPath())
			}
			call := api.Call{Method: http.MethodPost}
			if dry {
				call.Query = url.Values{"dry_run": {"true"}}
			}
			if len(args) == 0 {
				return a.moveMatching(c, call, q)
			}
			call.Path, call.Body = "/v1/rebalances", coordinator.RebalanceRequest{Budget: args[0], From: q.from, To: q.to, Units: q.units, Percent: q.percent}
			return ask(a, c, call, a.showMove)
		},
	}
	f := c.Flags()
	f.StringVar(&q.from, "from", "", "`REGION` that gives")
	f.StringVar(&q.to, "to", "", "`REGION` that takes")
	f.Int64Var(&q.units, "units", 0, "permits of each period")
	f.Int64Var(&q.percent, "percent", 0, "1 to 100, of what the giver is to hold")
	f.StringToStringVar(&q.match, "match", nil, "all budgets that declare these labels: `LABEL=VALUE`, several with commas")
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
	if r.Blocked != "" {
		a.printf("it cannot be applied now: %s\n", r.Blocked)
		return
	}
	if r.DryRun {
		a.printf("nothing was changed; `tranche rebalance apply` with the same arguments does it\n")
		return
	}
	a.printf("`tranche rebalance show %s` shows how far it is\n", r.ID)
}
