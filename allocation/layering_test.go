package allocation_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The rules of the house, held by a test because a rule that nobody checks is
// broken within weeks. They read the files themselves, not what the build of
// this machine sees: a file for another system is bound by them too.

const (
	module      = "tranche"
	longestFile = 400 // lines; past it a second idea is usually hiding
	longestFunc = 70  // lines, from its first to its last
	simulations = module + "/simulations"
)

// source is one Go file.
type source struct {
	path  string // below the module root, with slashes
	fset  *token.FileSet
	tree  *ast.File
	lines int
}

func parse(path string, text []byte) (source, error) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, path, text, parser.SkipObjectResolution|parser.ParseComments)
	return source{path: path, fset: fset, tree: tree, lines: bytes.Count(text, []byte("\n"))}, err
}

func (s source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

func (s source) in(folders ...string) bool {
	for _, folder := range folders {
		if within(path.Dir(s.path), folder) {
			return true
		}
	}
	return false
}

func (s source) imports() []string {
	var all []string
	for _, spec := range s.tree.Imports {
		name, _ := strconv.Unquote(spec.Path.Value) // the parser has checked it
		all = append(all, name)
	}
	return all
}

// uses lists what the file uses of an imported package, with the lines.
func (s source) uses(imported string, names ...string) []string {
	local := ""
	for _, spec := range s.tree.Imports {
		if spec.Path.Value == strconv.Quote(imported) {
			local = path.Base(imported)
			if spec.Name != nil {
				local = spec.Name.Name
			}
		}
	}
	return s.selected([]string{local}, names)
}

// selected lists the uses of x.name, for the x and names given.
func (s source) selected(xs, names []string) []string {
	var found []string
	ast.Inspect(s.tree, func(node ast.Node) bool {
		selector, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := selector.X.(*ast.Ident); ok && has(xs, x.Name) && has(names, selector.Sel.Name) {
			found = append(found, fmt.Sprintf("line %d: %s.%s", s.line(node), x.Name, selector.Sel.Name))
		}
		return true
	})
	return found
}

func (s source) line(node ast.Node) int { return s.fset.Position(node.Pos()).Line }

func has(list []string, wanted string) bool {
	for _, one := range list {
		if one == wanted && one != "" {
			return true
		}
	}
	return false
}

// within reports that a package or folder is the other or lies below it.
func within(name, other string) bool { return name == other || strings.HasPrefix(name, other+"/") }

func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".") && first != module
}

// rule returns a complaint for each place where a file breaks it.
type rule struct {
	name  string
	todo  string
	check func(source) []string
}

var rules = []rule{
	{
		"allocation imports the standard library only",
		"take what it needs as an argument, or move the code to coordinator or regional",
		func(s source) []string {
			if !s.in("allocation") || s.isTest() {
				return nil
			}
			return refused(s, func(name string) bool { return standard(name) || within(name, module+"/allocation") })
		},
	},
	{
		"allocation is pure",
		"take the instant, the random number or the channel's content as an argument; the caller has clocks, locks and I/O",
		impure,
	},
	{
		"coordinator and regional import neither each other nor what lies above them",
		"move what both need to allocation; a test of both belongs to simulations or cmd",
		func(s source) []string {
			if !s.in("coordinator", "regional") {
				return nil
			}
			own, _, _ := strings.Cut(s.path, "/")
			return refused(s, func(name string) bool {
				return !within(name, module) || within(name, module+"/"+own) || within(name, module+"/allocation")
			})
		},
	},
	{
		"only cmd imports simulations",
		"move what is shared down into the package that is simulated",
		func(s source) []string {
			if s.in("cmd", "simulations") {
				return nil
			}
			return refused(s, func(name string) bool { return !within(name, simulations) })
		},
	},
	{
		"regional/client imports only the standard library and allocation",
		"others import the client, and with it all that it imports: do without, or move the code out of the client",
		func(s source) []string {
			if !s.in("regional/client") || s.isTest() {
				return nil
			}
			const apart = module + "/regional/client/grpcclient" // so that only its users get gRPC with it
			return refused(s, func(name string) bool {
				switch {
				case s.in("regional/client/grpcclient") && within(name, "google.golang.org/grpc"):
					return true
				case within(name, apart):
					return s.in("regional/client/grpcclient")
				}
				return standard(name) || within(name, module+"/allocation") || within(name, module+"/regional/client")
			})
		},
	},
	{
		"Postgres stays in regional/postgres",
		"put the call behind the interface that regional declares and regional/postgres implements",
		func(s source) []string {
			if s.in("regional/postgres") || s.isTest() {
				return nil
			}
			return refused(s, func(name string) bool {
				return !within(name, "database/sql") && !within(name, "github.com/jackc/pgx") && !within(name, "github.com/pressly/goose")
			})
		},
	},
	{
		"Envoy's types stay in regional/envoy",
		"let regional/envoy turn them into what regional.Gate takes and tells",
		func(s source) []string {
			if s.in("regional/envoy") || s.isTest() {
				return nil
			}
			return refused(s, func(name string) bool { return !within(name, "github.com/envoyproxy") })
		},
	},
	{
		"etcd stays in coordinator/etcd",
		"put the call behind the interface that coordinator declares and coordinator/etcd implements",
		func(s source) []string {
			if s.in("coordinator/etcd") || s.isTest() {
				return nil
			}
			return refused(s, func(name string) bool { return !within(name, "go.etcd.io") })
		},
	},
	{
		"files are short",
		"find the second idea in it and give it a file of its own",
		func(s source) []string {
			if s.isTest() || ast.IsGenerated(s.tree) || s.lines <= longestFile {
				return nil
			}
			return []string{fmt.Sprintf("%d lines, the most is %d", s.lines, longestFile)}
		},
	},
	{
		"functions are short",
		"give a step of it a name and a function of its own",
		longFunctions,
	},
	{
		"tests do not sleep",
		"wait for what must happen: a channel, a signal of the code under test, or a poll with a ticker",
		func(s source) []string {
			if !s.isTest() {
				return nil
			}
			return s.uses("time", "Sleep")
		},
	},
	{
		"tests are not skipped",
		"make the test provide what it needs, or fail with what to install",
		func(s source) []string {
			if !s.isTest() {
				return nil
			}
			return s.selected([]string{"t", "b", "f", "tb"}, []string{"Skip", "Skipf", "SkipNow"})
		},
	},
}

