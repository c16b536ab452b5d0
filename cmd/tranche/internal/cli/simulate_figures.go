package cli

import (
	"context"
	"fmt"
	"strings"

	"tranche/simulations"
)

// simulateFigures measures policies demand and home, and prints what they reach.
func (a *App) simulateFigures(ctx context.Context, f simulateFlags) error {
	figures, err := simulations.MeasureFigures(ctx, simulations.FiguresOptions{Seed: f.seed, Progress: func(what string) { a.live("%s", what) }})
	a.liveEnd()
	if err != nil {
		return err
	}
	if a.json {
		if err := a.printLine(figures); err != nil {
			return err
		}
	} else {
		a.showFigures(figures)
	}
	if n := len(figures.Missed); n > 0 {
		return fmt.Errorf("%d figures are missed: %s", n, strings.Join(figures.Missed, "; "))
	}
	return nil
}

func (a *App) showFigures(f simulations.Figures) {
	a.printf("Policy demand over three regions, one minute, load 1.5 times the limit, %.0f ms to the coordinator and back:\n", f.RoundTrip)
	var rows [][]any
	for _, d := range f.Demand {
		what := ""
		if d.Cut {
			what = "the first, two cut off"
		}
		rows = append(rows, []any{
			d.Limit, d.Skew, d.Offered, d.Admitted, d.Available, fmt.Sprintf("%.3f", d.Utilisation), fmt.Sprintf("%.3f", d.Static),
			fmt.Sprintf("%.2f", d.WritesPer100), d.Refused, what,
		})
	}
	a.printf("Used is of what is available: all that regions which are cut off do not hold.\n")
	a.table([]string{"limit", "load %", "offered", "admitted", "available", "used", "even split", "writes/100", "share spent", ""}, rows)
	a.printf("\nPolicy home, hash_of caller, four regions, limit 10 a minute for each caller, each asks 12 times:\n")
	rows = nil
	for _, c := range f.Callers {
		cut, stranded := "none", "none"
		if c.Cut != "" {
			cut = c.Cut
		}
		if len(c.Stranded) > 0 {
			stranded = strings.Join(c.Stranded, ", ")
		}
		rows = append(rows, []any{c.Callers, cut, c.Exact, fmt.Sprintf("%d of %d", c.Sent, c.Elsewhere), c.LedgerWrites, stranded})
	}
	a.table([]string{"callers", "cut off", "got exactly 10", "told their home", "ledger writes", "stranded in"}, rows)
}
