package cli

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) overrideCommand() *cobra.Command {
	return parent("override", "Raise one budget's limit for a while",
		"  tranche override budget acme/requests --units 500 --for 2h --approved-by Ada --reason 'launch'",
		a.overrideBudgetCommand(), a.overrideListCommand(), a.overrideEndCommand())
}

func (a *App) overrideBudgetCommand() *cobra.Command {
	var q coordinator.OverrideRequest
	var how acts
	var lasts string
	c := &cobra.Command{
		Use: "budget BUDGET --units N --for DURATION", Short: "Raise a limit, until it ends by itself", Args: exactly("BUDGET"),
		Long: `Raise the limit of each period of a budget, for a while. It previews unless it is told --yes: the most that may be spent more, over
all periods, stands in the preview.

When it ends, nothing is granted beyond the declared limit any more. What is out above it is overcommitted until it is returned, or
its period is over. It is the only way to let more through than a budget says; there is none without an end.`,
		Example: "  tranche override budget acme/requests --units 500 --for 2h --approved-by Ada --reason 'launch' --yes",
		RunE: func(c *cobra.Command, args []string) (err error) {
			switch {
			case lasts == "":
				return usagef("--for is missing: an override must have an end, such as --for 2h")
			case how.yes && how.by == "":
				return usagef("--approved-by is missing: it stands in the audit, and in every decision's evidence")
			case how.yes && how.reason == "":
				return usagef("--reason is missing: it stands in the audit")
			}
			if q.For, err = duration("for", lasts); err != nil {
				return err
			}
			q.Budget, q.Reason, q.By = args[0], how.reason, how.by
			return act(a, c, how, api.Call{Method: http.MethodPost, Path: "/v1/overrides", Body: q}, a.showOverride)
		},
	}
	f := c.Flags()
	f.Int64Var(&q.Units, "units", 0, "by how many units each period's limit is raised")
	f.StringVar(&lasts, "for", "", "`DURATION` after which it ends by itself, such as 2h")
	f.BoolVar(&how.preview, "preview", false, "show what would happen, change nothing (the default)")
	f.BoolVar(&how.yes, "yes", false, "do it; needs --reason and --approved-by")
	f.StringVar(&how.reason, "reason", "", "`TEXT` for the audit: why")
	f.StringVar(&how.by, "approved-by", "", "`NAME` of the person who approved it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showOverride(o coordinator.OverrideAnswer) {
	said := "is raised"
	if o.DryRun {
		said = "would be raised"
	} else {
		a.printf("override %s\n", o.ID)
	}
	a.printf("the limit of %s %s from %d to %d %s, until %s\n", o.Budget, said, o.Limit, o.Limit+o.Units, o.Unit, o.Until)
	a.printf("of a period: %s\n", permitsBy(o.Permits))
	for _, n := range o.Notes {
		a.printf("note: %s\n", n)
	}
	if o.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --approved-by NAME it is\n")
		return
	}
	a.printf("end it sooner with: tranche override end %s --reason TEXT --by NAME\n", o.ID)
}

func (a *App) overrideListCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "list", Short: "List the overrides that stand, and what became of others", Args: exactly(), Example: "  tranche override list",
		RunE: func(c *cobra.Command, _ []string) error {
			return ask(a, c, api.Call{Method: http.MethodGet, Path: "/v1/overrides"}, func(list coordinator.OverridesList) {
				var rows [][]any
				for _, o := range list.Overrides {
					rows = append(rows, []any{o.ID, o.Budget, o.Units, o.Until.String(), o.Total, o.State, o.By, o.Reason})
				}
				a.table([]string{"id", "budget", "units", "until", "in all", "state", "approved by", "reason"}, rows)
			})
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) overrideEndCommand() *cobra.Command {
	var q coordinator.EndOverrideRequest
	c := &cobra.Command{
		Use: "end ID", Short: "End an override before its time", Args: exactly("ID"), Example: "  tranche override end o-0f3a9c61d2b8 --reason 'launch is over' --by Ada",
		RunE: func(c *cobra.Command, args []string) error {
			if q.Reason == "" || q.By == "" {
				return usagef("`%s` needs --reason TEXT and --by NAME: both stand in the audit", c.CommandPath())
			}
			return ask(a, c, api.Call{Method: http.MethodPost, Path: "/v1/overrides/" + url.PathEscape(args[0]) + "/end", Body: q}, func(o coordinator.Override) {
				if o.State == coordinator.OverrideSuperseded {
					a.printf("the budget was deleted or stopped meanwhile: the override went with it\n")
					return
				}
				a.printf("override %s is over: nothing is granted beyond what %s declares; `tranche budgets shares %s` shows what is still out\n", o.ID, o.Budget, o.Budget)
			})
		},
	}
	c.Flags().StringVar(&q.Reason, "reason", "", "`TEXT` for the audit: why")
	c.Flags().StringVar(&q.By, "by", "", "`NAME` of the person who answers for it")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}
