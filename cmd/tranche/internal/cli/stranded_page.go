package cli

import (
	_ "embed" // the page
	"fmt"
	"html/template"
	"io"
	"strconv"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

//go:embed stranded.html.tmpl
var strandedPage string

var strandedTemplate = template.Must(template.New("stranded").Funcs(template.FuncMap{
	"grouped": grouped, "at": at, "share": share, "for": lasted, "refusedOf": totalRefused, "instant": func(i allocation.Instant) string { return i.String() },
}).Parse(strandedPage))

// writeStrandedPage writes one page that needs nothing else: no script, no font, no picture from elsewhere.
func writeStrandedPage(w io.Writer, r coordinator.StrandedReport) error {
	if err := strandedTemplate.Execute(w, r); err != nil {
		return fmt.Errorf("write the page: %w", err)
	}
	return nil
}

// grouped is a number with its thousands apart.
func grouped(n any) string {
	text := fmt.Sprint(n)
	digits := strings.TrimPrefix(text, "-")
	var parts []string
	for len(digits) > 3 {
		parts = append([]string{digits[len(digits)-3:]}, parts...)
		digits = digits[:len(digits)-3]
	}
	return text[:len(text)-len(strings.TrimPrefix(text, "-"))] + strings.Join(append([]string{digits}, parts...), "\u202f")
}

func at(t *time.Time) string {
	if t == nil || t.IsZero() {
		return "not known"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// share is a part of a whole as a width.
func share(part, whole int64) string {
	if whole <= 0 {
		return "0%"
	}
	return strconv.FormatFloat(100*float64(min(part, whole))/float64(whole), 'f', 2, 64) + "%"
}

// lasted is how long something lasted.
func lasted(from time.Time, to *time.Time) string {
	if to == nil {
		return "-"
	}
	return span(to.Sub(from))
}
