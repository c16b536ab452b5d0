package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/cli"
	"tranche/cmd/tranche/internal/manifest"
	"tranche/cmd/tranche/internal/settings"
)

var update = flag.Bool("update", false, "write what the documentation has from the code")

// checkout is the top of the repository, from this folder.
const checkout = "../.."

// pages are the README and the documentation, by their path from the top.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(checkout, "deploy/docs/*.md"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no documentation: %v", err)
	}
	out := map[string]string{}
	for _, name := range append(names, filepath.Join(checkout, "README.md")) {
		rel, err := filepath.Rel(checkout, name)
		if err != nil {
			t.Fatal(err)
		}
		out[rel] = read(t, rel)
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(checkout, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const docs = "deploy/docs/"

// A caller that looks a reason up must find what the node answers: the table is made from the code.
func TestDocsReasons(t *testing.T) {
	const from, to = "<!-- reasons:", "<!-- end of reasons -->"
	text := read(t, docs+"answers.md")
	head, rest, ok := strings.Cut(text, from)
	mark, rest, ok2 := strings.Cut(rest, "-->\n")
	_, tail, ok3 := strings.Cut(rest, to)
	if !ok || !ok2 || !ok3 {
		t.Fatal("answers.md has lost its marks")
	}
	want := head + from + mark + "-->\n" + reasons() + to + tail
	if *update {
		if err := os.WriteFile(filepath.Join(checkout, docs+"answers.md"), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Error("answers.md is not what allocation.Answers says; run: go test ./cmd/tranche -run TestDocs -update")
	}
}

func reasons() string {
	var b strings.Builder
	b.WriteString("\n| reason | HTTP | retry | what it means |\n|---|---|---|---|\n")
	for _, a := range allocation.Answers() {
		retry := "`" + string(a.Retry) + "`"
		if a.Reason == allocation.Allow {
			retry = ""
		}
		fmt.Fprintf(&b, "| `%s` | %d | %s | %s |\n", a.Reason, a.Status, retry, a.Title)
	}
	return b.String() + "\n"
}

// A word in code that looks like a reason, and is none, sends a reader looking for nothing.
func TestDocsNameReasonsThatExist(t *testing.T) {
	known := map[string]bool{}
	for _, a := range allocation.Answers() {
		known[string(a.Reason)] = true
	}
	for name, text := range pages(t) {
		for _, m := range regexp.MustCompile(`"reason":"([a-z_]+)"`).FindAllStringSubmatch(text, -1) {
			if !known[m[1]] {
				t.Errorf("%s: there is no reason %s", name, m[1])
			}
		}
	}
}

// fence is a block of code with its language.
type fence struct{ language, text string }

func fences(text string) []fence {
	var out []fence
	for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		out = append(out, fence{m[1], m[2]})
	}
	return out
}

// commandLines are the lines of blocks, and the code in running text, that call tranche.
func commandLines(text string) []string {
	var out []string
	for _, f := range fences(text) {
		for line := range strings.Lines(strings.ReplaceAll(f.text, "\\\n", " ")) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	for _, m := range regexp.MustCompile("`(tranche [^`]+)`").FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return slices.DeleteFunc(out, func(s string) bool { return !isCommand(s) })
}

func isCommand(line string) bool {
	rest, ok := strings.CutPrefix(strings.Replace(line, "go run ./cmd/tranche", "tranche", 1), "tranche ")
	return ok && rest != "" && rest[0] >= 'a' && rest[0] <= 'z'
}

// What is printed to be typed must be understood: the command exists, and each of its flags.
func TestDocsCommands(t *testing.T) {
	seen := 0
	for name, text := range pages(t) {
		for _, line := range commandLines(text) {
			seen++
			if err := understood(line); err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
		}
	}
	if seen < 30 {
		t.Errorf("only %d command lines were found; the search is broken", seen)
	}
	for _, wrong := range []string{"tranche budgets aply x", "tranche status --jsn", "tranche regions list --dry-run"} {
		if understood(wrong) == nil {
			t.Errorf("%s is taken for a command", wrong)
		}
	}
}

var usageOf = regexp.MustCompile(`(?m)^Usage:\n  (tranche.*)$`)

func understood(line string) error {
	words := strings.Fields(strings.Replace(line, "go run ./cmd/tranche", "tranche", 1))
	status, help := inProcess(append(slices.Clone(words[1:]), "--help")...)
	usage := usageOf.FindStringSubmatch(help)
	if status != 0 || usage == nil {
		return fmt.Errorf("ended with status %d: %s", status, help)
	}
	path := commandOf(usage[1])
	if len(words) < len(path) || !slices.Equal(words[:len(path)], path) {
		return fmt.Errorf("was read as %v", path)
	}
	if strings.Contains(help, "Available Commands:") && len(words) > len(path) && !strings.HasPrefix(words[len(path)], "-") {
		return fmt.Errorf("%v has no %q", path, words[len(path)])
	}
	return nil
}

// commandOf is the leading words of a usage line that name the command.
func commandOf(usage string) []string {
	words := strings.Fields(usage)
	end := slices.IndexFunc(words, func(w string) bool { return strings.Trim(w, "abcdefghijklmnopqrstuvwxyz-") != "" || w[0] == '-' })
	if end >= 0 {
		words = words[:end]
	}
	return words
}

// inProcess is the command line in this process, with all that it prints. It must not run beside other tests that print.
func inProcess(args ...string) (status int, printed string) {
	r, w, err := os.Pipe()
	if err != nil {
		return -1, err.Error()
	}
	out, errs := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	text := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		text <- string(all)
	}()
	status = cli.Main(args)
	os.Stdout, os.Stderr = out, errs
	w.Close()
	return status, <-text
}

var flagOf = regexp.MustCompile(`(?m)^ +(?:-h, )?--([a-z-]+)`)

// Every flag of the servers, every setting and every variable stands in configuration.md, and nothing else does.
func TestDocsConfiguration(t *testing.T) {
	text := read(t, docs+"configuration.md")
	known := map[string]bool{"json": true}
	for _, command := range []string{"coordinator", "node", "status", "verify"} {
		_, help := inProcess(command, "--help")
		for _, m := range flagOf.FindAllStringSubmatch(help, -1) {
			known[m[1]] = true
			if server := command == "coordinator" || command == "node"; server && m[1] != "help" && !strings.Contains(text, "`--"+m[1]) {
				t.Errorf("configuration.md does not speak of --%s of `tranche %s`", m[1], command)
			}
		}
	}
	for _, m := range regexp.MustCompile("`--([a-z-]+)").FindAllStringSubmatch(text, -1) {
		if !known[m[1]] {
			t.Errorf("configuration.md: there is no flag --%s", m[1])
		}
	}
	for _, v := range settings.Variables {
		if !strings.Contains(text, "`--"+v.Flag) || !strings.Contains(text, "`"+v.Name+"`") {
			t.Errorf("configuration.md does not speak of --%s and %s", v.Flag, v.Name)
		}
	}
	for _, key := range tags(reflect.TypeFor[settings.Settings](), "yaml") {
		if !strings.Contains(text, "`"+key+"`") {
			t.Errorf("configuration.md does not speak of the file's %s", key)
		}
	}
	for _, field := range budgetFields(reflect.TypeFor[allocation.Budget](), "") {
		if !strings.Contains(text, "`"+field+"`") {
			t.Errorf("configuration.md does not speak of the budget's %s", field)
		}
	}
}

// tags are the names of a document's fields.
func tags(of reflect.Type, kind string) []string {
	var out []string
	for i := range of.NumField() {
		name, _, _ := strings.Cut(of.Field(i).Tag.Get(kind), ",")
		out = append(out, name)
	}
	return out
}

// budgetFields are the paths of a budget's fields, like window.once.from.
func budgetFields(of reflect.Type, prefix string) []string {
	var out []string
	for i, name := range tags(of, "json") {
		if !of.Field(i).IsExported() {
			continue
		}
		inner := of.Field(i).Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && !inner.Implements(reflect.TypeFor[json.Marshaler]()) { // which has a form of its own
			out = append(out, budgetFields(inner, prefix+name+".")...)
			continue
		}
		out = append(out, prefix+name)
	}
	return out
}

// The bounds and defaults that configuration.md gives are the code's, each in the row of its field.
func TestDocsBounds(t *testing.T) {
	text := read(t, docs+"configuration.md")
	for field, values := range map[string][]any{
		"limit":               {allocation.MaxUnits},
		"budget":              {allocation.MaxName},
		"window.every":        {allocation.MinEvery, "12h"},
		"match":               {allocation.MaxLabels, allocation.MaxLabelName, allocation.MaxLabelValue},
		"allocation.weights":  {allocation.MaxRegionsPerBudget, allocation.MaxWeightSum},
		"runs_alone_for":      {allocation.DefaultRunsAloneFor, allocation.MaxRunsAloneFor, allocation.MaxOpenTerms},
		"max_instances":       {allocation.DefaultMaxInstances, allocation.MaxMaxInstances},
		"longest_reservation": {allocation.DefaultReservation, allocation.MaxReservation},
		"on_exhausted":        {allocation.DefaultOnExhausted},
		"thresholds":          {50, 80, 100, allocation.MaxThresholds},
		"max_evidence_age":    {allocation.MaxMaxEvidenceAge},
		"missing_label":       {allocation.MissingLabelRefuse, allocation.MissingLabelUnchecked},
		"admission_id":        {allocation.AdmissionIDRequired, allocation.AdmissionIDGenerated},
		"on_lapse":            {allocation.OnLapseSpend, allocation.OnLapseRelease},
		"on_stale_evidence":   {allocation.OnStaleRefuse, allocation.OnStaleAdmit},
	} {
		row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(field) + "` \\|.*$").FindString(text)
		for _, v := range values {
			if !strings.Contains(row, fmt.Sprint(v)) {
				t.Errorf("configuration.md: the row of %s does not say %v: %s", field, v, row)
			}
		}
	}
}

// What is shown as a file must be taken as one.
func TestDocsFiles(t *testing.T) {
	shown := 0
	for name, text := range pages(t) {
		for _, f := range fences(text) {
			if f.language != "yaml" {
				continue
			}
			shown++
			if strings.HasPrefix(f.text, "routes:\n") {
				if _, err := manifest.LoadRoutes(strings.NewReader(f.text), "-"); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if shownElsewhere(t, name, f.text) {
				continue
			}
			if strings.HasPrefix(f.text, "# config\n") {
				path := filepath.Join(t.TempDir(), "config.yaml")
				if err := os.WriteFile(path, []byte(f.text), 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := settings.Load(map[string]string{"config": path}, func(string) string { return "" }); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				continue
			}
			if _, err := manifest.Load(strings.NewReader(f.text), "-"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if shown < 3 {
		t.Errorf("only %d files were found; the search is broken", shown)
	}
}

// The paths of both APIs stand in their pages, and every path and metric that a page names is served.
func TestDocsAPI(t *testing.T) {
	all := pages(t)
	paths := func(pattern string, files ...string) map[string]bool {
		out := map[string]bool{}
		for _, file := range files {
			for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
				path, _, _ := strings.Cut(m[1], "{")
				out[strings.TrimSuffix(path, "/")] = true
			}
		}
		return out
	}
	node := paths(`(?:path: |(?:decisions|blocks|lift|charged)Path += )"(/[a-z0-9/]+)"`, "regional/http.go", "regional/http_block.go", "regional/charged.go")
	admin := paths(`"[A-Z]+ (/v1[^"]*)"`, "coordinator/http_routes.go", "coordinator/http_stranded.go", "coordinator/http_history.go", "coordinator/http_rebalance.go", "coordinator/http_members.go", "coordinator/endpoints.go", "coordinator/http_keys.go", "coordinator/http_explain.go", "coordinator/http_exposure.go",
		"coordinator/http_events.go", "coordinator/http_overrides.go", "coordinator/closings.go")
	for page, served := range map[string]map[string]bool{"api-node.md": node, "api-admin.md": admin} {
		if len(served) < 8 {
			t.Fatalf("%s: only %d paths were found in the code; the search is broken", page, len(served))
		}
		for path := range served {
			if !strings.Contains(all[docs+page], path) {
				t.Errorf("%s does not speak of %s", page, path)
			}
		}
	}
	maps.Copy(node, admin)
	code := read(t, "regional/metrics.go") + read(t, "coordinator/metrics.go") + read(t, "coordinator/stranded_metrics.go")
	for name, text := range all {
		for _, m := range regexp.MustCompile(`/v1/[a-z]+(?:/(?:batch|match))?`).FindAllString(text, -1) {
			if !node[m] && !strings.HasSuffix(m, "/chat") {
				t.Errorf("%s: nobody serves %s", name, m)
			}
		}
		for _, m := range regexp.MustCompile("`(tranche_[a-z_]+?)(?:\\{[^}]*\\})?`").FindAllStringSubmatch(text, -1) {
			if !strings.Contains(code, `"`+m[1]+`"`) {
				t.Errorf("%s: there is no metric %s", name, m[1])
			}
		}
	}
	for _, m := range regexp.MustCompile(`"(tranche_[a-z_]+)"`).FindAllStringSubmatch(code, -1) {
		if text := all[docs+"api-node.md"] + all[docs+"api-admin.md"]; !regexp.MustCompile("`" + m[1] + "[`{]").MatchString(text) {
			t.Errorf("no page speaks of the metric %s", m[1])
		}
	}
}

// A link leads somewhere: to a file of the checkout, and to a heading in it.
func TestDocsLinks(t *testing.T) {
	for name, text := range pages(t) {
		for _, m := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[1], "#")
			target := name
			if path != "" {
				target = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(checkout, target)); err != nil {
				t.Errorf("%s: the link %s leads nowhere", name, m[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(read(t, target)), anchor) {
				t.Errorf("%s: %s has no heading for %s", name, target, m[1])
			}
		}
	}
	index := read(t, "README.md")
	for name := range pages(t) {
		if name != "README.md" && !strings.Contains(index, "("+name+")") {
			t.Errorf("README.md does not list %s", name)
		}
	}
}

// anchors are what a page's headings are linked by.
func anchors(text string) []string {
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, strings.ReplaceAll(plain, " ", "-"))
	}
	return out
}

// The README stays one screen.
func TestDocsReadmeIsShort(t *testing.T) {
	if n := strings.Count(read(t, "README.md"), "\n"); n > 80 {
		t.Errorf("README.md has %d lines; keep it within 80", n)
	}
}
