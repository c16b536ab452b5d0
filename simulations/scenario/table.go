package scenario

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

const tableWidth = 100

// shown are the designs of the printed table; all are in the files.
var shown = []string{NameTranche, NameStatic, NameHome}

// Table prints the result for people, within 100 columns: Tranche, the static split and the single home.
func (r Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d regions, %s from %s, seed %d, engine %s\n", r.Scenario, len(r.Regions), r.Duration, r.Start, r.Seed, r.Engine)
	for i, budget := range r.Declared {
		ours, _ := r.Summary(NameTranche, budget.Name)
		fmt.Fprintf(&b, "\n%s: %s %s %s; demand %s in %s requests\n",
			budget.Name, grouped(budget.LimitOrZero()), budget.Unit, budget.Window, grouped(ours.Demanded), grouped(ours.Requests))
		r.tableOf(&b, i)
		r.refusalsOf(&b, i)
	}
	if len(r.Events) > 0 {
		b.WriteString("\nWhat happened\n")
		for _, e := range r.Events {
			when := clock(e.At)
			if e.Until > 0 {
				when += "–" + clock(e.Until)
			}
			fmt.Fprintf(&b, "  %-15s %s\n", when, e.Says)
		}
	}
	if r.LookFor != "" {
		b.WriteString("\nLook for\n")
		for _, line := range wrap(r.LookFor, tableWidth-2) {
			b.WriteString("  " + line + "\n")
		}
	}
	b.WriteString("\nOne global row, counters that synchronize later, and charts of all are in the files: --out DIR\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (r Report) tableOf(b *strings.Builder, budget int) {
	head := []string{"", "admitted", "of limit", "possible", "refused", "over", "stranded", "p50", "p99"}
	var rows [][]string
	lowered := false
	for _, name := range shown {
		s, _ := r.Summary(name, r.Declared[budget].Name)
		lowered = lowered || s.Lowered > 0
		rows = append(rows, []string{
			r.title(name), grouped(s.Admitted), percent(s.Utilisation), percent(s.OfPossible), grouped(s.Refused), grouped(s.Over),
			permitHours(s.StrandedSeconds), millis(s.P50Micros), millis(s.P99Micros),
		})
	}
	grid(b, head, rows)
	b.WriteString("  possible: of what a perfect counter admits; over: above the limit; stranded: in permit-hours;\n" +
		"  p50, p99: round trips between regions in the path of admitted requests\n")
	if lowered {
		for _, name := range shown {
			s, _ := r.Summary(name, r.Declared[budget].Name)
			fmt.Fprintf(b, "  above a lowered limit, from what was handed out before: %s %s\n", r.title(name), grouped(s.Lowered))
		}
	}
}

func (r Report) refusalsOf(b *strings.Builder, budget int) {
	head := []string{"refused", "because"}
	for _, region := range r.Regions {
		head = append(head, region.Name)
	}
	var rows [][]string
	for _, name := range shown {
		s, _ := r.Summary(name, r.Declared[budget].Name)
		first := r.title(name)
		for _, reason := range slices.Sorted(maps.Keys(s.RefusedBy)) {
			row := []string{first, reason}
			for _, region := range s.Regions {
				row = append(row, grouped(region.RefusedBy[reason]))
			}
			rows, first = append(rows, row), ""
		}
	}
	if len(rows) == 0 {
		b.WriteString("  nothing was refused\n")
		return
	}
	b.WriteString("\n")
	grid(b, head, rows)
}

func (r Report) title(design string) string {
	for _, d := range r.Designs {
		if d.Name == design {
			return d.Title
		}
	}
	return design
}

// grid prints rows without lines, columns two spaces apart, numbers to the right.
func grid(b *strings.Builder, head []string, rows [][]string) {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Name: "plain", Box: table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatUpper}, Options: table.OptionsNoBordersAndSeparators,
	})
	t.SuppressTrailingSpaces()
	row := func(cells []string) table.Row {
		out := make(table.Row, len(cells))
		for i, c := range cells {
			out[i] = c
		}
		return out
	}
	var columns []table.ColumnConfig
	for i := range head {
		align := text.AlignRight
		if i == 0 || head[i] == "because" {
			align = text.AlignLeft
		}
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(row(head))
	for _, cells := range rows {
		t.AppendRow(row(cells))
	}
	b.WriteString(t.Render() + "\n")
}
