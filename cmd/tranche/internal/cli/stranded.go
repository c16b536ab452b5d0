package cli

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/spf13/cobra"

	"tranche/allocation"
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

// known is what is known to be stranded, and of a template the most that instances could hold which were not seen yet.
func known(stranded, unseen int64) any {
	if unseen == 0 {
		return stranded
	}
	return fmt.Sprintf("%d + up to %d unseen", stranded, unseen)
}

func (a *App) showStranded(r coordinator.StrandedReport) {
	if len(r.Lines) == 0 {
		a.printf("nothing is stranded: every region has called within %s\n", r.UnreachableAfter)
		return
	}
	var rows [][]any
	unseen := map[string]allocation.Remainder{}
	for _, l := range r.Lines {
		unseen[l.Unit] = unseen[l.Unit].Add(allocation.Remainder{Unseen: l.Unseen})
		ahead := "-"
		if l.Ahead != nil {
			ahead = fmt.Sprint(known(l.Ahead.Stranded, l.Ahead.Unseen), " in ", counted(l.Ahead.Periods, "period"))
		}
		rows = append(rows, []any{l.Region, l.Budget, l.Period.Start.String(), l.Generation.String(), known(l.Stranded, l.Unseen), l.Exposed, ahead, a.ago(l.StatedAt)})
	}
	a.table([]string{"region", "budget", "period", "generation", "stranded", "exposed", "ahead", "stated"}, rows)
	for _, unit := range slices.Sorted(maps.Keys(r.Total)) {
		if n, more := r.Total[unit], unseen[unit].Unseen; n > 0 || more > 0 {
			a.printf("%v %s are stranded in running periods\n", known(n, more), unit)
		}
	}
	if r.More > 0 {
		a.printf("%s; --json shows the totals\n", counted(r.More, "more line"))
	}
	a.printf("they are free again when the region calls; until then only that region can spend them\n")
}
