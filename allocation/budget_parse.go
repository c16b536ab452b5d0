package allocation

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a budget's JSON.
const (
	MaxBudgetBytes = 64 << 10
	maxBudgetDepth = 4
)

// ParseBudget reads one budget from strict JSON and validates it. It returns
// Problems for: more than MaxBudgetBytes, what is not JSON, data behind it, an
// unknown field (upper and lower case count), a key given twice, null, and
// numbers that are negative, over MaxUnits, or have a fraction or exponent.
// Defaults are not filled in.
func ParseBudget(data []byte) (Budget, error) {
	tree, fault := parseTree(data)
	if fault != nil {
		return Budget{}, Problems{*fault}
	}
	var b Budget
	var r budgetReader
	r.budget(&b, tree)
	if len(r.problems) > 0 {
		return Budget{}, r.problems
	}
	if err := b.Validate(); err != nil {
		return Budget{}, err
	}
	return b, nil
}

// parseTree returns the JSON value as map[string]any, string, json.Number and
// so on. encoding/json takes the last of two equal keys; here they are an error.
func parseTree(data []byte) (any, *FieldError) {
	whole := func(problem, fix string) (any, *FieldError) {
		return nil, &FieldError{Field: "document", Problem: problem, Fix: fix}
	}
	if len(data) > MaxBudgetBytes {
		return whole(fmt.Sprintf("has %d bytes", len(data)), fmt.Sprintf("use at most %d", MaxBudgetBytes))
	}
	if !utf8.Valid(data) {
		return whole("is not UTF-8", "save it as UTF-8")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		at := int64(len(data))
		if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = syntax.Offset
		}
		return whole(fmt.Sprintf("is not one JSON value: %v (byte %d)", err, at), "give one JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return readTree(d, "", maxBudgetDepth)
}

func readTree(d *json.Decoder, path string, depth int) (any, *FieldError) {
	token, err := d.Token()
	if err != nil {
		return nil, &FieldError{Field: orDocument(path), Problem: err.Error(), Fix: "give one JSON object"}
	}
	delim, ok := token.(json.Delim)
	if !ok {
		return token, nil
	}
	if delim == '[' && path != "" && depth > 0 {
		return readList(d, path, depth)
	}
	if delim != '{' || depth == 0 {
		return nil, &FieldError{Field: orDocument(path), Problem: "is a list or nested too deep", Fix: "see the documentation of budgets"}
	}
	object := map[string]any{}
	for d.More() {
		token, err = d.Token()
		key, _ := token.(string)
		if err != nil {
			return nil, &FieldError{Field: orDocument(path), Problem: err.Error(), Fix: "give one JSON object"}
		}
		if _, twice := object[key]; twice {
			return nil, &FieldError{Field: joinPath(path, key), Problem: "is given twice", Fix: "give it once"}
		}
		value, fault := readTree(d, joinPath(path, key), depth-1)
		if fault != nil {
			return nil, fault
		}
		object[key] = value
	}
	_, err = d.Token() // the closing brace
	if err != nil {
		return nil, &FieldError{Field: orDocument(path), Problem: err.Error(), Fix: "give one JSON object"}
	}
	return object, nil
}

func orDocument(path string) string {
	if path == "" {
		return "document"
	}
	return path
}

func joinPath(path, key string) string {
	if len(key) > MaxLabelName {
		key = fmt.Sprintf("%.64s…", key)
	}
	return strings.TrimPrefix(path+"."+key, ".")
}

// budgetReader turns a tree into a Budget and gathers what does not fit.
type budgetReader struct{ problems Problems }

// A readField reads the value found at a path.
type readField func(path string, value any)

func (r *budgetReader) budget(b *Budget, tree any) {
	r.object(map[string]readField{
		"budget": r.text(&b.Name),
		"unit":   r.text(&b.Unit),
		"limit": func(path string, value any) {
			b.Limit = new(int64)
			r.count(b.Limit, 0, MaxUnits)(path, value)
		},
		"window": r.object(map[string]readField{
			"every":    r.every(&b.Window.Every),
			"calendar": r.text(&b.Window.Calendar),
			"zone":     r.text(&b.Window.Zone),
			"once": func(path string, value any) {
				b.Window.Once = &Once{}
				r.object(map[string]readField{
					"from":  r.parsed(&b.Window.Once.From),
					"until": r.parsed(&b.Window.Once.Until),
				})(path, value)
			},
		}),
		"match":         r.entries(func(key string) readField { return r.entry(&b.Match, key) }),
		"missing_label": r.text(&b.MissingLabel),
		"instead_of":    r.text(&b.InsteadOf),
		"counted":       r.text(&b.Counted),
		"synthetic":     r.truth(&b.Synthetic),
		"override":      r.override(b),
		"allocation": r.object(map[string]readField{
			"policy": r.text(&b.Allocation.Policy),
			"weights": r.entries(func(key string) readField {
				return r.weight(&b.Allocation.Weights, key)
			}),
			"region":       r.text(&b.Allocation.Region),
			"hash_of":      r.text(&b.Allocation.HashOf),
			"region_from":  r.text(&b.Allocation.RegionFrom),
			"min":          r.entries(func(key string) readField { return r.units(&b.Allocation.Min, key) }),
			"max":          r.entries(func(key string) readField { return r.units(&b.Allocation.Max, key) }),
			"forward":      r.truth(&b.Allocation.Forward),
			"keep_percent": r.count(&b.Allocation.KeepPercent, 0, MaxKeepPercent),
			"least_runway": r.positive(&b.Allocation.LeastRunway),
		}),
		"runs_alone_for":      r.positive(&b.RunsAloneFor),
		"max_instances":       r.count(&b.MaxInstances, 1, MaxMaxInstances),
		"admission_id":        r.text(&b.AdmissionID),
		"on_lapse":            r.text(&b.OnLapse),
		"longest_reservation": r.positive(&b.LongestReservation),
		"on_exhausted": func(path string, value any) {
			var status int64
			r.count(&status, 1, MaxUnits)(path, value)
			b.OnExhausted = int(min(status, math.MaxInt32))
		},
		"max_evidence_age":  r.parsed(&b.MaxEvidenceAge),
		"on_stale_evidence": r.text(&b.OnStaleEvidence),
		"opening_spent":     r.count(&b.OpeningSpent, 0, MaxUnits),
		"wait_for_share":    r.parsed(&b.WaitForShare),
		"protected":         r.count(&b.Protected, 0, MaxUnits),
		"ladder":            r.ladder(&b.Ladder),
		"enforcement":       r.text(&b.Enforcement),
		"enforce_for": func(path string, value any) {
			b.EnforceFor = &EnforceFor{}
			r.object(map[string]readField{
				"percent": r.count(&b.EnforceFor.Percent, 1, 100),
				"match":   r.entries(func(key string) readField { return r.entry(&b.EnforceFor.Match, key) }),
			})(path, value)
		},
		"enforcement_until": r.parsed(&b.EnforcementUntil),
		"thresholds":        r.thresholds(&b.Thresholds),
	})("", tree)
}

func (r *budgetReader) wrong(path, problem, fix string) {
	r.problems.add(orDocument(path), problem, fix)
}

// object reads an object with these fields and no other.
func (r *budgetReader) object(fields map[string]readField) readField {
	return func(path string, value any) {
		r.entries(func(key string) readField {
			if read, known := fields[key]; known {
				return read
			}
			return func(path string, _ any) {
				r.wrong(path, "is not known", "use "+strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
		})(path, value)
	}
}

// entries reads an object with any keys, in their order by name.
func (r *budgetReader) entries(read func(key string) readField) readField {
	return func(path string, value any) {
		object, ok := value.(map[string]any)
		if !ok {
			r.wrong(path, kindOf(value), "give an object")
			return
		}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			read(key)(joinPath(path, key), object[key])
		}
	}
}

func (r *budgetReader) text(to *string) readField {
	return func(path string, value any) {
		text, ok := value.(string)
		if !ok {
			r.wrong(path, kindOf(value), "give a text in quotes")
			return
		}
		*to = text
	}
}

func (r *budgetReader) entry(to *map[string]string, key string) readField {
	return func(path string, value any) {
		var text string
		r.text(&text)(path, value)
		if *to == nil {
			*to = map[string]string{}
		}
		(*to)[key] = text
	}
}

func (r *budgetReader) weight(to *map[string]int64, key string) readField {
	return func(path string, value any) {
		var n int64
		r.count(&n, 0, MaxWeightSum)(path, value)
		if *to == nil {
			*to = map[string]int64{}
		}
		(*to)[key] = n
	}
}

// units reads a region's part of a limit.
func (r *budgetReader) units(to *map[string]int64, region string) readField {
	return func(path string, value any) {
		var n int64
		r.count(&n, 0, MaxUnits)(path, value)
		if *to == nil {
			*to = map[string]int64{}
		}
		(*to)[region] = n
	}
}

func (r *budgetReader) truth(to *bool) readField {
	return func(path string, value any) {
		is, ok := value.(bool)
		if !ok {
			r.wrong(path, kindOf(value), "give true or false")
			return
		}
		*to = is
	}
}

// count reads a whole number from least to MaxUnits. A least of 1 is for fields
// whose zero means their default: a written 0 must not become a million. most is
// what the fix says; a number between it and MaxUnits is left to Validate.
func (r *budgetReader) count(to *int64, least, most int64) readField {
	return func(path string, value any) {
		number, ok := value.(json.Number)
		if !ok {
			r.wrong(path, kindOf(value), "give a whole number without quotes")
			return
		}
		text := number.String()
		n, err := strconv.ParseInt(text, 10, 64)
		switch {
		case strings.HasPrefix(text, "-"):
			r.wrong(path, "is negative", fmt.Sprintf("use %d to %d", least, most))
		case strings.ContainsAny(text, ".eE"):
			r.wrong(path, "has a fraction or an exponent", "write all digits of a whole number")
		case err != nil || n > MaxUnits:
			r.wrong(path, "is over 2^53", fmt.Sprintf("use at most %d", most))
		case n < least:
			r.wrong(path, fmt.Sprintf("is %d", n), fmt.Sprintf("use at least %d, or leave it out", least))
		default:
			*to = n
		}
	}
}

// parsed reads an instant or a duration.
func (r *budgetReader) parsed(to encoding.TextUnmarshaler) readField {
	return func(path string, value any) {
		text, ok := value.(string)
		if !ok {
			r.wrong(path, kindOf(value), "give a text in quotes, with a unit if it is a duration, like 90s or 6h")
			return
		}
		if err := to.UnmarshalText([]byte(text)); err != nil {
			r.wrong(path, err.Error(), "write it in that form")
		}
	}
}

// every reads a window's every. A zero would be as good as none, and Validate
// would say that the window has no form.
func (r *budgetReader) every(to *Duration) readField {
	return func(path string, value any) {
		before := len(r.problems)
		r.parsed(to)(path, value)
		if len(r.problems) == before && *to == 0 {
			r.wrong(path, "is 0s", everyBounds)
		}
	}
}

// positive reads a duration whose zero means its default, so that 0 cannot be written.
func (r *budgetReader) positive(to *Duration) readField {
	return func(path string, value any) {
		before := len(r.problems)
		r.parsed(to)(path, value)
		if len(r.problems) == before && *to == 0 {
			r.wrong(path, "is 0", "use at least 1s, or leave it out")
		}
	}
}

func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "is null"
	case string:
		return "is a text"
	case json.Number:
		return "is a number"
	case []any:
		return "is a list"
	case bool:
		return "is true or false"
	}
	return "is an object"
}

func (r *budgetReader) override(b *Budget) readField {
	return func(path string, value any) {
		o := &Override{}
		b.Override = o
		r.object(map[string]readField{"id": r.text(&o.ID), "units": r.count(&o.Units, 1, MaxUnits), "until": r.parsed(&o.Until), "by": r.text(&o.By)})(path, value)
	}
}
