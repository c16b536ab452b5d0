// Package tree reads a YAML document into a tree that remembers the line of everything, so that whatever is wrong with it
// can be told with file, line, field and fix. It is strict: no anchors, no tags, no key twice; and a Reader that meets a
// field which nobody asked for says so.
package tree

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Kind is what a Value is.
type Kind string

// The kinds, as messages name them.
const (
	Map    Kind = "a map"
	List   Kind = "a list"
	Text   Kind = "a text"
	Number Kind = "a number"
	Bool   Kind = "true or false"
	Null   Kind = "empty"
)

// maxDepth bounds how deep a document nests.
const maxDepth = 12

// Value is one node of a document.
type Value struct {
	Path string // like events[2].until; empty for the document
	Line int
	Kind Kind
	Text string // a scalar, as it is written

	Keys   []string // of a map, in their order
	Fields map[string]*Value
	Items  []*Value // of a list
}

// Fault is one thing that is wrong: where, what, and what to do.
type Fault struct {
	File    string
	Line    int
	Field   string
	Problem string
	Fix     string
}

// Error is file:line: field: problem; fix.
func (f Fault) Error() string {
	if f.Field == "" {
		return fmt.Sprintf("%s:%d: %s; %s", f.File, f.Line, f.Problem, f.Fix)
	}
	return fmt.Sprintf("%s:%d: %s: %s; %s", f.File, f.Line, f.Field, f.Problem, f.Fix)
}

// Faults are all that is wrong, as an error of one line each.
type Faults []Fault

// Error lists them.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Parse reads the one document of a file. What is wrong with its form is a Fault.
func Parse(file string, text []byte) (*Value, Faults) {
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line, problem := 1, err.Error()
		if e, ok := err.(yaml.Error); ok && e.GetToken() != nil {
			line, problem = e.GetToken().Position.Line, e.GetMessage()
		}
		return nil, Faults{{file, line, "", "is not YAML: " + problem, "mend that line"}}
	}
	var bodies []ast.Node
	for _, d := range tree.Docs {
		if d.Body != nil && d.Body.Type() != ast.NullType && d.Body.Type() != ast.CommentType {
			bodies = append(bodies, d.Body)
		}
	}
	switch len(bodies) {
	case 0:
		return nil, Faults{{file, 1, "", "says nothing", "start from one of the scenarios in simulations/scenarios"}}
	case 1:
	default:
		return nil, Faults{{file, lineOf(bodies[1]), "", "is a second document", "write each into a file of its own"}}
	}
	b := builder{file: file}
	v := b.value("", bodies[0], maxDepth)
	return v, b.faults
}

type builder struct {
	file   string
	faults Faults
}

func (b *builder) wrong(n ast.Node, path, problem, fix string) {
	b.faults = append(b.faults, Fault{b.file, lineOf(n), path, problem, fix})
}

func (b *builder) value(path string, n ast.Node, depth int) *Value {
	v := &Value{Path: path, Line: lineOf(n), Kind: Null}
	if depth == 0 {
		b.wrong(n, path, "nests too deep", "see simulations/scenarios for the form")
		return v
	}
	switch n := n.(type) {
	case *ast.MappingNode:
		b.mapping(v, n.Values, depth)
	case *ast.MappingValueNode:
		b.mapping(v, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		v.Kind = List
		for i, item := range n.Values {
			v.Items = append(v.Items, b.value(fmt.Sprintf("%s[%d]", path, i+1), item, depth-1))
		}
	case *ast.StringNode:
		v.Kind, v.Text = Text, n.Value
	case *ast.LiteralNode:
		v.Kind, v.Text = Text, n.Value.Value
	case *ast.IntegerNode:
		v.Kind, v.Text = Number, fmt.Sprint(n.Value)
	case *ast.FloatNode:
		v.Kind, v.Text = Number, n.Token.Value
	case *ast.BoolNode:
		v.Kind, v.Text = Bool, fmt.Sprint(n.Value)
	case *ast.NullNode:
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		b.wrong(n, path, "is an anchor, an alias or a tag", "write the value out")
	default:
		b.wrong(n, path, "is a "+strings.ToLower(n.Type().String()), "write a plain text or number")
	}
	return v
}

func (b *builder) mapping(v *Value, values []*ast.MappingValueNode, depth int) {
	v.Kind, v.Fields = Map, map[string]*Value{}
	for _, f := range values {
		key := f.Key.GetToken().Value
		at := strings.TrimPrefix(v.Path+"."+key, ".")
		if _, before := v.Fields[key]; before {
			b.wrong(f, at, "is given twice", "give it once")
			continue
		}
		field := b.value(at, f.Value, depth-1)
		if field.Kind != Map && field.Kind != List || field.Line == 0 {
			field.Line = lineOf(f)
		}
		v.Keys, v.Fields[key] = append(v.Keys, key), field
	}
}

func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 && !m.IsFlowStyle {
		return lineOf(m.Values[0]) // its own token is the first colon
	}
	if v, ok := n.(*ast.MappingValueNode); ok {
		return v.Key.GetToken().Position.Line
	}
	if t := n.GetToken(); t != nil {
		return t.Position.Line
	}
	return 1
}

// JSON writes a value for a reader of JSON, with its numbers as they stand there.
func (v *Value) JSON() []byte {
	var b strings.Builder
	v.json(&b)
	return []byte(b.String())
}

func (v *Value) json(b *strings.Builder) {
	text := func(s string) {
		out, _ := json.Marshal(s) // a text always can
		b.Write(out)
	}
	switch v.Kind {
	case Map:
		b.WriteByte('{')
		for i, key := range v.Keys {
			if i > 0 {
				b.WriteByte(',')
			}
			text(key)
			b.WriteByte(':')
			v.Fields[key].json(b)
		}
		b.WriteByte('}')
	case List:
		b.WriteByte('[')
		for i, item := range v.Items {
			if i > 0 {
				b.WriteByte(',')
			}
			item.json(b)
		}
		b.WriteByte(']')
	case Null:
		b.WriteString("null")
	case Number, Bool:
		if json.Valid([]byte(v.Text)) {
			b.WriteString(v.Text)
			return
		}
		text(v.Text)
	case Text:
		text(v.Text)
	}
}

// Below is the value at a dotted path inside v, or the nearest one around it.
func (v *Value) Below(path string) *Value {
	at := v
	for path != "" {
		key, rest, _ := strings.Cut(path, ".")
		next := at.Fields[key]
		if next == nil {
			return at
		}
		at, path = next, rest
	}
	return at
}
