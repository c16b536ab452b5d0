package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/manifest"
)

// section is what stands below a heading, up to the next of its kind.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n## "+heading+"\n")
	if !ok {
		t.Fatalf("there is no heading %q", heading)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	return rest
}

// The worked example of a tool gateway's budgets does what its table says. If this fails an operator who copies it charges other
// budgets than the page promises.
func TestDocsPolicyExample(t *testing.T) {
	text := section(t, read(t, docs+"policy.md"), "Budgets of callers, tenants and tools")
	declared, err := manifest.Load(strings.NewReader(fences(text)[0].text), "-")
	if err != nil {
		t.Fatal(err)
	}
	var all []allocation.Budget
	for _, b := range declared {
		if b.Counted != b.CountedBy() {
			t.Errorf("%s does not say that it is counted %s", b.Name, b.CountedBy())
		}
		all = append(all, b.Budget)
	}
	code := regexp.MustCompile("`([^`]+)`")
	rows := 0
	for _, row := range regexp.MustCompile(`(?m)^\| (`+"`[a-z]+=.*"+`) \| (.*) \|$`).FindAllStringSubmatch(text, -1) {
		rows++
		labels := allocation.Labels{}
		for pair := range strings.FieldsSeq(strings.Trim(row[1], "`")) {
			name, value, _ := strings.Cut(pair, "=")
			labels[name] = value
		}
		var want, got []string
		for _, m := range code.FindAllStringSubmatch(row[2], -1) {
			want = append(want, m[1])
		}
		hits, missing := allocation.MatchBudgets(all, labels)
		for _, h := range hits {
			got = append(got, h.Budget.Name)
		}
		if missing != nil {
			got = []string{string(allocation.LabelMissing)}
			if !strings.Contains(row[2], missing.Label) {
				t.Errorf("%s: %s is missing", row[1], missing.Label)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: charged to %v, the page says %v", row[1], got, want)
		}
	}
	if rows < 6 {
		t.Errorf("only %d rows were found; the search is broken", rows)
	}
}

// The preset is what the page says that it is, rung by rung.
func TestDocsStandardLadder(t *testing.T) {
	files := fences(section(t, read(t, docs+"policy.md"), "Ladder"))
	load := func(i int) *allocation.Ladder {
		declared, err := manifest.Load(strings.NewReader(files[i].text), "-")
		if err != nil {
			t.Fatal(err)
		}
		return declared[0].Ladder
	}
	preset, written := load(0), load(1)
	if preset.Preset != allocation.LadderStandard {
		t.Fatalf("the first is %+v", preset)
	}
	want, _ := json.Marshal(preset.Expand())
	if got, _ := json.Marshal(written); string(got) != string(want) {
		t.Errorf("the page says %s, and standard is %s", got, want)
	}
}
