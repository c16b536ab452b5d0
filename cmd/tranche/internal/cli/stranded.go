package cli

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) strandedCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the unspent permits of regions that cannot be asked", Args: exactly(), Example: "  tranche stranded list",
		Long: `List what regions hold, unspent and unreturned as they last stated, that have not called for a while.

Nobody else may use these permits: the region may be spending them right now. They are free again when it calls.`,
		RunE: func(c *cobra.Command, _ []string) error {
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			var report coordinator.StrandedReport
			if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded"}, &report); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(report)
			}
			a.showStranded(report)
			return nil
		},
	}
	a.withCoordinator(list)
	a.withJSON(list)
	return parent("stranded", "See what regions hold that cannot be asked", "  tranche stranded list", list)
}

func (a *App) showStranded(r coordinator.StrandedReport) {
	if len(r.Lines) == 0 {
		a.printf("nothing is stranded: every region has called within %s\n", r.UnreachableAfter)
		return
	}
	var rows [][]any
	for _, l := range r.Lines {
		ahead := "-"
		if l.Ahead != nil {
			ahead = fmt.Sprintf("%d in %d periods", l.Ahead.Stranded, l.Ahead.Periods)
		}
		rows = append(rows, []any{l.Region, l.Budget, l.Period.Start.String(), l.Generation.String(), l.Stranded, l.Exposed, ahead, a.ago(l.StatedAt)})
	}
	a.table([]string{"region", "budget", "period", "generation", "stranded", "exposed", "ahead", "stated"}, rows)
	for _, unit := range slices.Sorted(maps.Keys(r.Total)) {
		if n := r.Total[unit]; n > 0 {
			a.printf("%d %s are stranded in running periods\n", n, unit)
		}
	}
	if r.More > 0 {
		a.printf("%d more lines; --json shows the totals\n", r.More)
	}
	a.printf("they are free again when the region calls; until then only that region can spend them\n")
}
