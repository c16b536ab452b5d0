package cli

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) estimatesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "estimates", Short: "How good the estimates of reservations were, and what open ones may come to", Args: exactly(),
		Long: `Show, by capability and unit, how far the true costs of reservations were from their estimates, and suggest better
estimates. A suggestion is at most a doubling or a halving, and is made of at least 100 settlements; a person applies it.
Below that: what open reservations hold now, and the largest overdraft that they may come to.`,
		Example: "  tranche estimates",
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var answer coordinator.EstimatesAnswer
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/estimates"}, &answer); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(answer)
			}
			a.showEstimates(answer)
			return nil
		},
	}
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showEstimates(e coordinator.EstimatesAnswer) {
	if len(e.Estimates) == 0 {
		a.printf("no reservation was settled with a true cost yet, or no node has told of one\n")
	} else {
		var rows [][]any
		for _, x := range e.Estimates {
			rows = append(rows, []any{
				x.Capability, x.Unit, x.Settled, fmt.Sprintf("%+.1f %%", x.BiasPercent), within(x.Median), within(x.Most), fmt.Sprintf("%.2f", float64(x.Worst)/100), x.Overdraft,
			})
		}
		a.printf("true cost over estimate, since %s:\n", e.Since.Format("2006-01-02"))
		a.table([]string{"capability", "unit", "settled", "bias", "half within", "90 % within", "worst", "overdraft"}, rows)
		a.printf("\nchange:\n")
		for _, x := range e.Estimates {
			a.printf("  %s, %s: %s\n", x.Capability, x.Unit, x.Change)
		}
	}
	if len(e.InFlight) == 0 {
		a.printf("\nnothing is reserved, and nothing is overdrawn\n")
		return
	}
	var rows [][]any
	for _, f := range e.InFlight {
		most := "not known"
		if f.AtWorst != nil {
			most = fmt.Sprint(*f.AtWorst)
		}
		rows = append(rows, []any{f.Budget, f.Unit, f.Reserved, most, f.Overdraft})
	}
	a.printf("\nin flight:\n")
	a.table([]string{"budget", "unit", "reserved", "overdraft at the worst ratio", "overdraft so far"}, rows)
	if e.More > 0 {
		a.printf("and %d more\n", e.More)
	}
	a.printf("\n%s\n", strings.ReplaceAll(e.Rule, ". ", ".\n"))
}

func within(ratio *float64) string {
	if ratio == nil {
		return "above 16"
	}
	return fmt.Sprintf("%.2f", *ratio)
}
