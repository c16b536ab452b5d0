package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) shadowBudgetCommand() *cobra.Command {
	var lasts allocation.Duration
	var forText, reason string
	var meter, dry bool
	c := &cobra.Command{
		Use: "shadow NAME", Short: "Stop to enforce a budget for a while: what it would refuse is let through", Args: exactly("NAME"),
		Long: `Stop to enforce a budget for a while. What it would refuse is let through and not charged, so that its counters
stay within the limit; the traffic does not. It ends by itself, by the clock of each region's database, also where
the region is cut off meanwhile. The reason stands in the audit with your token's name.

To enforce it again sooner, apply its file.`,
		Example: "  tranche budgets shadow acme/requests --for 1h --reason 'incident 4711: wrong limit'",
		RunE: func(c *cobra.Command, args []string) error {
			if err := lasts.UnmarshalText([]byte(forText)); err != nil || lasts < allocation.Second || lasts > allocation.MaxShadowAgain {
				return usagef("--for %s: say how long, 1s to 7d, like 90m, 12h or 2d; it is enforced again after that", cmp.Or(forText, "is missing"))
			}
			if reason == "" {
				return usagef("say why: --reason TEXT")
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			old, err := readBudget(c.Context(), client, args[0])
			if err != nil {
				return err
			}
			b := old.Budget
			b.Enforcement, b.EnforceFor, b.EnforcementUntil = allocation.Shadow, nil, allocation.At(a.now().Add(lasts.Std()))
			if meter {
				b.Enforcement = allocation.Meter
			}
			call := api.Call{
				Method: http.MethodPut, Path: budgetPath("/v1/budgets/", b.Name), Body: b, Query: url.Values{"reason": {reason}},
				Header: http.Header{"If-Match": {quoted(old.Version)}},
			}
			if dry {
				call.Query.Set("dry_run", "true")
			}
			var after coordinator.BudgetAnswer
			if _, err := client.Do(c.Context(), call, &after); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(after)
			}
			a.printf("%s: %s until %s, version %d\n", b.Name, map[bool]string{true: "would be in " + b.Enforcement, false: "in " + b.Enforcement}[dry], b.EnforcementUntil, after.Version)
			for _, w := range after.Warnings {
				a.printf("warning: %s\n", w)
			}
			return nil
		},
	}
	c.Flags().StringVar(&forText, "for", "", "`TIME`, 1s to 7d; then it is enforced again by itself")
	c.Flags().StringVar(&reason, "reason", "", "`TEXT` for the audit")
	c.Flags().BoolVar(&meter, "meter", false, "count what is above the limit too, as overdraft")
	c.Flags().BoolVar(&dry, "dry-run", false, "show what would happen")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// enforcementRows say how a budget is enforced.
func enforcementRows(b allocation.Budget) [][]any {
	rows := [][]any{{"enforcement", orDefault(b.Enforcement, allocation.Enforce)}}
	if f := b.EnforceFor; f != nil {
		var which []string
		if f.Percent > 0 {
			which = append(which, fmt.Sprintf("%d %% of the admission ids", f.Percent))
		}
		if len(f.Match) > 0 {
			which = append(which, asLabels(f.Match))
		}
		rows = append(rows, []any{"enforce_for", strings.Join(which, ", and ")})
	}
	if b.EnforcementUntil != 0 {
		rows = append(rows, []any{"enforcement_until", b.EnforcementUntil.String() + ", then it is enforced"})
	}
	return rows
}
