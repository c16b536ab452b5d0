package cli

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) moveMatching(c *cobra.Command, call api.Call, q wantedMove) error {
	call.Path = "/v1/plans"
	call.Body = coordinator.RebalancePlanRequest{From: q.from, To: q.to, Match: q.match, Units: q.units, Percent: q.percent}
	return ask(a, c, call, a.showPlanOfMoves)
}

func (a *App) showPlanOfMoves(p coordinator.RebalancePlanAnswer) {
	var rows [][]any
	for _, m := range p.Moves {
		rows = append(rows, []any{m.Budget, m.Units, m.Returned, m.Granted, m.Since, m.Rebalance.State, m.Why})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "asked", "returned", "granted", "from", "state", "why"}, rows)
	}
	for _, l := range p.LeftOut {
		a.printf("left out: %s: %s\n", l.Budget, l.Why)
	}
	if more := p.LeftOutCount - len(p.LeftOut); more > 0 {
		a.printf("and %s more\n", counted(more, "budget"))
	}
	said := "moving"
	if p.DryRun {
		said = "would move"
	}
	for _, unit := range slices.Sorted(maps.Keys(p.Total)) {
		t := p.Total[unit]
		a.printf("%s %d %s of one period of %s from %s to %s: %d returned, %d granted\n", said, t.Asked, unit, counted(t.Budgets, "budget"), p.From, p.To, t.Returned, t.Granted)
	}
	switch {
	case p.Blocked != "":
		a.printf("it cannot be applied now: %s\n", p.Blocked)
	case p.DryRun:
		a.printf("nothing was changed; `tranche rebalance apply` with the same arguments does it\n")
	default:
		a.printf("plan %s: %s\n", p.ID, p.State)
	}
}

func (a *App) showPlansOfMoves(plans []coordinator.RebalancePlanAnswer) {
	var rows [][]any
	for _, p := range plans {
		budgets, moved := 0, coordinator.Moved{}
		for _, t := range p.Total {
			budgets += t.Budgets
			moved.Asked, moved.Returned, moved.Granted = moved.Asked+t.Asked, moved.Returned+t.Returned, moved.Granted+t.Granted
		}
		rows = append(rows, []any{p.ID, budgets, p.From + " to " + p.To, asLabels(p.Match), p.State, moved.Asked, moved.Returned, moved.Granted, p.By})
	}
	if len(rows) > 0 {
		a.table([]string{"plan", "budgets", "move", "match", "state", "asked", "returned", "granted", "by"}, rows)
		a.printf("\n")
	}
}

func (a *App) showMoveCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "show ID", Short: "Show how far a rebalance, or a plan of many, is", Args: exactly("ID"), Example: "  tranche rebalance show 1796026108570-2ad61f43",
		RunE: func(c *cobra.Command, args []string) error {
			err := ask(a, c, api.Call{Method: http.MethodGet, Path: "/v1/plans/" + url.PathEscape(args[0])}, a.showPlanOfMoves)
			if problem, is := errors.AsType[*api.Error](err); is && problem.Status == http.StatusNotFound {
				return ask(a, c, api.Call{Method: http.MethodGet, Path: "/v1/rebalances/" + url.PathEscape(args[0])}, a.showRebalance)
			}
			return err
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showRebalance(r coordinator.RebalanceAnswer) {
	a.printf("%s of each period of %s from %s to %s, from %s until %s: %s\n", counted(r.Units, "permit"), r.Budget, r.From, r.To, r.Since, r.Until, r.State)
	a.printf("of one period: asked %d, returned %d, granted %d\n", r.Asked, r.Returned, r.Granted)
	for _, n := range r.Notes {
		a.printf("note: %s\n", n)
	}
}
