package manifest

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"tranche/allocation"
)

// routesFile is a routes table as it is written.
type routesFile struct {
	Routes []routeLine `yaml:"routes"`
}

type routeLine struct {
	Method     string `yaml:"method"`
	Path       string `yaml:"path"`
	Capability string `yaml:"capability"`
}

// LoadRoutes reads a routes table from one file of YAML; "-" is in. The error is Faults, unless the file cannot be read.
func LoadRoutes(in io.Reader, file string) (allocation.Routes, error) {
	text, err := read(in, file)
	if err != nil {
		return allocation.Routes{}, err
	}
	whole := func(line int, text string) (allocation.Routes, error) {
		return allocation.Routes{}, Faults{{Source{file, line}, text}}
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil {
		return whole(faultLine(err), "is not YAML:\n"+indent(yaml.FormatError(err, false, true)))
	}
	if len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return whole(1, "document: is missing, or one of several; write one table, `routes:` and below it a line for each endpoint")
	}
	var written routesFile
	if err := yaml.UnmarshalWithOptions(text, &written, yaml.Strict()); err != nil {
		return whole(faultLine(err), "routes: "+strings.TrimSpace(yaml.FormatError(err, false, true))+"\nuse lines like - {method: POST, path: /v1/chat, capability: model}")
	}
	var t allocation.Routes
	for _, r := range written.Routes {
		t.Routes = append(t.Routes, allocation.Route(r))
	}
	if written.Routes == nil {
		return whole(1, "routes: is missing; an empty table is written `routes: []`")
	}
	if problems, bad := errors.AsType[allocation.Problems](t.Validate()); bad {
		return allocation.Routes{}, faultsOf(problems, func(field string) Source { return Source{file, routeLineOf(tree, field)} })
	}
	return t, nil
}

func faultLine(err error) int {
	if e, ok := errors.AsType[yaml.Error](err); ok && e.GetToken() != nil {
		return e.GetToken().Position.Line
	}
	return 1
}

var routeIndex = regexp.MustCompile(`^routes\[(\d+)\]`)

// routeLineOf is the line of the element that a field like routes[3].path is in.
func routeLineOf(tree *ast.File, field string) int {
	m := routeIndex.FindStringSubmatch(field)
	if m == nil {
		return 1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 1
	}
	var values []*ast.MappingValueNode
	switch body := tree.Docs[0].Body.(type) {
	case *ast.MappingNode:
		values = body.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{body}
	}
	for _, v := range values {
		if list, ok := v.Value.(*ast.SequenceNode); ok && fmt.Sprint(v.Key) == "routes" && n < len(list.Values) {
			return lineOf(list.Values[n])
		}
	}
	return 1
}