func refused(s source, allowed func(string) bool) []string {
	var complaints []string
	for _, name := range s.imports() {
		if !allowed(name) {
			complaints = append(complaints, "imports "+name)
		}
	}
	return complaints
}

func impure(s source) []string {
	if !s.in("allocation") || s.isTest() {
		return nil
	}
	complaints := refused(s, func(name string) bool {
		for _, outside := range []string{"os", "net", "log", "sync", "math/rand", "crypto/rand", "context", "runtime", "syscall"} {
			if within(name, outside) {
				return false
			}
		}
		return true
	})
	complaints = append(complaints, s.uses("time",
		"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Local")...)
	ast.Inspect(s.tree, func(node ast.Node) bool {
		if _, ok := node.(*ast.GoStmt); ok {
			complaints = append(complaints, fmt.Sprintf("line %d: a go statement", s.line(node)))
		}
		return true
	})
	return complaints
}

func longFunctions(s source) []string {
	if s.isTest() || ast.IsGenerated(s.tree) {
		return nil
	}
	var complaints []string
	for _, declaration := range s.tree.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok {
			continue
		}
		first, last := s.line(function), s.fset.Position(function.End()).Line
		if lines := last - first + 1; lines > longestFunc {
			complaints = append(complaints, fmt.Sprintf("line %d: %s has %d lines, the most is %d", first, function.Name.Name, lines, longestFunc))
		}
	}
	return complaints
}

// If this failed, the folders would no longer show the design.
func TestLayering(t *testing.T) {
	sources, err := read("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		for _, r := range rules {
			for _, complaint := range r.check(s) {
				t.Errorf("%s: %s\n\trule: %s\n\tdo: %s", s.path, complaint, r.name, r.todo)
			}
		}
	}
}

// read parses every Go file below the module root. It reads within this process
// and runs no go command, so that the test cache knows what the result rests on.
func read(root string) ([]source, error) {
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		return nil, err
	}
	var sources []source
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := entry.Name()
		if entry.IsDir() {
			if file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "node_modules") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		s, err := parse(filepath.ToSlash(below), text)
		sources = append(sources, s)
		return err
	})
	return sources, err
}

