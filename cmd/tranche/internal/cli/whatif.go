package cli

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) whatIfCommand() *cobra.Command {
	var q strandedQuery
	var region string
	c := &cobra.Command{
		Use: "whatif --lose REGION", Short: "Show what would be stranded if a region were lost now", Args: exactly(),
		Example: "  tranche whatif --lose us-east --match tenant=acme",
		Long: `Show what would be stranded if a region were lost now, in the running periods and ahead, and how long what the other
regions may spend would last at the last hour's rate: their own, and with the lost region's load. Nothing is changed.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if region == "" {
				return usagef("`%s` needs --lose REGION", c.CommandPath())
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			query := q.values()
			query.Set("lose", region)
			var w coordinator.WhatIf
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/whatif", Query: query}, &w); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(w)
			}
			a.showWhatIf(w)
			return nil
		},
	}
	c.Flags().StringVar(&region, "lose", "", "`REGION` to lose")
	q.flags(c)
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

func (a *App) showWhatIf(w coordinator.WhatIf) {
	var rows [][]any
	for _, b := range w.Budgets {
		ahead := "-"
		if b.Ahead != nil {
			ahead = fmt.Sprint(known(b.Ahead.Stranded, b.Ahead.Unseen), " in ", counted(b.Ahead.Periods, "period"))
		}
		left := b.Unallocated
		for _, o := range b.Others {
			left = allocation.SumUp(left, o.Spendable)
		}
		var others any = left
		if b.Template {
			others = "-"
		}
		rows = append(rows, []any{b.Budget, known(b.Lost.Stranded, b.Lost.Unseen), ahead, others, lasts(b, b.Lasts, b.OthersRate), lasts(b, b.LastsWithLoad, b.OthersRate.Add(b.LostRate))})
	}
	if len(rows) == 0 {
		a.printf("nothing would be stranded: region %s holds nothing of what was asked for\n", w.Lose)
	} else {
		a.table([]string{"budget", "stranded", "ahead", "others have", "lasts", "with its load"}, rows)
	}
	for _, unit := range slices.Sorted(maps.Keys(w.Total)) {
		t := w.Total[unit]
		a.printf("%v %s would be stranded in running periods, %d ahead\n", known(t.Stranded, t.Unseen), unit, t.AheadStranded)
	}
	if w.More > 0 {
		a.printf("%s; the totals count all\n", counted(w.More, "more budget"))
	}
	for _, n := range w.Notes {
		a.printf("note: %s\n", n)
	}
}

// lasts tells how long something lasts. Where no rate is known nothing is promised.
func lasts(b coordinator.WhatIfBudget, d *allocation.Duration, rate allocation.Rate) string {
	switch {
	case b.Template || rate.Over == 0:
		return "unknown"
	case d != nil:
		return span(d.Std())
	case rate.Units == 0:
		return "nothing was spent"
	case b.Period.End == allocation.Never:
		return "for ever"
	}
	return "the period"
}

// permitsBy is numbers by region, in words.
func permitsBy(by map[string]int64) string {
	var parts []string
	for _, region := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s %d", region, by[region]))
	}
	return strings.Join(parts, ", ")
}
