package cli

import (
	"encoding/csv"
	"io"
	"strconv"

	"tranche/coordinator"
)

// periodsOf are the periods of closed terms, and how many terms keep their sums only.
func periodsOf(list []coordinator.Closing) (out []closedPeriod, without int) {
	for _, c := range list {
		periods := c.ByPeriod()
		if periods == nil {
			without++
		}
		for _, p := range periods {
			out = append(out, closedPeriod{c, p})
		}
	}
	return out, without
}

type closedPeriod struct {
	term   coordinator.Closing
	period coordinator.ClosedPeriod
}

func (a *App) showClosedPeriods(list []coordinator.Closing) {
	all, without := periodsOf(list)
	var rows [][]any
	for _, x := range all {
		p, limit, unused := x.period, any(x.period.Limit), any(x.period.Unused)
		if x.term.Limit == 0 {
			limit, unused = "-", "-"
		}
		sum := spentIn(p.Regions)
		rows = append(rows, []any{x.term.Budget, p.Start, limit, sum.Spent + p.OpeningSpent, sum.Reserved, unused, p.Unrecovered, sum.Overdraft})
	}
	if len(rows) > 0 {
		a.table([]string{"budget", "period", "limit", "spent", "reserved", "unused", "never recovered", "overdraft"}, rows)
	}
	if without > 0 {
		a.printf("%s without periods: they had too many to keep, or were closed before periods were kept; leave out --periods\n", counted(without, "closed term"))
	}
}

// writeClosedPeriods is a row for each period and region. A term without periods has none.
func writeClosedPeriods(w io.Writer, list []coordinator.Closing) error {
	out := csv.NewWriter(w)
	_ = out.Write([]string{
		"budget", "unit", "term", "period", "until", "closed", "limit", "opening_spent", "unused", "never_recovered",
		"region", "incarnation", "held", "spent", "reserved", "overdraft", "region_never_recovered", "unstated",
	})
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	all, _ := periodsOf(list)
	for _, x := range all {
		c, p := x.term, x.period
		row := []string{
			c.Budget, c.Unit, c.Term.String(), p.Start.String(), p.End.String(), c.Closed.Format(closedForm),
			number(p.Limit), number(p.OpeningSpent), number(p.Unused), number(p.Unrecovered),
		}
		for _, r := range orNobody(p.Regions) {
			_ = out.Write(append(row[:len(row):len(row)], r.Region, r.Incarnation, number(r.Held), number(r.Spent), number(r.Reserved), number(r.Overdraft), number(r.Unrecovered), strconv.FormatBool(r.Unstated)))
		}
	}
	out.Flush()
	return out.Error()
}

// closedForm is how the CSV files write when a term was closed.
const closedForm = "2006-01-02T15:04:05Z"

// orNobody is a region without a name if nobody was granted anything: the row must be there.
func orNobody(regions []coordinator.ClosedRegion) []coordinator.ClosedRegion {
	if len(regions) == 0 {
		return []coordinator.ClosedRegion{{}}
	}
	return regions
}