// If this failed, a rule would never complain, or would complain of what is
// allowed.
func TestRulesCanFail(t *testing.T) {
	long := strings.Repeat("\n", longestFunc)
	for _, test := range []struct {
		path, text string
		broken     string // the start of the rule's name, or empty
	}{
		{"allocation/a.go", `package a; import "fmt"; var _ = fmt.Sprint`, ""},
		{"allocation/a.go", `package a; import _ "github.com/x/y"`, "allocation imports"},
		{"allocation/a.go", `package a; import _ "tranche/regional"`, "allocation imports"},
		{"allocation/a_test.go", `package a; import _ "pgregory.net/rapid"`, ""},
		{"allocation/a.go", `package a; import _ "math/rand/v2"`, "allocation is pure"},
		{"allocation/a.go", `package a; import _ "math/bits"`, ""},
		{"allocation/a.go", `package a; import _ "net/http"`, "allocation is pure"},
		{"allocation/a.go", `package a; func f() { go f() }`, "allocation is pure"},
		{"allocation/a.go", `package a; import "time"; var a = time.Now`, "allocation is pure"},
		{"allocation/a.go", `package a; import clock "time"; var a = clock.Now()`, "allocation is pure"},
		{"allocation/a.go", `package a; import "time"; var a = time.Second`, ""},
		{"regional/a.go", `package a; import "time"; func f() { go f(); _ = time.Now() }`, ""},
		{"regional/a.go", `package a; import _ "tranche/coordinator"`, "coordinator and regional"},
		{"regional/x/a_test.go", `package a; import _ "tranche/coordinator/etcd"`, "coordinator and regional"},
		{"coordinator/a.go", `package a; import _ "tranche/regional/client"`, "coordinator and regional"},
		{"coordinator/a.go", `package a; import _ "tranche/cmd/tranche"`, "coordinator and regional"},
		{"coordinator/a.go", `package a; import (_ "tranche/coordinator/etcd"; _ "tranche/allocation"; _ "github.com/x/y")`, ""},
		{"allocation/a_test.go", `package a; import _ "tranche/simulations"`, "only cmd imports"},
		{"cmd/tranche/a.go", `package a; import (_ "tranche/simulations"; _ "tranche/regional"; _ "tranche/coordinator")`, ""},
		{"simulations/a.go", `package a; import (_ "tranche/simulations/x"; _ "tranche/regional"; _ "tranche/coordinator")`, ""},
		{"regional/client/a.go", `package a; import _ "github.com/google/uuid"`, "regional/client"},
		{"regional/client/a.go", `package a; import _ "tranche/regional"`, "regional/client"},
		{"regional/client/a.go", `package a; import (_ "net/http"; _ "tranche/allocation")`, ""},
		{"regional/client/a.go", `package a; import _ "google.golang.org/grpc"`, "regional/client"},
		{"regional/client/a.go", `package a; import _ "tranche/regional/client/grpcclient"`, "regional/client"},
		{"regional/client/grpcclient/a.go", `package a; import (_ "google.golang.org/grpc/codes"; _ "tranche/regional/client")`, ""},
		{"regional/client/grpcclient/a.go", `package a; import _ "github.com/x/y"`, "regional/client"},
		{"regional/a.go", `package a; import _ "github.com/jackc/pgx/v5/pgxpool"`, "Postgres stays"},
		{"cmd/tranche/a.go", `package a; import _ "database/sql"`, "Postgres stays"},
		{"regional/postgres/x/a.go", `package a; import (_ "github.com/jackc/pgx/v5"; _ "github.com/pressly/goose/v3")`, ""},
		{"regional/a_test.go", `package a; import _ "github.com/jackc/pgx/v5"`, ""},
		{"regional/a.go", `package a; import _ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"`, "Envoy's types stay"},
		{"regional/envoy/a.go", `package a; import _ "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"`, ""},
		{"coordinator/a.go", `package a; import _ "go.etcd.io/etcd/client/v3"`, "etcd stays"},
		{"coordinator/etcd/a.go", `package a; import _ "go.etcd.io/etcd/client/v3"`, ""},
		{"regional/a.go", "package a" + strings.Repeat("\n", longestFile+1), "files are short"},
		{"regional/a.go", "package a" + strings.Repeat("\n", longestFile), ""},
		{"regional/a_test.go", "package a" + strings.Repeat("\n", longestFile+1), ""},
		{"regional/a.go", "package a\nfunc f() {" + long + "}\n", "functions are short"},
		{"regional/a.go", "package a\nfunc f() {" + long[1:] + "}\n", ""},
		{"regional/a_test.go", `package a; import "time"; func f() { time.Sleep(1) }`, "tests do not sleep"},
		{"regional/a.go", `package a; import "time"; func f() { time.Sleep(1) }`, ""},
		{"regional/a_test.go", `package a; func f() { t.Skip() }`, "tests are not skipped"},
		{"regional/a_test.go", `package a; func f() { decoder.Skip() }`, ""},
	} {
		s, err := parse(test.path, []byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		var broken []string
		for _, r := range rules {
			if len(r.check(s)) > 0 {
				broken = append(broken, r.name)
			}
		}
		if test.broken == "" && len(broken) > 0 {
			t.Errorf("%s %.60q: complaints of %q about what is allowed", test.path, test.text, broken)
		}
		if test.broken != "" && !strings.Contains(strings.Join(broken, "\n"), test.broken) {
			t.Errorf("%s %.60q: no complaint of %q", test.path, test.text, test.broken)
		}
	}
}
