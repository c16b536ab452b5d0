package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tranche/allocation"
	"tranche/coordinator"
)

func (a *App) exportStrandedCommand() *cobra.Command {
	var q strandedQuery
	c := &cobra.Command{
		Use: "export FILE.html|FILE.csv", Short: "Write the report, with its history, to a file", Args: exactly("FILE"),
		Example: "  tranche stranded export stranded.html --match tenant=acme",
		Long: `Write the report, with its history, to a file: a web page that needs nothing else, or CSV. A - instead of the name, with
the ending, prints it: -.csv`,
		RunE: func(c *cobra.Command, args []string) error {
			ending := filepath.Ext(args[0])
			write := map[string]func(io.Writer, coordinator.StrandedReport) error{".html": writeStrandedPage, ".csv": writeStrandedCSV}[ending]
			if write == nil {
				return usagef("`%s` writes FILE.html or FILE.csv, not %q", c.CommandPath(), args[0])
			}
			q.history = true
			report, err := a.strandedReport(c, q)
			if err != nil {
				return err
			}
			if args[0] == "-"+ending {
				return write(a.out, report)
			}
			if err := writeFile(args[0], func(w io.Writer) error { return write(w, report) }); err != nil {
				return err
			}
			a.printf("%s: %s, and %s resolved\n", args[0], counted(len(report.Lines), "line"), counted(len(report.History), "stranding"))
			return nil
		},
	}
	q.flags(c)
	c.Flags().StringVar(&q.region, "region", "", "only this `REGION`")
	a.withCoordinator(c)
	return c
}

// writeFile leaves no half of a file under its name.
func writeFile(name string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".tranche-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name())
			err = fmt.Errorf("write %s: %w", name, err)
		}
	}()
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	return err
}

// strandedColumns are those of the CSV: a row is one line in its running period, the periods ahead of it, what one home
// would have done with the same demand, or one stranding that was resolved. Each kind fills columns of its own, so that a
// column adds up.
var strandedColumns = []string{
	"row", "region", "incarnation", "budget", "unit", "cause", "since", "period_start", "period_end", "periods", "generation", "stated_generation", "stated_at",
	"granted", "returned", "spent", "reserved", "stranded", "exposed", "unseen", "at_first", "most", "grew", "permit_seconds", "periods_ended", "expired",
	"refused_requests", "refused_units", "written_off_by", "written_off_reason", "compensated_units", "resolved_by", "resolved_at_the_latest", "ended", "how", "late_spent",
	"home", "home_admitted", "home_after_round_trip", "home_unreachable", "home_over_limit", "home_estimated",
}

func writeStrandedCSV(out io.Writer, r coordinator.StrandedReport) error {
	w := csv.NewWriter(out)
	rows := [][]string{strandedColumns}
	for _, l := range r.Lines {
		rows = append(rows, csvRow(csvLine(l)))
		if l.Ahead != nil {
			rows = append(rows, csvRow(csvAhead(l)))
		}
		for _, cells := range csvTrade(l) {
			rows = append(rows, csvRow(cells))
		}
	}
	for _, e := range r.History {
		rows = append(rows, csvRow(csvPast(e)))
	}
	if err := w.WriteAll(rows); err != nil {
		return fmt.Errorf("write CSV: %w", err)
	}
	return nil
}

// csvRow puts named cells in the order of the columns. A spreadsheet must not take a text for a formula.
func csvRow(cells map[string]any) []string {
	row := make([]string, len(strandedColumns))
	for i, name := range strandedColumns {
		switch v := cells[name].(type) {
		case nil:
		case *time.Time:
			if v != nil {
				row[i] = v.UTC().Format(time.RFC3339)
			}
		case int64:
			row[i] = strconv.FormatInt(v, 10)
		default:
			row[i] = fmt.Sprint(v)
			if strings.ContainsAny(row[i][:min(1, len(row[i]))], "=+-@\t\r") {
				row[i] = "'" + row[i]
			}
		}
	}
	return row
}

