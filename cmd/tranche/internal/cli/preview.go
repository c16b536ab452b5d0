package cli

import (
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/coordinator"
)

func (a *App) previewCommand() *cobra.Command {
	var deletes bool
	c := &cobra.Command{
		Use: "preview FILE|FOLDER…", Short: "Show what changes of budgets would do, and the most that may still be spent", Args: atLeastOne("FILE|FOLDER"),
		Long: `Show what changes of budgets would do, and change nothing: what differs, from when it counts, and, in the running
period, what each region holds, what it may still spend, and the most that can be spent whatever happens.`,
		Example: "  tranche budgets preview budgets/requests.yaml\n  tranche budgets preview --delete acme/requests",
		RunE: func(c *cobra.Command, args []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var plans []applied
			if deletes {
				for _, name := range args {
					b, err := readBudget(c.Context(), client, name)
					if err != nil {
						return err
					}
					plan := applied{Budget: name, Action: "deleted", Answer: new(coordinator.BudgetAnswer)}
					call := api.Call{
						Method: http.MethodDelete, Path: budgetPath("/v1/budgets/", name), Header: http.Header{"If-Match": {quoted(b.Version)}}, Query: url.Values{"dry_run": {"true"}},
					}
					if _, err := client.Do(c.Context(), call, plan.Answer); err != nil {
						return err
					}
					plans = append(plans, plan)
				}
			} else {
				declared, err := manifest.Load(a.in, args...)
				if err != nil {
					return err
				}
				if plans, err = a.check(c.Context(), client, declared); err != nil {
					return err
				}
			}
			if !a.json {
				for _, p := range plans {
					a.showPreview(p)
				}
			}
			return a.showPlans(plans)
		},
	}
	c.Flags().BoolVar(&deletes, "delete", false, "the arguments are names of budgets: what would their deletion do")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// showPreview prints what a change does in the running period.
func (a *App) showPreview(p applied) {
	if p.Answer == nil || p.Answer.Preview == nil || p.Action == actionUnchanged {
		return
	}
	v := p.Answer.Preview
	each := yes(v.PerInstance, "of each instance: ")
	a.printf("%s, from %s: %slimit %d, now %d; %d are out\n", p.Budget, p.Answer.From, each, v.NewLimit, v.Limit, v.Out)
	if v.Overcommitted > 0 && v.PerInstance {
		a.printf("%s%d more than that until every region has heard of it\n", each, v.Overcommitted)
	} else if v.Overcommitted > 0 {
		a.printf("overcommitted by %d until regions have returned it\n", v.Overcommitted)
	}
	a.printf("%sat most %d can be spent in this period, whatever happens\n", each, v.Largest)
	var rows [][]any
	for _, r := range v.Regions {
		if !r.InContact && r.Held == 0 && r.Target == 0 {
			continue // a former incarnation, of which nothing is out
		}
		var spent, reserved any = r.Spent, r.Reserved
		if v.PerInstance {
			spent, reserved = "-", "-"
		}
		rows = append(rows, []any{r.Region, r.Incarnation, yes(r.InContact, "yes") + yes(!r.InContact, "no"), r.Held, spent, reserved, r.MaySpend, r.Target})
	}
	a.table([]string{"region", "incarnation", "in contact", "holds", "spent", "reserved", "may still spend", "then holds"}, rows)
	for _, n := range v.Notes {
		a.printf("note: %s\n", n)
	}
	a.printf("\n")
}
