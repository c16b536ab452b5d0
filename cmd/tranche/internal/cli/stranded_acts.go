package cli

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) writeOffCommand() *cobra.Command {
	var q coordinator.WriteOffRequest
	var how acts
	c := &cobra.Command{
		Use: "write-off --budget BUDGET --region REGION", Short: "Count stranded permits as spent for good", Args: exactly(),
		Example: "  tranche stranded write-off --budget acme/requests --region us-east --yes --reason 'the site is gone' --by Ada",
		Long: `Count the stranded permits of a budget in a region as spent for good. It previews unless it is told --yes.

It is always safe: it leaves a mark, no counter moves, and nobody else gets these permits. If the region comes back they
are still its own, and what it states to have spent is recorded.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if q.Budget == "" || q.Region == "" {
				return usagef("`%s` needs --budget BUDGET and --region REGION", c.CommandPath())
			}
			q.Reason, q.By = how.reason, how.by
			return act(a, c, how, api.Call{Method: http.MethodPost, Path: "/v1/writeoffs", Body: q}, a.showWriteOff)
		},
	}
	c.Flags().StringVar(&q.Budget, "budget", "", "`BUDGET` whose permits are stranded")
	c.Flags().StringVar(&q.Region, "region", "", "`REGION` that holds them")
	c.Flags().StringVar(&q.Incarnation, "incarnation", "", "`ID` of the incarnation, where several hold permits")
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showWriteOff(w coordinator.WriteOffAnswer) {
	said := "written off"
	if w.DryRun {
		said = "would be written off"
	}
	ahead := ""
	if w.Ahead != nil {
		ahead = fmt.Sprintf(", and %v in the %s after it", known(w.Ahead.Stranded, w.Ahead.Unseen), counted(w.Ahead.Periods, "period"))
	}
	a.printf("%s: %v %s of %s in region %s, incarnation %s, in the period of %s%s\n",
		said, known(w.Now.Stranded, w.Now.Unseen), w.Unit, w.Budget, w.Region, w.Incarnation, w.Period.Start, ahead)
	for _, n := range w.Notes {
		a.printf("note: %s\n", n)
	}
	if w.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is\n")
	}
}

func (a *App) writeOffsCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "write-offs", Short: "List what was written off, the latest first", Args: exactly(), Example: "  tranche stranded write-offs",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var list coordinator.WriteOffsList
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/writeoffs"}, &list); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(list)
			}
			if len(list.WriteOffs) == 0 {
				a.printf("nothing was written off\n")
				return nil
			}
			var rows [][]any
			for _, w := range list.WriteOffs {
				back := "not yet"
				if w.Returned != nil {
					back = fmt.Sprintf("%s, had spent %d", a.ago(w.Returned), w.LateSpent)
				}
				rows = append(rows, []any{w.Region, w.Budget, w.Now.Stranded, w.Unit, w.Made.UTC().Format(time.RFC3339), w.By, back, w.Reason})
			}
			a.table([]string{"region", "budget", "permits", "unit", "made", "by", "back", "reason"}, rows)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) compensateCommand() *cobra.Command {
	var q coordinator.CompensateRequest
	var how acts
	var cancel bool
	c := &cobra.Command{
		Use: "compensate BUDGET --region REGION [--units N] | BUDGET --cancel", Short: "Raise a limit while a region is away", Args: exactly("BUDGET"),
		Example: "  tranche budgets compensate acme/requests --region us-east --units 50 --yes --reason 'us-east is cut off' --by Ada",
		Long: `Raise a budget's limit by at most what is stranded in a region, for the other regions. It previews unless it is told --yes.

Nothing is taken from the region that is away: more may be spent in all, honestly and audited. The limit is what it was when
the region calls again, when the term that runs now ends, or with --cancel.`,
		RunE: func(c *cobra.Command, args []string) error {
			q.Budget = args[0]
			if cancel {
				return a.cancelCompensation(c, q.Budget)
			}
			if q.Region == "" || q.Units < 0 {
				return usagef("`%s` needs --region REGION, and --units N of at least 1 if not all is to be compensated", c.CommandPath())
			}
			q.Reason, q.By = how.reason, how.by
			return act(a, c, how, api.Call{Method: http.MethodPost, Path: "/v1/compensations", Body: q}, a.showCompensation)
		},
	}
	c.Flags().StringVar(&q.Region, "region", "", "`REGION` that holds the stranded permits")
	c.Flags().StringVar(&q.Incarnation, "incarnation", "", "`ID` of the incarnation, where several hold permits")
	c.Flags().Int64Var(&q.Units, "units", 0, "by how much; 0: by all that is stranded in the running period")
	c.Flags().BoolVar(&cancel, "cancel", false, "end the one that stands: the limit is what it was")
	how.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showCompensation(c coordinator.CompensateAnswer) {
	said := "is raised"
	if c.DryRun {
		said = "would be raised"
	}
	a.printf("the limit of %s %s from %d to %d %s\n", c.Budget, said, c.Before.Limit, c.After.Limit, c.Unit)
	a.printf("of a period: %s\n", permitsBy(c.Permits))
	for _, n := range c.Notes {
		a.printf("note: %s\n", n)
	}
	if c.DryRun {
		a.printf("nothing was changed; with --yes --reason TEXT --by NAME it is\n")
	}
}

func (a *App) cancelCompensation(c *cobra.Command, budget string) error {
	client, _, err := a.coordinator(c)
	if err != nil {
		return err
	}
	var list coordinator.CompensationsList
	if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/compensations"}, &list); err != nil {
		return err
	}
	for _, one := range list.Compensations {
		if one.Budget != budget || one.State != coordinator.CompensationActive {
			continue
		}
		var after coordinator.Compensation
		if _, err := client.Do(c.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/compensations/" + one.ID}, &after); err != nil {
			return err
		}
		if a.json {
			return a.printJSON(after)
		}
		if after.State == coordinator.CompensationSuperseded {
			a.printf("the budget was changed meanwhile: its limit is what that change says\n")
			return nil
		}
		a.printf("the limit of %s is %d again; what was spent above it stays spent\n", budget, after.Before.Limit)
		return nil
	}
	return fmt.Errorf("no compensation of %s stands; `tranche stranded list` shows which do", budget)
}