func csvLine(l coordinator.StrandedLine) map[string]any {
	cells := map[string]any{
		"row": "now", "region": l.Region, "incarnation": l.Incarnation, "budget": l.Budget, "unit": l.Unit, "cause": l.Cause, "since": l.Since,
		"period_start": l.Period.Start, "period_end": l.Period.End, "periods": 1, "generation": l.Generation, "stated_at": l.StatedAt,
		"granted": l.Granted, "returned": l.Returned, "spent": l.Spent, "reserved": l.Reserved, "stranded": l.Stranded, "exposed": l.Exposed, "unseen": l.Unseen,
	}
	if l.StatedGeneration.Number > 0 {
		cells["stated_generation"] = l.StatedGeneration
	}
	if r := l.Record; r != nil {
		cells["at_first"], cells["most"], cells["grew"] = r.AtFirst, r.Most, r.Grew
		cells["permit_seconds"], cells["periods_ended"], cells["expired"] = r.PermitSeconds, r.Periods, r.Expired
		cells["refused_requests"], cells["refused_units"] = r.Refused.Requests, r.Refused.Units
	}
	if w := l.WrittenOff; w != nil {
		cells["written_off_by"], cells["written_off_reason"] = w.By, w.Reason
	}
	if c := l.Compensated; c != nil {
		cells["compensated_units"] = c.Units
	}
	var by []string
	for _, remedy := range l.Resolve {
		by = append(by, remedy.How)
		if remedy.At != nil {
			cells["resolved_at_the_latest"] = *remedy.At
		}
	}
	cells["resolved_by"] = strings.Join(by, " or ")
	return cells
}

// csvTrade has a row for each region that could have been the one home of the whole budget.
func csvTrade(l coordinator.StrandedLine) (rows []map[string]any) {
	if l.Trade == nil {
		return nil
	}
	estimated := slices.ContainsFunc(l.Trade.Demand, func(d allocation.RegionDemand) bool { return d.Estimated })
	for _, h := range l.Trade.Homes {
		rows = append(rows, map[string]any{
			"row": "one home", "region": l.Region, "incarnation": l.Incarnation, "budget": l.Budget, "unit": l.Unit, "cause": l.Cause,
			"period_start": l.Trade.Period.Start, "period_end": l.Trade.Period.End, "home": h.Home, "home_admitted": h.Admitted,
			"home_after_round_trip": h.Delayed, "home_unreachable": h.Unreachable, "home_over_limit": h.OverLimit, "home_estimated": yes(estimated, "yes"),
		})
	}
	return rows
}

func csvAhead(l coordinator.StrandedLine) map[string]any {
	return map[string]any{
		"row": "ahead", "region": l.Region, "incarnation": l.Incarnation, "budget": l.Budget, "unit": l.Unit, "cause": l.Cause, "since": l.Since,
		"period_start": l.Period.End, "period_end": l.Ahead.Until, "periods": l.Ahead.Periods, "generation": l.Generation,
		"stranded": l.Ahead.Stranded, "exposed": l.Ahead.Exposed, "unseen": l.Ahead.Unseen,
	}
}

func csvPast(e coordinator.Stranding) map[string]any {
	var refused coordinator.Refused
	for _, r := range e.RefusedBy {
		refused.Requests, refused.Units = allocation.SumUp(refused.Requests, r.Requests), allocation.SumUp(refused.Units, r.Units)
	}
	return map[string]any{
		"row": "resolved", "region": e.Region, "incarnation": e.Incarnation, "budget": e.Budget, "unit": e.Unit, "cause": e.Cause, "since": &e.Since,
		"period_start": e.Period.Start, "period_end": e.Period.End, "generation": e.Generation,
		"granted": e.Latest.Granted, "returned": e.Latest.Returned, "spent": e.Latest.Spent, "reserved": e.Latest.Reserved, "stranded": e.Latest.Stranded,
		"exposed": e.Latest.Exposed, "at_first": e.AtFirst.Stranded, "most": e.Most, "grew": e.Grew, "permit_seconds": e.PermitSeconds,
		"periods_ended": e.Periods, "expired": e.Expired, "refused_requests": refused.Requests, "refused_units": refused.Units,
		"ended": e.Ended, "how": e.How, "late_spent": e.LateSpent,
	}
}
