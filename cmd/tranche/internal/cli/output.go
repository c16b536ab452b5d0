package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// width is what a table may take of a terminal.
const (
	width      = 100
	columnMost = 44 // of a column but the last; longer names are wrapped
)

// printJSON writes one document for programs.
func (a *App) printJSON(v any) error {
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func (a *App) printf(format string, args ...any) { fmt.Fprintf(a.out, format, args...) }

// plain is a table without lines: columns two spaces apart.
var plain = table.Style{
	Name:    "plain",
	Box:     table.BoxStyle{PaddingRight: "  ", PageSeparator: "\n"},
	Format:  table.FormatOptions{Header: text.FormatUpper, HeaderAlign: text.AlignLeft},
	Options: table.OptionsNoBordersAndSeparators,
}

// table prints rows. Numbers stand to the right; a last column that is too long is wrapped.
func (a *App) table(head []string, rows [][]any) {
	t := table.NewWriter()
	t.SetOutputMirror(a.out)
	t.SetStyle(plain)
	t.SuppressTrailingSpaces()
	header, used := table.Row{}, 0
	var columns []table.ColumnConfig
	for i, name := range head {
		header = append(header, name)
		c := table.ColumnConfig{Number: i + 1, Align: text.AlignLeft, AlignHeader: text.AlignLeft}
		widest := len(name)
		for _, row := range rows {
			switch row[i].(type) {
			case int, int64:
				c.Align, c.AlignHeader = text.AlignRight, text.AlignRight
			}
			widest = max(widest, text.StringWidth(fmt.Sprint(row[i])))
		}
		c.WidthMax, c.WidthMaxEnforcer = columnMost, text.WrapHard
		if i == len(head)-1 {
			c.WidthMax, c.WidthMaxEnforcer = max(24, width-used), text.WrapSoft
		}
		used += min(widest, columnMost) + 2
		columns = append(columns, c)
	}
	t.SetColumnConfigs(columns)
	t.AppendHeader(header)
	for _, row := range rows {
		t.AppendRow(row)
	}
	t.Render()
}

// ago tells an age as people say it.
func ago(d time.Duration) string {
	switch {
	case d < 0:
		return "now"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms ago"
	}
	return span(d) + " ago"
}

// span tells a duration by its two greatest units.
func span(d time.Duration) string {
	d = d.Round(time.Second)
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d d %d h", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	case d >= time.Hour:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

func (a *App) ago(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "never"
	}
	return ago(a.now().Sub(*t))
}

// counted is a number and what it counts: 1 budget, 2 budgets.
func counted[N int | int64](n N, one string) string { return plural(n, one, one+"s") }

func plural[N int | int64](n N, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

// yes says a boolean in a table, and leaves a usual one out.
func yes(b bool, word string) string {
	if b {
		return word
	}
	return ""
}

// either is one of two words.
func either(b bool, yes, no string) string {
	if b {
		return yes
	}
	return no
}
