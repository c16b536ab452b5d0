package bench

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

func (b *bench) print(r *Report) error {
	if b.JSON {
		e := json.NewEncoder(b.Out)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	w := tabwriter.NewWriter(b.Out, 0, 0, 2, ' ', 0)
	for _, c := range r.Cases {
		fmt.Fprintf(w, "\n%s: %s\n", strings.ToUpper(c.Name), c.What)
		fmt.Fprintln(w, "  ARM\tA SECOND\tADMITTED\tREPLAYED\tREFUSED\t503\tP50\tP99\tP99.9\tBATCH\tCPU")
		for _, m := range c.Measured {
			fmt.Fprintf(w, "  %s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", m.Arm, whole(m.Rate), m.Admitted, m.Replayed, m.Refused,
				m.Unavailable+m.Unknown, shortMillis(m.P50), shortMillis(m.P99), shortMillis(m.P999), orNothing(m.Batch), microseconds(m.CPU))
		}
		fmt.Fprintln(w)
		for _, f := range c.Figures {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", f.Name, f.text(), f.verdict())
		}
		for _, k := range c.Books {
			fmt.Fprintf(w, "  books of %s\t%s\n", k.Of, k.text())
		}
		for _, n := range c.Notes {
			fmt.Fprintf(w, "  %s\n", n)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	m := r.Machine
	_, err := fmt.Fprintf(b.Out, "\n%d processors, %s, %s, Postgres %s; %d rounds of %s; the load comes from the same machine\n",
		m.CPUs, m.OS, m.Go, m.Postgres, r.Rounds, r.Each)
	return err
}

func (f *Figure) text() string {
	text := strconv.FormatFloat(f.Value, 'f', 2, 64)
	switch {
	case f.Unit == "" && f.Value >= 100:
		return whole(f.Value) + " ×"
	case f.Unit == "":
		return text + " ×"
	case f.Value >= 100:
		return whole(f.Value) + " " + f.Unit
	}
	return text + " " + f.Unit
}

func (f *Figure) verdict() string {
	if f.Reached == nil {
		return ""
	}
	bound := ""
	if f.AtLeast != nil {
		bound = "at least " + strconv.FormatFloat(*f.AtLeast, 'g', 4, 64)
	} else {
		bound = "at most " + strconv.FormatFloat(*f.AtMost, 'g', 4, 64)
	}
	switch {
	case *f.Reached:
		return "PASS (" + bound + ")"
	case f.AtMost != nil:
		return "above (" + bound + ")"
	}
	return "below (" + bound + ")"
}

func (k *Books) text() string {
	text := fmt.Sprintf("told %s, spent %s, %s ids", whole(float64(k.Told)), whole(float64(k.Spent)), whole(float64(k.IDs)))
	if !k.Agree {
		return text + ": THEY DIFFER"
	}
	return text + ": agree"
}

// whole is a number with its thousands apart.
func whole(f float64) string {
	text := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func short(d time.Duration) string { return shortMillis(millis(d)) }

func shortMillis(ms float64) string {
	switch {
	case ms >= 100:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms >= 1:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	}
	return strconv.FormatFloat(ms, 'f', 2, 64) + " ms"
}

func orNothing(f float64) string {
	if f == 0 {
		return ""
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

func microseconds(us float64) string {
	if us == 0 {
		return ""
	}
	return strconv.FormatFloat(us, 'f', 0, 64) + " µs"
}
