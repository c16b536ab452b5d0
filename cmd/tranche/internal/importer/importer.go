// Package importer makes budgets of what other limiters are configured with, and says what of it has no equivalent.
package importer

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"tranche/allocation"
)

// Note is something that has no equivalent, or is not quite the same.
type Note struct {
	Where string `json:"where"`
	Text  string `json:"text"`
}

// Result is what was made.
type Result struct {
	Budgets []allocation.Budget `json:"budgets"`
	Notes   []Note              `json:"notes"`
}

func (r *Result) note(where, format string, args ...any) {
	r.Notes = append(r.Notes, Note{where, fmt.Sprintf(format, args...)})
}

// add keeps a budget if it is one, and under a name of its own.
func (r *Result) add(where string, b allocation.Budget) {
	name := b.Name
	for n := 2; slices.ContainsFunc(r.Budgets, func(other allocation.Budget) bool { return other.Name == b.Name }); n++ {
		b.Name = name + "-" + strconv.Itoa(n)
	}
	if err := b.Validate(); err != nil {
		r.note(where, "is not imported: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	r.Budgets = append(r.Budgets, b)
}

// columns are those of a CSV file; the first three are required.
var columns = []string{"budget", "limit", "window", "unit", "match", "enforcement"}

// CSV reads lines of a budget each, below a line of column names: budget, limit, window (like 1m, day or month), unit (else
// requests), match (like "tenant=acme plan=free") and enforcement. All go by the policy.
func CSV(in io.Reader, policy allocation.Policy) (Result, error) {
	var r Result
	text := bufio.NewReader(in)
	if err := readable(text); err != nil {
		return r, err
	}
	lines := csv.NewReader(text)
	head, err := lines.Read()
	switch {
	case errors.Is(err, io.EOF):
		return r, errors.New("line 1: the file is empty; begin it with a line of column names: budget,limit,window")
	case err != nil:
		return r, fmt.Errorf("line 1: %w; write the column names with commas between them: budget,limit,window", err)
	}
	for i, name := range head {
		head[i] = strings.ToLower(strings.TrimSpace(name))
	}
	for _, need := range columns[:3] {
		if !slices.Contains(head, need) {
			return r, fmt.Errorf("line 1: the column %s is missing; there are %s. Begin the file with a line of column names: budget,limit,window", need, strings.Join(head, ", "))
		}
	}
	for _, name := range head {
		if !slices.Contains(columns, name) {
			r.note("column "+name, "has no equivalent")
		}
	}
	for {
		line, err := lines.Read()
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if wrong, is := errors.AsType[*csv.ParseError](err); is {
			return r, fmt.Errorf("line %d: %w; give each line the %d columns of the first, and put a value that holds a comma into quotes", wrong.StartLine, wrong.Err, len(head))
		}
		if err != nil {
			return r, fmt.Errorf("read the CSV: %w", err)
		}
		number, _ := lines.FieldPos(0)
		fields := map[string]string{}
		for i, name := range head {
			fields[name] = strings.TrimSpace(line[i])
		}
		where := fmt.Sprintf("line %d", number)
		if b, err := fromFields(fields, policy); err != nil {
			r.note(where, "is not imported: %v", err)
		} else {
			r.add(where, b)
		}
	}
}

// readable passes over a byte order mark, and says what a spreadsheet has saved that is no CSV with commas.
func readable(text *bufio.Reader) error {
	start, _ := text.Peek(4096) // a file that is shorter is all there
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) {
		start = start[3:]
		if _, err := text.Discard(3); err != nil {
			return fmt.Errorf("read the CSV: %w", err)
		}
	}
	first, _, _ := bytes.Cut(start, []byte("\n"))
	switch {
	case bytes.HasPrefix(start, []byte("\xff\xfe")), bytes.HasPrefix(start, []byte("\xfe\xff")), bytes.IndexByte(first, 0) >= 0:
		return errors.New("line 1: the file is in UTF-16; save it as CSV in UTF-8")
	case !bytes.Contains(first, []byte(",")) && bytes.ContainsAny(first, ";\t"):
		return errors.New("line 1: the columns are separated by semicolons or tabs; save the file with commas, as in budget,limit,window")
	}
	return nil
}

func fromFields(fields map[string]string, policy allocation.Policy) (b allocation.Budget, err error) {
	limit, err := strconv.ParseInt(fields["limit"], 10, 64)
	if err != nil {
		return b, fmt.Errorf("limit: %q is not a whole number", fields["limit"])
	}
	b = allocation.Budget{Name: fields["budget"], Unit: fields["unit"], Limit: &limit, Allocation: policy, Enforcement: fields["enforcement"]}
	if b.Unit == "" {
		b.Unit = "requests"
	}
	if b.Window, err = windowOf(fields["window"]); err != nil {
		return b, err
	}
	for pair := range strings.FieldsSeq(fields["match"]) {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return b, fmt.Errorf("match: %q is not label=value", pair)
		}
		if b.Match == nil {
			b.Match = map[string]string{}
		}
		b.Match[name] = value
	}
	return b, nil
}

// windowOf reads a duration, or a calendar's word.
func windowOf(text string) (w allocation.Window, err error) {
	switch text {
	case "second":
		w.Every = allocation.Second
	case "minute":
		w.Every = allocation.Minute
	case "hour":
		w.Every = allocation.Hour
	case "day", "week", "month", "year":
		w.Calendar = text
	default:
		if err := w.Every.UnmarshalText([]byte(text)); err != nil {
			return w, fmt.Errorf("window: %q is none; write 1m, hour, day, month, …", text)
		}
	}
	return w, nil
}
