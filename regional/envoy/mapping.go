package envoy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"tranche/allocation"
)

// Bounds of a mapping's file.
const (
	MaxMappingBytes = 1 << 20
	maxDomains      = 256
	maxEntryKeys    = 256 // of one domain
)

// What an entry of a descriptor may be, besides a label.
const (
	isAdmissionID = "admission_id"
	isUnit        = "unit"
	isOp          = "op"
	isPriority    = "priority"
	isIgnored     = "ignored"
	isLegacy      = "legacy"
)

// Mapping says what the descriptors of each domain mean.
type Mapping struct {
	Domains map[string]Domain `yaml:"domains"`
}

// Domain is what the descriptors of one domain mean. An entry that is not named here makes a call wrong: a label that is
// lost on its way would be a budget that is not charged.
type Domain struct {
	// Entries are by the key of a descriptor's entry.
	Entries map[string]Entry `yaml:"entries"`
	// Labels are what every request of the domain carries.
	Labels map[string]string `yaml:"labels"`
	// Unit is what hits count where no entry says it. Empty: requests.
	Unit string `yaml:"unit"`
	// Op is what hits do where no entry says it: spend (the default) or reserve.
	Op string `yaml:"op"`
	// Priority is what requests are where no entry says it: interactive (the default), batch or essential.
	Priority string `yaml:"priority"`
}

// Entry has exactly one of the two.
type Entry struct {
	Label string `yaml:"label"` // the value is the value of this label
	Is    string `yaml:"is"`    // admission_id, unit, op, priority, legacy or ignored
}

// ParseMapping reads a mapping strictly, from YAML. The error has a line for each thing that is wrong: file:line: field:
// problem; fix.
func ParseMapping(file string, text []byte) (Mapping, error) {
	if len(text) > MaxMappingBytes {
		return Mapping{}, fmt.Errorf("%s: has %d bytes; a mapping has at most %d", file, len(text), MaxMappingBytes)
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return Mapping{}, fmt.Errorf("%s:%d: is not YAML:\n%s", file, lineOf(err), yaml.FormatError(err, false, true))
	}
	var m Mapping
	if err := yaml.UnmarshalWithOptions(text, &m, yaml.Strict()); err != nil {
		return Mapping{}, fmt.Errorf("%s:%d: %w", file, lineOf(err), decodeProblem(err))
	}
	if len(tree.Docs) > 1 {
		return Mapping{}, fmt.Errorf("%s: has %d documents; put all domains below one `domains:`", file, len(tree.Docs))
	}
	c := mappingCheck{file: file, tree: tree}
	c.mapping(&m)
	if len(c.wrong) > 0 {
		return Mapping{}, errors.New(strings.Join(c.wrong, "\n"))
	}
	return m, nil
}

func lineOf(err error) int {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		return e.GetToken().Position.Line
	}
	return 1
}

func decodeProblem(err error) error {
	text := strings.TrimSpace(yaml.FormatError(err, false, true))
	return fmt.Errorf("%s\nuse domains.NAME with entries, labels, unit, op and priority, and in an entry label or is", text)
}

// mappingCheck finds all that is wrong with a mapping that could be read.
type mappingCheck struct {
	file  string
	tree  *ast.File
	wrong []string
}

func (c *mappingCheck) fault(path []string, problem, fix string) {
	c.wrong = append(c.wrong, fmt.Sprintf("%s:%d: %s: %s; %s", c.file, c.line(path), strings.Join(path, "."), problem, fix))
}

// line is where a field stands, or the nearest one around it.
func (c *mappingCheck) line(path []string) int {
	line := 1
	if len(c.tree.Docs) == 0 {
		return line
	}
	node := ast.Node(c.tree.Docs[0].Body)
	for _, key := range path {
		var next ast.Node
		for _, v := range valuesOf(node) {
			if v.Key.GetToken().Value == key {
				line, next = v.Key.GetToken().Position.Line, v.Value
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line
}

func valuesOf(n ast.Node) []*ast.MappingValueNode {
	switch n := n.(type) {
	case *ast.MappingNode:
		return n.Values
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}
	}
	return nil
}

func (c *mappingCheck) mapping(m *Mapping) {
	if len(m.Domains) == 0 || len(m.Domains) > maxDomains {
		c.fault([]string{"domains"}, fmt.Sprintf("are %d", len(m.Domains)), fmt.Sprintf("name 1 to %d domains, each with its entries", maxDomains))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Domains)) {
		d := m.Domains[name]
		c.domain([]string{"domains", name}, &d)
		m.Domains[name] = d
	}
}

func (c *mappingCheck) domain(at []string, d *Domain) {
	below := func(names ...string) []string { return append(slices.Clone(at), names...) }
	if at[1] == "" {
		c.fault(at, "has no name", "use the domain of Envoy's filter")
	}
	if len(d.Entries) == 0 || len(d.Entries) > maxEntryKeys {
		c.fault(below("entries"), fmt.Sprintf("are %d", len(d.Entries)), fmt.Sprintf("name 1 to %d keys of descriptors' entries", maxEntryKeys))
	}
	if d.Unit == "" {
		d.Unit = "requests"
	}
	if !validUnit(d.Unit) {
		c.fault(below("unit"), fmt.Sprintf("%.70q is no unit", d.Unit), "use 1 to 64 of a-z 0-9 _ beginning with a letter, like tokens")
	}
	switch allocation.Op(d.Op) {
	case "":
		d.Op = string(allocation.Spend)
	case allocation.Spend, allocation.Reserve:
	default:
		c.fault(below("op"), fmt.Sprintf("%.70q is not what a request can do", d.Op), "use spend or reserve")
	}
	if _, problem := allocation.ParsePriority(d.Priority); problem != nil {
		c.fault(below("priority"), problem.Problem, problem.Fix)
	}
	c.labels(below("labels"), d.Labels)
	for _, key := range slices.Sorted(maps.Keys(d.Entries)) {
		c.entry(below("entries", key), d.Entries[key], d)
	}
}

func (c *mappingCheck) labels(at []string, labels allocation.Labels) {
	problems, _ := errors.AsType[allocation.Problems](labels.Validate())
	for _, p := range problems {
		path := slices.Clone(at)
		if _, name, below := strings.Cut(p.Field, "."); below {
			path = append(path, name)
		}
		c.fault(path, p.Problem, p.Fix)
	}
}

func (c *mappingCheck) entry(at []string, e Entry, d *Domain) {
	switch {
	case (e.Label == "") == (e.Is == ""):
		c.fault(at, "says not what it is", "give label: NAME, or is: admission_id, unit, op, priority, legacy or ignored, and not both")
	case e.Label != "":
		if (allocation.Labels{e.Label: "x"}).Validate() != nil {
			c.fault(append(at, "label"), fmt.Sprintf("%.70q is no label's name", e.Label), "use 1 to 64 of a-z 0-9 _ . - beginning with a letter")
		}
		if _, fixed := d.Labels[e.Label]; fixed {
			c.fault(append(at, "label"), e.Label+" stands in the domain's labels too", "keep one of the two")
		}
	case !slices.Contains([]string{isAdmissionID, isUnit, isOp, isPriority, isLegacy, isIgnored}, e.Is):
		c.fault(append(at, "is"), fmt.Sprintf("%.70q is not known", e.Is), "use admission_id, unit, op, priority, legacy or ignored")
	}
}

// validUnit is what a budget's unit may be.
func validUnit(unit string) bool {
	if unit == "" || len(unit) > allocation.MaxLabelName || unit[0] < 'a' || unit[0] > 'z' {
		return false
	}
	return strings.Trim(unit, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}
