package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/regional"
)

func (a *App) shadowCommand() *cobra.Command {
	return parent("shadow", "See what enforcement would do before it does it", "  tranche shadow report", a.shadowReportCommand())
}

func (a *App) shadowReportCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "report [NODE…]", Short: "Show what would have been refused, to whom, and which limit would have refused nobody",
		Long: `Show what nodes saw of budgets in shadow, and of calls that came with the verdict of another limiter.

Each node knows what passed through it since its start. Name all nodes of all regions to add them up.`,
		Example: "  tranche shadow report\n  tranche shadow report http://10.0.0.1:7080 http://10.0.0.2:7080 --json",
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := a.settings(c)
			if err != nil {
				return err
			}
			if len(args) == 0 {
				args = []string{s.Node}
			}
			var reports []regional.ShadowReport
			for _, address := range args {
				client, err := api.New("node", address, s.NodeToken, s.CA)
				if err != nil {
					return err
				}
				r, err := shadowOf(c.Context(), client)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			return a.showShadow(reports)
		},
	}
	a.withNode(c)
	a.withJSON(c)
	return c
}

func shadowOf(ctx context.Context, client *api.Client) (r regional.ShadowReport, err error) {
	defer client.Close()
	_, err = client.Do(ctx, api.Call{Method: http.MethodGet, Path: "/v1/shadow"}, &r)
	return r, err
}

// shadowSum is what several nodes saw.
type shadowSum struct {
	Nodes   []regional.ShadowReport `json:"nodes"`
	Budgets []shadowLine            `json:"budgets"`
}

// shadowLine is one budget over all of them.
type shadowLine struct {
	Budget      string `json:"budget"`
	Unit        string `json:"unit,omitempty"`
	Limit       int64  `json:"limit"`
	Decided     int64  `json:"decided"`
	WouldRefuse int64  `json:"would_refuse"`
	Impossible  int64  `json:"impossible"` // requests whose cost is above the whole limit; in no peak
	Greatest    int64  `json:"greatest_impossible_cost,omitempty"`
	Stricter    int64  `json:"stricter_than_legacy"`
	Looser      int64  `json:"looser_than_legacy"`
	Peak        int64  `json:"peak"`
	Whole       int    `json:"whole_periods"`
	Suggested   int64  `json:"suggested"`
	How         string `json:"how"`
}

const howSummed = "the sum of the nodes' greatest periods, which need not be the same period, and 20 % more, rounded up"

func sumShadow(reports []regional.ShadowReport) shadowSum {
	sum := shadowSum{Nodes: reports, Budgets: []shadowLine{}}
	at := map[string]int{}
	for _, r := range reports {
		for _, b := range r.Budgets {
			i, known := at[b.Budget]
			if !known {
				i = len(sum.Budgets)
				at[b.Budget] = i
				sum.Budgets = append(sum.Budgets, shadowLine{Budget: b.Budget, How: howSummed})
			}
			line := &sum.Budgets[i]
			line.Unit, line.Limit = cmp.Or(b.Unit, line.Unit), max(b.Limit, line.Limit)
			line.Decided, line.WouldRefuse = line.Decided+b.Decided, line.WouldRefuse+b.WouldRefuse
			line.Impossible, line.Greatest = line.Impossible+b.Impossible, max(line.Greatest, b.GreatestCost)
			line.Stricter, line.Looser = line.Stricter+b.Stricter, line.Looser+b.Looser
			if b.Peak != nil {
				line.Peak, line.Whole = line.Peak+b.Peak.Asked, max(line.Whole, b.Peak.Whole)
			}
			line.Suggested = regional.SuggestLimit(line.Peak)
		}
	}
	slices.SortFunc(sum.Budgets, func(a, b shadowLine) int { return cmp.Compare(a.Budget, b.Budget) })
	return sum
}

func (a *App) showShadow(reports []regional.ShadowReport) error {
	sum := sumShadow(reports)
	if a.json {
		return a.printJSON(sum)
	}
	for _, r := range reports {
		a.printf("%s in %s%s: %s watched in %s%s\n", r.Node, r.Region, yes(r.Shadow, ", in shadow"), counted(int(r.Decisions), "decision"),
			r.Until.Sub(r.Since).Truncate(time.Second), yes(r.Lost > 0, fmt.Sprintf(", and %d lost", r.Lost)))
	}
	if len(sum.Budgets) == 0 {
		a.printf("nothing was watched: no budget in shadow, and no call with a verdict in the field legacy\n")
		return nil
	}
	var rows [][]any
	for _, b := range sum.Budgets {
		suggested, peak := any("-"), any("-")
		if b.Peak > 0 {
			suggested, peak = b.Suggested, b.Peak
		}
		rows = append(rows, []any{cmp.Or(b.Budget, "(no budget)"), b.Decided, b.WouldRefuse, b.Stricter, b.Looser, b.Limit, peak, suggested, b.Unit})
	}
	a.table([]string{"budget", "decided", "would refuse", "legacy allowed", "legacy denied", "limit", "peak", "suggested", "unit"}, rows)
	for _, b := range sum.Budgets {
		if b.Impossible > 0 {
			a.printf("%s: %s more than the whole limit (the most: %d), and not in the peak\n",
				b.Budget, plural(int(b.Impossible), "request costs", "requests cost"), b.Greatest)
		}
	}
	a.printf("legacy allowed: what would be refused now; legacy denied: what would be admitted now\n")
	a.printf("suggested: %s\n", howSummed)
	a.showCauses(reports)
	a.showDisagreements(reports)
	return nil
}

// showDisagreements lists where the other limiter said otherwise, by budget and cause.
func (a *App) showDisagreements(reports []regional.ShadowReport) {
	var rows [][]any
	for _, r := range reports {
		for _, b := range r.Budgets {
			name := cmp.Or(b.Budget, "(no budget)")
			for _, c := range b.Causes {
				if c.LegacyAllow > 0 {
					rows = append(rows, []any{name, c.Reason, r.Node, c.LegacyAllow, "allowed it"})
				}
			}
			if b.Looser > 0 {
				rows = append(rows, []any{name, "admitted", r.Node, b.Looser, "denied it"})
			}
		}
	}
	if len(rows) > 0 {
		a.printf("\n")
		a.table([]string{"budget", "enforcement says", "node", "requests", "the other limiter"}, rows)
	}
}

func (a *App) showCauses(reports []regional.ShadowReport) {
	var rows [][]any
	for _, r := range reports {
		for _, b := range r.Budgets {
			for _, c := range b.Causes {
				name := cmp.Or(b.Budget, "(no budget)")
				for _, to := range c.To {
					rows = append(rows, []any{name, c.Reason, r.Node, to.Count, to.Units, asLabels(to.Labels)})
				}
				if c.Others > 0 {
					rows = append(rows, []any{name, c.Reason, r.Node, c.Others, "-", "other labels"})
				}
			}
		}
	}
	if len(rows) > 0 {
		a.printf("\n")
		a.table([]string{"budget", "cause", "node", "requests", "units", "to"}, rows)
	}
}
