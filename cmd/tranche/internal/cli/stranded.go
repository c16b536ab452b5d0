package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) strandedCommand() *cobra.Command {
	return parent("stranded", "See what regions hold that cannot be asked, and write it off", "  tranche stranded list\n  tranche stranded export report.html",
		a.listStrandedCommand(), a.exportStrandedCommand(), a.writeOffCommand(), a.writeOffsCommand())
}

// strandedQuery is what selects lines of the report.
type strandedQuery struct {
	budget, region, match string
	history               bool
}

func (q *strandedQuery) flags(c *cobra.Command) {
	c.Flags().StringVar(&q.budget, "budget", "", "only this `BUDGET`, or names that begin so: 'acme/*'")
	c.Flags().StringVar(&q.match, "match", "", "only budgets that declare these labels: `LABEL=VALUE`, several with commas")
}

func (q *strandedQuery) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"budget": q.budget, "region": q.region, "match": q.match} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if q.history {
		v.Set("history", strconv.FormatBool(true))
	}
	return v
}

func (a *App) strandedReport(c *cobra.Command, q strandedQuery) (report coordinator.StrandedReport, err error) {
	client, _, err := a.coordinator(c)
	if err != nil {
		return report, err
	}
	_, err = client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/stranded", Query: q.values()}, &report)
	return report, err
}

func (a *App) listStrandedCommand() *cobra.Command {
	var q strandedQuery
	var detail bool
	c := &cobra.Command{
		Use: "list", Short: "List the unspent permits of regions that cannot be asked", Args: exactly(),
		Example: "  tranche stranded list --match tenant=acme --detail",
		Long: `List what regions hold, unspent and unreturned as they last stated, that have not called for a while, that lost
their history, or that have yet to state under a new one.

Nobody else may use these permits: the region may be spending them right now. They are free again when it calls. Those of an
incarnation that lost its history are not: they end with their periods.`,
		RunE: func(c *cobra.Command, _ []string) error {
			report, err := a.strandedReport(c, q)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(report)
			}
			a.showStranded(report)
			if detail {
				for _, l := range report.Lines {
					a.showStrandedLine(l)
				}
			}
			if q.history {
				a.showHistory(report.History)
			}
			return nil
		},
	}
	q.flags(c)
	c.Flags().StringVar(&q.region, "region", "", "only this `REGION`")
	c.Flags().BoolVar(&q.history, "history", false, "also what was stranded and is not any more")
	c.Flags().BoolVar(&detail, "detail", false, "each line with its history, what would resolve it, and what one home would have done")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
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
		if r.Filter != nil && (r.Filter.Budget != "" || r.Filter.Region != "" || len(r.Filter.Match) > 0) {
			a.printf("nothing of what was asked for is stranded\n")
			return
		}
		a.printf("nothing is stranded: every region has called within %s\n", r.UnreachableAfter)
		return
	}
	var rows [][]any
	for _, l := range r.Lines {
		ahead := "-"
		if l.Ahead != nil {
			ahead = fmt.Sprint(known(l.Ahead.Stranded, l.Ahead.Unseen), " in ", counted(l.Ahead.Periods, "period"))
		}
		cause := l.Cause
		if l.WrittenOff != nil {
			cause += ", written off"
		}
		if l.Compensated != nil {
			cause += ", compensated"
		}
		rows = append(rows, []any{l.Region, l.Budget, l.Period.Start.String(), l.Generation.String(), known(l.Stranded, l.Unseen), l.Exposed, ahead, a.ago(l.StatedAt), cause, l.Incarnation})
	}
	a.table([]string{"region", "budget", "period", "generation", "stranded", "exposed", "ahead", "stated", "cause", "incarnation"}, rows)
	for _, unit := range slices.Sorted(maps.Keys(r.Total)) {
		t := r.Total[unit]
		if t.Stranded > 0 || t.Unseen > 0 {
			a.printf("%v %s are stranded in running periods\n", known(t.Stranded, t.Unseen), unit)
		}
		if t.AheadStranded > 0 {
			a.printf("%d %s are stranded in later periods of the opened terms\n", t.AheadStranded, unit)
		}
		if t.WrittenOff > 0 {
			a.printf("%d %s are written off\n", t.WrittenOff, unit)
		}
	}
	if r.More > 0 {
		a.printf("%s; the totals count all\n", counted(r.More, "more line"))
	}
	a.printf("%s\n", coordinator.StrandedNext(r.Lines))
}

// showStrandedLine is all that is known of one line.
func (a *App) showStrandedLine(l coordinator.StrandedLine) {
	since := ""
	if l.Since != nil {
		since = " since " + l.Since.UTC().Format(time.RFC3339)
	}
	a.printf("\n%s, %s, incarnation %s: %s%s\n", l.Budget, l.Region, l.Incarnation, l.Cause, since)
	a.printf("  granted %d, returned %d, last stated spent %d, reserved %d: stranded %d, exposed %d %s\n",
		l.Granted, l.Returned, l.Spent, l.Reserved, l.Stranded, l.Exposed, l.Unit)
	if r := l.Record; r != nil {
		a.printf("  at first %d, at most %d; %d permit-seconds; %s ended with %d never recovered\n",
			r.AtFirst, r.Most, r.PermitSeconds, counted(r.Periods, "period"), r.Expired)
		a.printf("  refused elsewhere with capacity_stranded: at least %s for %d %s\n", counted(r.Refused.Requests, "request"), r.Refused.Units, l.Unit)
	}
	if w := l.WrittenOff; w != nil {
		a.printf("  written off until %s by %s: %s\n", w.Through, w.By, w.Reason)
	}
	if c := l.Compensated; c != nil {
		a.printf("  compensated: the limit is %d instead of %d, until %s%s\n", c.After.Limit, c.Before.Limit, c.Until,
			yes(l.Cause != coordinator.CauseLostHistory, " or until the region calls"))
	}
	for _, r := range l.Resolve {
		a.printf("  resolved if %s\n", r.Text)
	}
	if l.Note != "" {
		a.printf("  note: %s\n", l.Note)
	}
	if t := l.Trade; t != nil {
		for _, h := range t.Homes {
			a.printf("  with one home in %s: %d %s admitted, %d of them after a round trip, %d unreachable, %d over the limit\n",
				h.Home, h.Admitted, l.Unit, h.Delayed, h.Unreachable, h.OverLimit)
		}
	}
}

func (a *App) showHistory(all []coordinator.Stranding) {
	if len(all) == 0 {
		a.printf("\nnothing that was stranded has been resolved yet\n")
		return
	}
	var rows [][]any
	for _, e := range all {
		rows = append(rows, []any{
			e.Region, e.Budget, e.Since.UTC().Format(time.RFC3339), span(e.Ended.Sub(e.Since)), e.Most, e.PermitSeconds, e.LateSpent, totalRefused(e), e.How,
		})
	}
	a.printf("\nresolved, the latest first:\n")
	a.table([]string{"region", "budget", "since", "for", "most", "permit-s", "late spent", "refused", "how"}, rows)
}

func totalRefused(e coordinator.Stranding) (n int64) {
	for _, r := range e.RefusedBy {
		n = allocation.SumUp(n, r.Requests)
	}
	return n
}
