package tree

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Reader takes values out of a tree and gathers what does not fit.
type Reader struct {
	File   string
	Faults Faults
}

// Wrong enters a fault at a value.
func (r *Reader) Wrong(v *Value, problem, fix string) {
	r.Faults = append(r.Faults, Fault{r.File, v.Line, v.Path, problem, fix})
}

// A Read takes one value.
type Read func(v *Value)

// Object reads a map with these fields and no other.
func (r *Reader) Object(fields map[string]Read) Read {
	return func(v *Value) {
		if v.Kind != Map {
			r.Wrong(v, "is "+string(v.Kind), "give a map with "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			return
		}
		for _, key := range v.Keys {
			read, known := fields[key]
			if !known {
				r.Wrong(v.Fields[key], "is not known", r.instead(key, fields))
				continue
			}
			read(v.Fields[key])
		}
	}
}

// instead names the field that was probably meant, or all that there are.
func (r *Reader) instead(key string, fields map[string]Read) string {
	names := slices.Sorted(maps.Keys(fields))
	for _, name := range names {
		if near(key, name) {
			return "write " + name
		}
	}
	return "use " + strings.Join(names, ", ")
}

// near says whether two words differ by at most two letters, and by less than half.
func near(a, b string) bool {
	before := make([]int, len(b)+1)
	for j := range before {
		before[j] = j
	}
	for i := range len(a) {
		row := make([]int, len(b)+1)
		row[0] = i + 1
		for j := range len(b) {
			change := 1
			if a[i] == b[j] {
				change = 0
			}
			row[j+1] = min(before[j]+change, before[j+1]+1, row[j]+1)
		}
		before = row
	}
	d := before[len(b)]
	return d <= 2 && d*2 < max(len(a), len(b))
}

// List reads each item of a list.
func (r *Reader) List(item Read) Read {
	return func(v *Value) {
		if v.Kind != List {
			r.Wrong(v, "is "+string(v.Kind), "give a list: lines that begin with -")
			return
		}
		for _, i := range v.Items {
			item(i)
		}
	}
}

// Entries reads a map with any keys.
func (r *Reader) Entries(entry func(key string, v *Value)) Read {
	return func(v *Value) {
		if v.Kind != Map {
			r.Wrong(v, "is "+string(v.Kind), "give a map, like {us-east: 3, eu-west: 2}")
			return
		}
		for _, key := range v.Keys {
			entry(key, v.Fields[key])
		}
	}
}

// Text reads a text.
func (r *Reader) Text(to *string) Read {
	return func(v *Value) {
		switch v.Kind {
		case Text, Number, Bool: // a name may look like a number
			*to = v.Text
		default:
			r.Wrong(v, "is "+string(v.Kind), "give a text")
		}
	}
}

// Choice reads one of some words.
func (r *Reader) Choice(to *string, choices ...string) Read {
	return func(v *Value) {
		if v.Kind != Text || !slices.Contains(choices, v.Text) {
			r.Wrong(v, fmt.Sprintf("is %.40q", v.Text), "use "+strings.Join(choices, " or "))
			return
		}
		*to = v.Text
	}
}

// Whole reads a whole number from least to most.
func (r *Reader) Whole(to *int64, least, most int64) Read {
	return func(v *Value) {
		n, err := strconv.ParseInt(v.Text, 10, 64)
		switch {
		case v.Kind != Number || err != nil:
			r.Wrong(v, notNumber(v), fmt.Sprintf("give a whole number, %d to %d", least, most))
		case n < 0 && least >= 0:
			r.Wrong(v, "is negative", fmt.Sprintf("use %d to %d", least, most))
		case n < least || n > most:
			r.Wrong(v, fmt.Sprintf("is %d", n), fmt.Sprintf("use %d to %d", least, most))
		default:
			*to = n
		}
	}
}

// Real reads a number from least to most.
func (r *Reader) Real(to *float64, least, most float64) Read {
	return func(v *Value) {
		n, err := strconv.ParseFloat(v.Text, 64)
		switch {
		case v.Kind != Number || err != nil || math.IsNaN(n):
			r.Wrong(v, notNumber(v), fmt.Sprintf("give a number, %g to %g", least, most))
		case n < 0 && least >= 0:
			r.Wrong(v, "is negative", fmt.Sprintf("use %g to %g", least, most))
		case n < least || n > most:
			r.Wrong(v, fmt.Sprintf("is %g", n), fmt.Sprintf("use %g to %g", least, most))
		default:
			*to = n
		}
	}
}

func notNumber(v *Value) string {
	if v.Kind == Text || v.Kind == Number {
		return fmt.Sprintf("is %.40q", v.Text)
	}
	return "is " + string(v.Kind)
}

// Parsed reads what a type reads from text, like an instant or a duration.
func (r *Reader) Parsed(to encoding.TextUnmarshaler) Read {
	return func(v *Value) {
		if v.Kind == Map || v.Kind == List || v.Kind == Null {
			r.Wrong(v, "is "+string(v.Kind), "give a text, with a unit if it is a duration, like 90s or 6h")
			return
		}
		if err := to.UnmarshalText([]byte(v.Text)); err != nil {
			r.Wrong(v, err.Error(), "write it in that form")
		}
	}
}

// Span reads a duration that may be shorter than a second, like 80ms.
func (r *Reader) Span(to *time.Duration, most time.Duration) Read {
	return func(v *Value) {
		d, err := time.ParseDuration(v.Text)
		switch {
		case v.Kind != Text && v.Text != "0" || err != nil:
			r.Wrong(v, notNumber(v), "give a duration with its unit, like 80ms")
		case d < 0:
			r.Wrong(v, "is negative", fmt.Sprintf("use 0s to %s", most))
		case d > most:
			r.Wrong(v, "is "+v.Text, fmt.Sprintf("use at most %s", most))
		default:
			*to = d
		}
	}
}
