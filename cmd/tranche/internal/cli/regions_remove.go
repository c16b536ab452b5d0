package cli

import (
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) removeCommand() *cobra.Command {
	var how acts
	c := &cobra.Command{
		Use: "remove REGION", Short: "Remove a region that is empty, or written off", Args: exactly("REGION"),
		Long: `Remove a region. It previews unless it is told --yes, and lists what stands in the way.

Drain it first, and take it out of the budgets that name it. It is removed when it has returned and stated all, or when what
it holds is written off: that stays out to each period's end. Its token ends. The name may be registered again.`,
		Example: "  tranche regions remove us-east\n  tranche regions remove us-east --yes --reason 'the site closes' --by Ada",
		RunE: func(c *cobra.Command, args []string) error {
			return act(a, c, how, api.Call{
				Method: http.MethodDelete, Path: "/v1/regions/" + url.PathEscape(args[0]), Body: coordinator.RemoveRequest{Reason: how.reason, By: how.by},
			}, a.showRemoval)
		},
	}
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showRemoval(r coordinator.RemoveAnswer) {
	for _, b := range r.Blocked {
		a.printf("in the way: %s\n", b)
	}
	if r.More > 0 {
		a.printf("and %s more\n", counted(r.More, "reason"))
	}
	for _, unit := range slices.Sorted(maps.Keys(r.WrittenOff)) {
		a.printf("written off: %d %s of running periods stay out; the last period in which some do ends at %s\n", r.WrittenOff[unit], unit, r.Through)
	}
	for _, n := range r.Notes {
		a.printf("note: %s\n", n)
	}
	switch {
	case !r.DryRun:
		a.printf("region %s is removed\n", r.Region)
	case len(r.Blocked) > 0:
		a.printf("region %s cannot be removed now; nothing was changed\n", r.Region)
	default:
		a.printf("region %s can be removed; nothing was changed: --yes --reason TEXT --by NAME does it\n", r.Region)
	}
}

// previewMembers shows what a change of the regions would do.
func (a *App) previewMembers(c *cobra.Command, call api.Call) error {
	client, _, err := a.coordinator(c)
	if err != nil {
		return err
	}
	call.Query = url.Values{"dry_run": {"true"}}
	var p coordinator.MembersPreview
	if _, err := client.Do(c.Context(), call, &p); err != nil {
		return err
	}
	if a.json {
		return a.printJSON(p)
	}
	for _, b := range p.Budgets {
		if b.Preview == nil {
			a.printf("%s, from %s: no period of it is running\n\n", b.Budget, b.From)
			continue
		}
		a.showPreview(applied{Budget: b.Budget, Answer: &coordinator.BudgetAnswer{From: b.From, Preview: b.Preview}})
	}
	if p.More > 0 {
		a.printf("and %s more\n", counted(p.More, "budget"))
	}
	for _, unit := range slices.Sorted(maps.Keys(p.Total)) {
		t := p.Total[unit]
		a.printf("%s of %s change; region %s may still spend %d of what it holds; at most %d can be spent in these periods, whatever happens\n",
			counted(t.Budgets, "budget"), unit, p.Region, t.MaySpend, t.Largest)
	}
	if len(p.Total) == 0 {
		a.printf("no open period of any budget changes\n")
	}
	for _, n := range p.Notes {
		a.printf("note: %s\n", n)
	}
	a.printf("nothing was changed\n")
	return nil
}
