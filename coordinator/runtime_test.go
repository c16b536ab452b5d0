package coordinator_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// outside are the files that may use what no other may. The files of the HTTP API are not among them: what they wait for,
// they wait for in the service.
var outside = map[string][]string{
	"runtime.go":          {"go", "select", "channel", "time.", "context.", "math/rand/v2"}, // it is the seam
	"random.go":           {"crypto/rand"},                                                  // the default of Config.Random
	"stranded_metrics.go": {"channel"},                                                      // a collector answers the registry, which no simulation asks
}

// forbidden are functions, by package, that wait, start, tell the time or make something random on their own.
var forbidden = map[string][]string{
	"time":                   {"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"},
	"context":                {"AfterFunc", "WithDeadline", "WithDeadlineCause", "WithTimeout", "WithTimeoutCause"},
	"github.com/google/uuid": {"New", "NewDCESecurity", "NewRandom", "NewString", "NewUUID", "NewV6", "NewV7"},
}

// allowed are all that may be used of a package.
var allowed = map[string][]string{"sync": {"Mutex"}}

// imports that are forbidden as a whole; a name that ends in a slash stands for all below.
var imports = []string{"crypto/rand", "math/rand", "math/rand/v2", "hash/maphash", "iter", "os/signal", "golang.org/x/sync/"}

// The simulator runs this package under a scheduler of its own, in which one part runs at a time. A part that waits for a
// channel would stop that world, and one that asks the machine for the time or for random bytes would make every run of
// a seed another one.
func TestEverythingGoesThroughTheSeam(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	checked := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checked++
		for _, f := range besideTheSeam(t, name, string(text)) {
			if !slices.ContainsFunc(outside[name], func(kind string) bool { return strings.HasPrefix(f.kind, kind) }) {
				t.Errorf("%s: %s goes beside Runtime", f.at, f.kind)
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d files were found", checked)
	}
	for name := range outside {
		if !slices.Contains(names, name) {
			t.Errorf("%s is excepted, and is not there", name)
		}
	}
}

// A check that finds nothing proves nothing.
func TestTheSeamCheckSees(t *testing.T) {
	for text, want := range map[string]string{
		`func f() { go f() }`:                              "go",
		`func f() { select {} }`:                           "select",
		`var c chan int`:                                   "channel",
		`func f() { _ = make(chan int) }`:                  "channel",
		`func f(c C) { c <- 1 }`:                           "channel",
		`func f(c C) { <-c.d }`:                            "channel",
		`func f(c C) { for range c.Done() {} }`:            "channel",
		`func f(c C) { close(c) }`:                         "channel",
		`import "time"; var t = time.Now()`:                "time.Now",
		`import "time"; var now = time.Now`:                "time.Now",
		`import clock "time"; func f() { clock.Sleep(1) }`: "time.Sleep",
		`import . "time"; func f() { Sleep(1) }`:           "time.",
		`import "context"; func f(c context.Context) { context.WithTimeout(c,1) }`: "context.WithTimeout",
		`import "sync"; var w sync.WaitGroup`:                                      "sync.WaitGroup",
		`import "sync"; type s struct { sync.Cond }`:                               "sync.Cond",
		`import "github.com/google/uuid"; var id = uuid.NewString()`:               "github.com/google/uuid.NewString",
		`import "crypto/rand"; var r = rand.Reader`:                                "crypto/rand",
		`import "math/rand/v2"; var n = rand.Int()`:                                "math/rand/v2",
		`import "golang.org/x/sync/errgroup"; var g errgroup.Group`:                "golang.org/x/sync/errgroup",
	} {
		found := besideTheSeam(t, "x.go", "package x; "+text)
		if !slices.ContainsFunc(found, func(f finding) bool { return f.kind == want }) {
			t.Errorf("%s: found %v, not %s", text, found, want)
		}
	}
	fine := `package x
import ("context"; "sync"; "time"; "github.com/google/uuid")
type s struct { mu sync.Mutex; at time.Time }
func (s *s) f(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	cancel(ctx.Err())
	_ = s.at.Add(time.Second).After(s.at)
	time := s
	time.Now()
	_, _ = uuid.NewRandomFromReader(nil)
}`
	if found := besideTheSeam(t, "x.go", fine); len(found) > 0 {
		t.Errorf("it finds %v where nothing is", found)
	}
}

type finding struct{ at, kind string }

// besideTheSeam lists what a file does that belongs to a Runtime, or to the source of random numbers.
func besideTheSeam(t *testing.T, name, text string) (found []finding) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, 0)
	if err != nil {
		t.Fatal(err)
	}
	add := func(n ast.Node, kind string) {
		at := set.Position(n.Pos())
		found = append(found, finding{fmt.Sprintf("%s:%d", at.Filename, at.Line), kind})
	}
	packages := importsOf(file, add)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			add(n, "go")
		case *ast.SelectStmt:
			add(n, "select")
		case *ast.ChanType, *ast.SendStmt:
			add(n, "channel")
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				add(n, "channel")
			}
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.Ident); is && f.Name == "close" {
				add(n, "channel")
			}
		case *ast.SelectorExpr:
			if n.Sel.Name == "Done" { // of a context, for whatever use
				add(n, "channel")
			}
			if p, ofPackage := packageOf(n, packages); ofPackage && isForbidden(p, n.Sel.Name) {
				add(n, p+"."+n.Sel.Name)
			}
		}
		return true
	})
	return found
}

// importsOf are the imported packages by the name that the file gives them.
func importsOf(file *ast.File, add func(ast.Node, string)) map[string]string {
	packages := map[string]string{}
	for _, i := range file.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		name := path.Base(p)
		if i.Name != nil {
			name = i.Name.Name
		}
		packages[name] = p
		if name == "." {
			add(i, p+".")
		}
		if slices.ContainsFunc(imports, func(no string) bool { return p == no || strings.HasSuffix(no, "/") && strings.HasPrefix(p, no) }) {
			add(i, p)
		}
	}
	return packages
}

// packageOf is the package of a qualified name. A variable of the package's name hides it.
func packageOf(n *ast.SelectorExpr, packages map[string]string) (string, bool) {
	x, is := n.X.(*ast.Ident)
	if !is || x.Obj != nil { //nolint:staticcheck // what hides a package in one file is all that is asked
		return "", false
	}
	p, is := packages[x.Name]
	return p, is
}

func isForbidden(p, name string) bool {
	if only, limited := allowed[p]; limited {
		return !slices.Contains(only, name)
	}
	return slices.Contains(forbidden[p], name)
}
