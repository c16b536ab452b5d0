package cli

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"tranche/cmd/tranche/internal/api"
	"tranche/coordinator"
)

func (a *App) closingsCommand() *cobra.Command {
	var q strandedQuery
	var export string
	var periods bool
	c := &cobra.Command{
		Use: "closings [--export FILE.csv]", Short: "Show what became of terms that are over everywhere, or export it", Args: exactly(),
		Example: "  tranche budgets closings --budget 'acme/*'\n  tranche budgets closings --periods --export closings.csv",
		Long: `Show the records of closed terms: what the limits of all their periods together were, what each region spent, what nobody
used, and what was stranded and never recovered. A term is closed once every region has stated that its periods are over there,
and is never opened again. Etcd keeps the records for --closing-retention. Then they move to the --closing-archive of the coordinator
that leads, which this command reads too, if that is the coordinator it asks.`,
		RunE: func(c *cobra.Command, _ []string) error {
			if export != "" && filepath.Ext(export) != ".csv" {
				return usagef("`%s` writes FILE.csv, not %q", c.CommandPath(), export)
			}
			client, _, err := a.coordinator(c)
			if err != nil {
				return err
			}
			closings, err := allClosings(c, client, q)
			write := writeClosings
			if periods {
				write = writeClosedPeriods
			}
			switch {
			case err != nil:
				return err
			case export == "-.csv":
				return write(a.out, closings)
			case export != "":
				if err := writeFile(export, func(w io.Writer) error { return write(w, closings) }); err != nil {
					return err
				}
				a.printf("%s: %s\n", export, counted(len(closings), "closed term"))
				return nil
			case a.json:
				return a.printJSON(closings)
			case periods && len(closings) > 0:
				a.showClosedPeriods(closings)
				return nil
			}
			a.showClosings(closings)
			return nil
		},
	}
	q.flags(c)
	c.Flags().StringVar(&export, "export", "", "write them to `FILE.csv`, a row for each region; -.csv prints it")
	c.Flags().BoolVar(&periods, "periods", false, "show each period, not the sums of each term; --json has both")
	a.withCoordinator(c)
	a.withJSON(c)
	return c
}

// allClosings reads page after page.
func allClosings(c *cobra.Command, client *api.Client, q strandedQuery) ([]coordinator.Closing, error) {
	all := []coordinator.Closing{}
	for after := ""; ; {
		query := q.values()
		if after != "" {
			query.Set("after", after)
		}
		var page coordinator.ClosingsAnswer
		if _, err := client.Do(c.Context(), api.Call{Method: http.MethodGet, Path: "/v1/closings", Query: query}, &page); err != nil {
			return nil, err
		}
		all = append(all, page.Closings...)
		if after = page.More; after == "" {
			return all, nil
		}
	}
}

// spentIn sums what all regions made of a closed term or period.
func spentIn(regions []coordinator.ClosedRegion) (sum coordinator.ClosedRegion) {
	for _, r := range regions {
		sum.Spent, sum.Reserved, sum.Overdraft = sum.Spent+r.Spent, sum.Reserved+r.Reserved, sum.Overdraft+r.Overdraft
	}
	return sum
}

func (a *App) showClosings(list []coordinator.Closing) {
	if len(list) == 0 {
		a.printf("no term is closed, or its record is not kept here any more\n")
		return
	}
	var rows [][]any
	for _, c := range list {
		sum, limit, unused := spentIn(c.Regions), any(c.Limit), any(c.Unused)
		if c.Limit == 0 {
			limit, unused = "-", "-"
		}
		rows = append(rows, []any{c.Budget, c.Term, c.Periods.Len(), limit, sum.Spent + c.OpeningSpent, sum.Reserved, unused, c.Unrecovered, sum.Overdraft, lateSpent(c)})
	}
	a.table([]string{"budget", "term", "periods", "limits", "spent", "reserved", "unused", "never recovered", "overdraft", "spent, said later"}, rows)
}

// lateSpent is what all regions stated later to have spent beyond what the record counts.
func lateSpent(c coordinator.Closing) (sum int64) {
	for _, r := range c.Regions {
		if r.Late != nil {
			sum += r.Late.Spent - r.Spent
		}
	}
	return sum
}

// lateColumns are empty where nothing was stated after the record was made.
func lateColumns(l *coordinator.LateStatement) []string {
	if l == nil {
		return []string{"", "", "", ""}
	}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{l.At.Format(closedForm), number(l.Spent), number(l.Reserved), number(l.Overdraft)}
}

func writeClosings(w io.Writer, list []coordinator.Closing) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{
		"budget", "unit", "term", "until", "periods", "closed", "generation", "limits", "opening_spent", "unused", "never_recovered",
		"region", "incarnation", "held", "spent", "reserved", "overdraft", "region_never_recovered", "unstated",
		"late_at", "late_spent", "late_reserved", "late_overdraft",
	})
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	for _, c := range list {
		term := []string{
			c.Budget, c.Unit, c.Term.String(), c.Periods.End().String(), strconv.Itoa(c.Periods.Len()), c.Closed.Format(closedForm), c.Generation.String(),
			number(c.Limit), number(c.OpeningSpent), number(c.Unused), number(c.Unrecovered),
		}
		for _, r := range orNobody(c.Regions) {
			row := append(term[:len(term):len(term)], r.Region, r.Incarnation, number(r.Held), number(r.Spent), number(r.Reserved), number(r.Overdraft), number(r.Unrecovered), fmt.Sprint(r.Unstated))
			row = append(row, lateColumns(r.Late)...)
			_ = out.Write(row)
		}
	}
	out.Flush()
	return out.Error()
}
