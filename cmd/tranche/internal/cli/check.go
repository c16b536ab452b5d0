package cli

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
)

func (a *App) checkCommand() *cobra.Command {
	var costs []string
	var id, priority string
	var spend bool
	var deadline time.Duration
	c := &cobra.Command{
		Use: "check LABEL=VALUE…", Short: "Ask a node what would happen to a request; --spend charges it",
		Long: `Ask a node what would happen to a request with these labels. Nothing is charged.

With --spend it is charged, once for its admission id in this region, however often it is asked.
The status is 0 for an admission and 3 for a refusal.`,
		Example: `  tranche check tenant=acme
  tranche check tenant=acme --cost tokens=1200 --spend --id 7c9e6679`,
		RunE: func(c *cobra.Command, args []string) error {
			labels, err := pairs("label", args)
			if err != nil {
				return err
			}
			r := api.Admission{ID: id, Op: string(allocation.Check), Labels: labels, Priority: priority, Deadline: deadline}
			switch {
			case spend && id == "":
				return usagef("--spend needs --id: a name for this admission, so that it is charged once however often it is tried")
			case !spend && id != "":
				return usagef("--id is for --spend: nothing is charged or remembered without it")
			case spend:
				r.Op = string(allocation.Spend)
			}
			if _, wrong := allocation.ParsePriority(priority); wrong != nil {
				return usagef("--priority %s %s; %s", priority, wrong.Problem, wrong.Fix)
			}
			if r.Costs, err = amounts(costs); err != nil {
				return err
			}
			client, err := a.node(c)
			if err != nil {
				return err
			}
			d, err := api.Admit(c.Context(), client, r)
			if errors.Is(err, api.ErrUnknown) {
				return fmt.Errorf("%w; ask again with the same --id to learn the truth", err)
			}
			if err != nil {
				return err
			}
			return a.showDecision(d)
		},
	}
	f := c.Flags()
	f.StringArrayVar(&costs, "cost", nil, "`UNIT=N`, for each unit but requests, which is 1 unless given")
	f.BoolVar(&spend, "spend", false, "charge it")
	f.StringVar(&id, "id", "", "admission `ID` of --spend")
	f.StringVar(&priority, "priority", "", "`PRIORITY`: essential, interactive (default) or batch")
	f.DurationVar(&deadline, "deadline", 0, "how long the node may take (default 1s)")
	a.withNode(c)
	a.withJSON(c)
	return c
}

func amounts(costs []string) (map[string]int64, error) {
	texts, err := pairs("--cost", costs)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for unit, text := range texts {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > allocation.MaxUnits {
			return nil, usagef("--cost %s=%s: give a whole number from 0 to %d", unit, text, allocation.MaxUnits)
		}
		out[unit] = n
	}
	return out, nil
}

// showDecision prints a decision; a refusal is status 3.
func (a *App) showDecision(d api.Decision) error {
	var refused error
	if !d.Admitted() {
		refused = errNotWell
	}
	if a.json {
		if err := a.printJSON(d.Raw); err != nil {
			return err
		}
		return refused
	}
	if d.Admitted() {
		a.printf("admitted in %s%s\n", d.Region, yes(d.Replayed, " (a replay: charged before, not again)"))
		if d.Action == allocation.ActionDegraded {
			a.printf("  degraded: take the route %s\n", d.Route)
		}
		if s := d.Shadow; s != nil {
			a.printf("  let through in shadow; enforcement would refuse it: %s (%s)\n", s.Would, s.Title)
		}
	} else {
		a.printf("refused in %s: %s (%d)\n", d.Region, d.Reason, d.Status)
		for _, text := range []string{d.Title, d.Detail} {
			if text != "" {
				a.printf("  %s\n", text)
			}
		}
		if d.Blocking != nil {
			a.printf("  first refusing budget: %s\n", d.Blocking.Budget)
		}
		a.printf("  retry: %s%s\n", d.Retry, yes(d.RetryAfter > 0, fmt.Sprintf(", in %d s", d.RetryAfter)))
		if d.Unknown() {
			a.printf("  it may have been charged; ask again with the same --id to learn the truth\n")
		}
	}
	var rows [][]any
	for _, b := range d.Budgets {
		period := "-"
		if b.Period != nil {
			period = b.Period.Start
		}
		rows = append(rows, []any{b.Budget + yes(b.Instance != "", " ["+b.Instance+"]"), b.Reason, b.Requested, b.Charged, b.Remaining, b.Share, b.Limit, b.Unit, period})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "", "requested", "charged", "left here", "share", "limit", "unit", "period"}, rows)
	}
	return refused
}
