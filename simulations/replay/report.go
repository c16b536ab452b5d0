package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"tranche/allocation"
)

// ReportFormat is the format number of a report's JSON.
const ReportFormat = 1

// Report is what declared budgets would have done to the traffic of a log. Lists have the most refused first.
type Report struct {
	Format     int                `json:"format"`
	Requests   int64              `json:"requests"`
	Admitted   int64              `json:"admitted"`
	Refused    int64              `json:"refused"`
	From       allocation.Instant `json:"from"`
	Until      allocation.Instant `json:"until"` // of the last request
	Reasons    map[string]int64   `json:"refused_by_reason"`
	Regions    []Entry            `json:"by_region"`
	Priorities []Entry            `json:"by_priority"`
	ToWhom     map[string][]Entry `json:"to_whom"` // by label, then value; those that were refused
	Budgets    []BudgetReport     `json:"budgets"`
	// Approximate: there were more different values, instances or periods than are remembered. What was refused much is
	// right; what was refused little may be counted too low.
	Approximate bool `json:"approximate,omitempty"`
}

// BudgetReport is one budget's part. A refused request counts for the first budget that refused it.
type BudgetReport struct {
	Budget         string             `json:"budget"`
	Unit           string             `json:"unit"`
	Limit          int64              `json:"limit"`
	Window         string             `json:"window"`
	Requests       int64              `json:"requests"` // that hit it
	Admitted       int64              `json:"admitted"`
	AdmittedUnits  int64              `json:"admitted_units"`
	Refused        int64              `json:"refused"`
	RefusedUnits   int64              `json:"refused_units"`
	Reasons        map[string]int64   `json:"refused_by_reason"`
	RefusedPeriods int64              `json:"refused_periods"` // in which it refused something; for a template, runs of one
	Periods        []Entry            `json:"periods"`         // by their start; requests since the first refusal
	Instances      []Entry            `json:"instances"`       // of a template
	HighestDemand  int64              `json:"highest_demand"`  // in one period, all regions: no limit below it refuses nothing. Not for templates
	HighestAt      allocation.Instant `json:"highest_at,omitempty"`
}

// JSON is the report for programs.
func (r Report) JSON() ([]byte, error) {
	out, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return append(out, '\n'), nil
}

const listed = 10 // lines of a list in the printed report

// Table prints the report for people.
func (r Report) Table(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests from %s to %s: %d admitted, %d refused (%s)\n", r.Requests, r.From, r.Until, r.Admitted, r.Refused, part(r.Refused, r.Requests))
	if r.Refused > 0 {
		b.WriteString("\n")
		var rows [][]any
		for _, name := range mostFirst(r.Reasons) {
			rows = append(rows, []any{name, r.Reasons[name], part(r.Reasons[name], r.Requests), allocation.AnswerTo(allocation.Reason(name)).Title})
		}
		grid(&b, []string{"why", "refused", "of all", "what it means"}, rows)
	}
	b.WriteString("\n")
	var rows [][]any
	for _, x := range r.Budgets {
		highest := "–"
		if x.HighestAt != 0 {
			highest = fmt.Sprint(x.HighestDemand)
		}
		rows = append(rows, []any{x.Budget, fmt.Sprintf("%d %s %s", x.Limit, x.Unit, x.Window), x.Requests, x.Refused, x.RefusedUnits, x.RefusedPeriods, highest})
	}
	grid(&b, []string{"budget", "limit", "requests", "refused", "units", "periods", "highest demand"}, rows)
	for _, x := range r.Budgets {
		list(&b, "periods of "+x.Budget+" that refused most", x.Periods)
		list(&b, "instances of "+x.Budget+" that refused most", x.Instances)
	}
	list(&b, "region", r.Regions)
	list(&b, "priority", r.Priorities)
	for _, label := range slices.Sorted(maps.Keys(r.ToWhom)) {
		list(&b, label+", the most refused", r.ToWhom[label])
	}
	if r.Approximate {
		b.WriteString("\nThere was more to remember than fits: small counts may be too low.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func list(b *strings.Builder, head string, entries []Entry) {
	if len(entries) == 0 {
		return
	}
	b.WriteString("\n")
	var rows [][]any
	for _, e := range entries[:min(len(entries), listed)] {
		rows = append(rows, []any{e.Name, e.Requests, e.Refused, part(e.Refused, e.Requests)})
	}
	grid(b, []string{head, "requests", "refused", ""}, rows)
	if n := len(entries) - listed; n > 0 {
		fmt.Fprintf(b, "and %d more\n", n)
	}
}

func mostFirst(by map[string]int64) []string {
	return slices.SortedFunc(maps.Keys(by), func(a, b string) int {
		if by[a] != by[b] {
			return int(by[b] - by[a])
		}
		return strings.Compare(a, b)
	})
}

func part(a, b int64) string {
	if b == 0 {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", float64(a)/float64(b)*100)
}

// grid prints rows without lines, numbers to the right.
func grid(b *strings.Builder, head []string, rows [][]any) {
	t := table.NewWriter()
	t.SetStyle(table.Style{
		Name: "plain", Box: table.BoxStyle{PaddingRight: "  "},
		Format: table.FormatOptions{Header: text.FormatUpper}, Options: table.OptionsNoBordersAndSeparators,
	})
	t.SuppressTrailingSpaces()
	var columns []table.ColumnConfig
	header := table.Row{}
	for i, name := range head {
		header = append(header, name)
		align := text.AlignLeft
		if _, number := rows[0][i].(int64); number || name == "" || name == "of all" || name == "highest demand" {
			align = text.AlignRight
		}
		columns = append(columns, table.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align, WidthMax: 60, WidthMaxEnforcer: text.WrapSoft})
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(header)
	for _, row := range rows {
		t.AppendRow(row)
	}
	b.WriteString(t.Render() + "\n")
}
