package importer

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"tranche/allocation"
)

// maxFile bounds a configuration, in bytes.
const maxFile = 8 << 20

// Envoy reads a configuration of envoyproxy/ratelimit: a domain, and descriptors within descriptors. Each descriptor with a
// rate_limit becomes a budget: its keys are labels, and a key without a value makes it a template, counted for each value.
func Envoy(in io.Reader, policy allocation.Policy) (Result, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxFile))
	if err != nil {
		return Result{}, fmt.Errorf("read the configuration: %w", err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return Result{}, fmt.Errorf("read the configuration: %w", err)
	}
	domain, _ := document["domain"].(string)
	if domain == "" {
		return Result{}, fmt.Errorf("the file has no domain: is it a configuration of envoyproxy/ratelimit?")
	}
	e := envoy{policy: policy}
	e.note("domain "+domain, "is the beginning of the budgets' names; no label is made of it")
	e.descriptors(descriptor{name: clean(domain), where: domain}, document["descriptors"])
	if nested := e.nested; nested != "" {
		e.note(nested, "has a limit above another one: Envoy counts a request at the most exact descriptor only, here it is charged to both; narrow a match if that is not meant")
	}
	return e.Result, nil
}

type envoy struct {
	Result
	policy allocation.Policy
	nested string // the first descriptor that has a limit and others with limits below
}

// descriptor is the way down to one.
type descriptor struct {
	name, where string
	match       map[string]string
	labels      []string // of a template
	limited     bool     // one above it has a limit
}

// known are the fields that mean something here, or nothing to a limit.
var known = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric", "value_to_metric"}

func (e *envoy) descriptors(above descriptor, list any) {
	all, _ := list.([]any)
	for _, one := range all {
		fields, ok := one.(map[string]any)
		if !ok {
			continue
		}
		if key := fmt.Sprint(fields["key"]); valueOf(fields) == "" {
			if which, ok := covered(fields, valuesBeside(all, key)); !ok {
				e.note(above.where+" / "+key, "has no equivalent beside %s=%s: Envoy counts a request at the most exact descriptor only, and a template has no exceptions; it is not imported, nor what is below it. "+
					"Give each value an entry, or take the limit of %s out and put one label on the requests that it is for", key, which, key)
				continue
			}
		}
		e.descriptor(above, fields)
	}
}

func (e *envoy) descriptor(above descriptor, fields map[string]any) {
	key, value := fmt.Sprint(fields["key"]), valueOf(fields)
	label := labelOf(key)
	d := descriptor{name: above.name, where: above.where + " / " + key, match: maps.Clone(above.match), labels: slices.Clone(above.labels), limited: above.limited}
	if d.match == nil {
		d.match = map[string]string{}
	}
	if label != key {
		e.note(d.where, "key %s becomes the label %s", key, label)
	}
	switch {
	case strings.HasSuffix(value, "*"):
		e.note(d.where, "value %s has no equivalent: a match is exact; what is below it is not imported", value)
		return
	case value == "":
		d.labels = append(d.labels, label)
		d.name += "/" + label + "/{" + label + "}"
	default:
		d.where += "=" + value
		d.match[label] = value
		d.name += "/" + label + "/" + clean(value)
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, field) {
			e.note(d.where, "%s has no equivalent", field)
		}
	}
	if limit, ok := fields["rate_limit"].(map[string]any); ok {
		if d.limited && e.nested == "" {
			e.nested = d.where
		}
		d.limited = true
		e.limit(d, limit, fields["shadow_mode"] == true)
	}
	e.descriptors(d, fields["descriptors"])
}

func (e *envoy) limit(d descriptor, fields map[string]any, shadow bool) {
	if fields["unlimited"] == true {
		e.note(d.where, "unlimited has no equivalent: a request to which no budget applies is refused; declare a large limit with enforcement meter")
		return
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		switch field {
		case "unit", "requests_per_unit", "unlimited", "name":
		default:
			e.note(d.where, "rate_limit.%s has no equivalent", field)
		}
	}
	unit, n := strings.ToLower(fmt.Sprint(fields["unit"])), int64(-1)
	if _, err := fmt.Sscan(fmt.Sprint(fields["requests_per_unit"]), &n); err != nil || n < 0 {
		e.note(d.where, "requests_per_unit %v is not a limit; not imported", fields["requests_per_unit"])
		return
	}
	window, err := windowOf(unit)
	if err != nil {
		e.note(d.where, "unit %s has no equivalent; not imported", unit)
		return
	}
	if window.Calendar == "month" || window.Calendar == "year" {
		e.note(d.where, "a %s is a calendar %s here, in UTC, and a fixed number of days at Envoy", unit, unit)
	}
	b := allocation.Budget{Name: d.name, Unit: "requests", Limit: &n, Window: window, Match: d.match, Allocation: e.policy}
	if shadow {
		b.Enforcement = allocation.Shadow
	}
	if len(d.labels) > 0 {
		b.MissingLabel = allocation.MissingLabelUnchecked // at Envoy too, a request without the key is not counted
		if len(d.match) == 0 {
			e.note(d.where, "applies to every request that has %s", strings.Join(d.labels, " and "))
		}
	}
	e.add(d.where, b)
}

// labelOf makes a label's name of a key.
func labelOf(key string) string {
	out := []byte(strings.ToLower(key))
	for i, c := range out {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			out[i] = '_'
		}
	}
	return string(out)
}

// clean makes a part of a budget's name of any text.
func clean(text string) string {
	out := []byte(text)
	for i, c := range out {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '.' && c != '-' {
			out[i] = '-'
		}
	}
	if s := string(out); s != "." && s != ".." {
		return s
	}
	return "-"
}
