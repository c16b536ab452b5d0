package manifest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"tranche/allocation"
)

// parseYAML reads the documents of a file. Each is written again as JSON, with its keys in their order and its numbers as
// they stand there, and its fields' lines are remembered.
func parseYAML(file string, text []byte) (found []Budget, faults Faults) {
	tree, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		line := 1
		if e, ok := err.(yaml.Error); ok && e.GetToken() != nil {
			line = e.GetToken().Position.Line
		}
		return nil, Faults{{Source{file, line}, "is not YAML:\n" + indent(yaml.FormatError(err, false, true))}}
	}
	for _, d := range tree.Docs {
		if d.Body == nil || d.Body.Type() == ast.NullType || d.Body.Type() == ast.CommentType {
			continue
		}
		w := writer{file: file, lines: map[string]int{"": lineOf(d.Body)}}
		w.node("", d.Body)
		if b, wrong := w.budget(); len(wrong) == 0 {
			found = append(found, Budget{b, w.place("")})
		} else {
			faults = append(faults, wrong...)
		}
	}
	return found, faults
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")
}

func lineOf(n ast.Node) int {
	if m, ok := n.(*ast.MappingNode); ok && len(m.Values) > 0 {
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

// writer turns a document into JSON.
type writer struct {
	file   string
	out    bytes.Buffer
	lines  map[string]int // by the path of a field
	faults Faults
	wrongs []string // the paths of the faults
	broken bool     // what was written is no object any more
}

// place is the line of a field, or of the nearest one around it.
func (w *writer) place(field string) Source {
	for {
		if line, ok := w.lines[field]; ok {
			return Source{w.file, line}
		}
		cut := strings.LastIndexByte(field, '.')
		field = field[:max(0, cut)]
	}
}

func (w *writer) wrong(n ast.Node, path, text string) {
	w.fault(n, path, text)
	w.out.WriteString("null")
}

// budget reads what was written; all faults of the document are told together, in the order of its lines.
func (w *writer) budget() (b allocation.Budget, faults Faults) {
	faults = w.faults
	if !w.broken {
		var problems allocation.Problems
		b, problems = parseBudget(w.out.Bytes(), w.wrongs...)
		faults = append(faults, faultsOf(problems, w.place)...)
	}
	slices.SortStableFunc(faults, func(x, y Fault) int { return cmp.Compare(x.Line, y.Line) })
	return b, faults
}

func (w *writer) fault(n ast.Node, path, text string) {
	w.broken = w.broken || path == ""
	w.wrongs = append(w.wrongs, path)
	w.faults = append(w.faults, Fault{Source{w.file, lineOf(n)}, cmp.Or(path, "document") + ": " + text})
}

func (w *writer) node(path string, n ast.Node) {
	switch n := n.(type) {
	case *ast.MappingNode:
		w.mapping(path, n.Values)
	case *ast.MappingValueNode:
		w.mapping(path, []*ast.MappingValueNode{n})
	case *ast.StringNode:
		w.text(n.Value)
	case *ast.LiteralNode:
		w.text(n.Value.Value)
	case *ast.IntegerNode:
		w.integer(path, n)
	case *ast.FloatNode:
		w.number(n.Token.Value)
	case *ast.BoolNode:
		fmt.Fprint(&w.out, n.Value)
	case *ast.NullNode:
		w.out.WriteString("null")
	case *ast.SequenceNode:
		w.wrong(n, path, "is a list; a budget has none, and several budgets are several documents with a line --- between them")
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode, *ast.TagNode:
		w.wrong(n, path, "is an anchor, an alias or a tag; write the value out")
	default:
		w.wrong(n, path, fmt.Sprintf("is a %s; write a plain text or number", strings.ToLower(n.Type().String())))
	}
}

func (w *writer) mapping(path string, values []*ast.MappingValueNode) {
	w.out.WriteByte('{')
	for i, v := range values {
		key, ok := keyOf(v.Key)
		if !ok {
			w.broken = true
			w.wrong(v, path, "has a key that is no plain text; write its name")
			return
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		if _, before := w.lines[at]; !before {
			w.lines[at] = lineOf(v)
		} else {
			w.fault(v, at, "is given twice; give it once")
		}
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.text(key)
		w.out.WriteByte(':')
		w.node(at, v.Value)
	}
	w.out.WriteByte('}')
}

// keyOf is a key as it is written; a label's name or a region may look like a number.
func keyOf(k ast.MapKeyNode) (string, bool) {
	switch k := k.(type) {
	case *ast.StringNode:
		return k.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode:
		return k.GetToken().Value, true
	}
	return "", false
}

func (w *writer) text(s string) {
	out, _ := json.Marshal(s) // a text always can
	w.out.Write(out)
}

// integer writes plain decimal digits. YAML 1.1 has others, and a limit that was read as another number than its author
// meant would admit too much: 0100 is 64.
func (w *writer) integer(path string, n *ast.IntegerNode) {
	written := n.Token.Value
	if meant := fmt.Sprint(n.Value); written != meant {
		w.wrong(n, path, fmt.Sprintf("is %s, which YAML reads as %s; write a number in plain decimal digits, and a text in quotes", written, meant))
		return
	}
	w.out.WriteString(written)
}

// number writes a number with a fraction or an exponent as it stands, for ParseBudget to refuse by its own words; what is
// no JSON number (.inf) becomes a text.
func (w *writer) number(s string) {
	if json.Valid([]byte(s)) {
		w.out.WriteString(s)
		return
	}
	w.text(s)
}
