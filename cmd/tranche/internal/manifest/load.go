package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tranche/allocation"
)

// Bounds of what is read.
const (
	maxFile  = 8 << 20
	maxFiles = 10_000
)

// Budget is one declared budget and where it stands.
type Budget struct {
	allocation.Budget
	Source Source
}

// Source is where a document begins.
type Source struct {
	File string
	Line int
}

// String is file:line, as editors take it.
func (s Source) String() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// Fault is one thing that is wrong in a file.
type Fault struct {
	Source
	Text string
}

// Faults are all that is wrong, as an error of one line each.
type Faults []Fault

// Error lists them.
func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Source.String() + ": " + f[i].Text
	}
	return strings.Join(lines, "\n")
}

// ErrNone says that the files could be read and declare nothing.
var ErrNone = errors.New("no budget is declared")

// Load reads the files and folders named, in their order, folders in the order of names and with what lies below them.
// "-" is in. A folder's files are those that end in .yaml, .yml or .json and do not begin with a dot. The error is Faults
// or ErrNone, unless a file cannot be read.
func Load(in io.Reader, names ...string) ([]Budget, error) {
	files, err := find(names)
	if err != nil {
		return nil, err
	}
	var all []Budget
	var faults Faults
	for _, file := range files {
		text, err := read(in, file)
		if err != nil {
			return nil, err
		}
		found, wrong := parse(file, text)
		all, faults = append(all, found...), append(faults, wrong...)
	}
	faults = append(faults, twice(all)...)
	if len(faults) == 0 {
		faults = append(faults, tooManyHits(all)...)
	}
	if len(faults) > 0 {
		return nil, faults
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%w in %s; `tranche budgets apply --help` shows what a file looks like", ErrNone, strings.Join(names, ", "))
	}
	return all, nil
}

// find expands folders.
func find(names []string) ([]string, error) {
	var files []string
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case name == "-":
			files = append(files, name)
			continue
		case err != nil:
			return nil, fmt.Errorf("read budgets: %w", err)
		case !info.IsDir():
			files = append(files, name)
			continue
		}
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path != name && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
			case !d.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				files = append(files, path)
			}
			if len(files) > maxFiles {
				return fmt.Errorf("more than %d files; apply its parts one by one", maxFiles)
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read budgets in %s: %w", name, err)
		}
	}
	return files, nil
}

func read(in io.Reader, file string) ([]byte, error) {
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read budgets: %w", err)
		}
		defer opened.Close()
		in = opened
	}
	text, err := io.ReadAll(io.LimitReader(in, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read budgets in %s: %w", file, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes; split it into several files", file, maxFile)
	}
	return text, nil
}

func parse(file string, text []byte) ([]Budget, Faults) {
	if filepath.Ext(file) == ".json" || bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) && json.Valid(text) {
		return parseJSON(file, text)
	}
	return parseYAML(file, text)
}

// parseJSON reads the values one after the other. The line of a fault is that of its document.
func parseJSON(file string, text []byte) (found []Budget, faults Faults) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		rest := text[d.InputOffset():]
		start := int(d.InputOffset()) + len(rest) - len(bytes.TrimLeft(rest, " \t\r\n"))
		at := Source{file, 1 + bytes.Count(text[:start], []byte("\n"))}
		var value json.RawMessage
		err := d.Decode(&value)
		if errors.Is(err, io.EOF) {
			return found, faults
		}
		if err != nil {
			line := 1 + bytes.Count(text[:min(int(d.InputOffset()), len(text))], []byte("\n"))
			return found, append(faults, Fault{Source{file, line}, fmt.Sprintf("is not JSON: %v; give one object for each budget", err)})
		}
		b, wrong := parseBudget(value)
		if len(wrong) > 0 {
			faults = append(faults, faultsOf(wrong, func(string) Source { return at })...)
			continue
		}
		found = append(found, Budget{b, at})
	}
}

// faultsOf tells each problem at the place of its field.
func faultsOf(problems allocation.Problems, place func(field string) Source) (faults Faults) {
	for i := range problems {
		faults = append(faults, Fault{place(problems[i].Field), problems[i].Error()})
	}
	return faults
}

// twice finds names that are declared more than once: which of them counts must not depend on an order.
func twice(all []Budget) (faults Faults) {
	first := map[string]Source{}
	for _, b := range all {
		if before, ok := first[b.Name]; ok {
			faults = append(faults, Fault{b.Source, fmt.Sprintf("budget: %s is declared at %s already; declare it once", b.Name, before)})
			continue
		}
		first[b.Name] = b.Source
	}
	return faults
}

// matchSteps bounds the search for labels that hit too many budgets.
const matchSteps = 200_000

// tooManyHits finds labels with which a request would hit more of the declared budgets than one may be charged to.
func tooManyHits(all []Budget) Faults {
	budgets := make([]allocation.Budget, len(all))
	for i, b := range all {
		budgets[i] = b.Budget
	}
	most, labels, names, _ := allocation.MostBudgetsHit(budgets, allocation.MaxBudgetsPerRequest, matchSteps)
	if most <= allocation.MaxBudgetsPerRequest {
		return nil
	}
	at := all[slices.IndexFunc(all, func(b Budget) bool { return b.Name == names[len(names)-1] })].Source
	return Faults{{at, fmt.Sprintf("match: a request with the labels %v would hit %d budgets (%s); narrow a match, a request may hit %d",
		labels, most, strings.Join(names, ", "), allocation.MaxBudgetsPerRequest)}}
}
