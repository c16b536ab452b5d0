package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const good = `# the company's budget
budget: acme/requests
unit: requests
limit: 100
window: {every: 1m}
match: {tenant: acme}
allocation: {policy: fixed, weights: {us-east: 3, eu-west: 2}}
---
budget: acme/{caller}
unit: tokens
limit: 5000
window:
  calendar: month
  zone: Europe/Berlin
allocation: {policy: home, hash_of: caller}
runs_alone_for: 6h
max_instances: 1000
---
budget: acme/once
unit: usd_micros
limit: 9007199254740992
window: {once: {from: 2026-01-31T00:00:00Z}}
allocation: {policy: home, region: us-east}
`

func files(t *testing.T, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(pairs); i += 2 {
		path := filepath.Join(dir, pairs[i])
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(pairs[i+1]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoadFoldersAndForms(t *testing.T) {
	dir := files(t, "a.yaml", good, "below/b.json", `{"budget":"x/y","unit":"requests","limit":0,"window":{"every":"1m"},"allocation":{"policy":"home","region":"a"}}
{"budget":"x/z","unit":"requests","limit":1,"window":{"every":"1m"},"allocation":{"policy":"home","region":"a"}}`,
		".hidden.yaml", "not: read", "notes.txt", "not read")
	all, err := Load(nil, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range all {
		got = append(got, filepath.Base(b.Source.File)+":"+b.Name)
	}
	if want := "a.yaml:acme/requests a.yaml:acme/{caller} a.yaml:acme/once b.json:x/y b.json:x/z"; strings.Join(got, " ") != want {
		t.Errorf("got %v", got)
	}
	if all[1].Source.Line != 9 || all[4].Source.Line != 2 || *all[1].Limit != 5000 {
		t.Errorf("lines %d and %d, limit %d", all[1].Source.Line, all[4].Source.Line, *all[1].Limit)
	}
	if b, err := Load(strings.NewReader(good), "-"); err != nil || len(b) != 3 {
		t.Errorf("from standard input: %v %v", b, err)
	}
}

// What is wrong is told with its line, its field and the fix; a budget that was read differently than it was written is
// worse than one that was refused.
func TestFaults(t *testing.T) {
	line := func(n int, with string) string {
		lines := strings.Split(strings.Split(good, "---\n")[0], "\n")
		lines[n-1] = with
		return strings.Join(lines, "\n")
	}
	for name, c := range map[string]struct{ text, want string }{
		"unknown field":   {line(3, "unit: requests\nlimt: 1"), "f.yaml:4: limt: "},
		"negative":        {line(4, "limit: -1"), "f.yaml:4: limit: is negative"},
		"over 2^53":       {line(4, "limit: 9007199254740993"), "f.yaml:4: limit: is over 2^53"},
		"over int64":      {line(4, "limit: 99999999999999999999"), "f.yaml:4: limit: "},
		"fraction":        {line(4, "limit: 1.5"), "f.yaml:4: limit: has a fraction"},
		"infinite":        {line(4, "limit: .inf"), "f.yaml:4: limit: is a infinity; write a plain text"},
		"octal":           {line(4, "limit: 010"), "f.yaml:4: limit: is 010, which YAML reads as 8; write a number in plain decimal digits"},
		"octal, new":      {line(4, "limit: 0o10"), "f.yaml:4: limit: is 0o10, which YAML reads as 8"},
		"hexadecimal":     {line(4, "limit: 0x10"), "f.yaml:4: limit: is 0x10, which YAML reads as 16"},
		"binary":          {line(4, "limit: 0b10"), "f.yaml:4: limit: is 0b10, which YAML reads as 2"},
		"underscores":     {line(4, "limit: 1_000"), "f.yaml:4: limit: is 1_000, which YAML reads as 1000"},
		"signed":          {line(4, "limit: +5"), "f.yaml:4: limit: is +5, which YAML reads as 5"},
		"octal weight":    {line(7, "allocation: {policy: fixed, weights: {us-east: 03, eu-west: 2}}"), "f.yaml:7: allocation.weights.us-east: is 03"},
		"missing limit":   {line(4, ""), "f.yaml:2: limit: is missing"},
		"null limit":      {line(4, "limit:"), "f.yaml:4: limit: is null"},
		"zone":            {line(5, "window: {calendar: day, zone: Mars/Olympus}"), "f.yaml:5: window.zone"},
		"given twice":     {line(4, "limit: 1\nlimit: 2"), "f.yaml:5: limit: is given twice"},
		"list":            {line(6, "match: [a]"), "f.yaml:6: match: is a list"},
		"anchor":          {line(4, "limit: &a 5"), "f.yaml:4: limit: is an anchor"},
		"not yaml":        {line(5, "window: {every: 1m"), "is not YAML"},
		"a list of them":  {"- budget: a\n", "f.yaml:1: document: is a list"},
		"two of one name": {good + "---\n" + strings.Split(good, "---\n")[0], "is declared at"},
		"nothing":         {"# nothing\n", "no budget is declared"},
	} {
		_, err := Load(nil, filepath.Join(files(t, "f.yaml", c.text), "f.yaml"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got\n%v", name, c.want, err)
		}
	}
	var many strings.Builder
	for _, n := range strings.Split("a b c d e f g h i", " ") {
		many.WriteString("---\nbudget: " + n + "\nunit: requests\nlimit: 1\nwindow: {every: 1m}\nallocation: {policy: home, region: x}\n")
	}
	if _, err := Load(nil, filepath.Join(files(t, "f.yaml", many.String()), "f.yaml")); err == nil || !strings.Contains(err.Error(), "would hit 9 budgets") {
		t.Errorf("nine budgets of every request: %v", err)
	}
	if _, err := Load(nil, filepath.Join(files(t, "f.json", `{"budget": "a"} {`), "f.json")); err == nil || !strings.Contains(err.Error(), "f.json:1: ") {
		t.Errorf("broken JSON: %v", err)
	}
}

// Who corrects one fault only to be told of the next gives up. An unknown field hides none of the others, and what is wrong
// makes nothing else look wrong.
func TestAllFaultsAtOnce(t *testing.T) {
	yaml := `budget: acme/{caller}
unit: Requests
limt: 100
limit: -1
window: {calendar: month, zone: Mars/Olympus}
match: [tenant]
allocation: {policy: home, hash_of: caler, wieghts: {}}
max_instances: 10
max_evidence_age: soon
on_stale_evidence: admit
on_lapse: keep
on_lapse: spend
`
	wantYAML := "2: unit 3: limt 4: limit 5: window.zone 6: match 7: allocation.wieghts 7: allocation.hash_of 9: max_evidence_age 12: on_lapse"
	json := `{"budget": "acme/{caller}", "unit": "Requests", "limt": 100, "limit": -1, "window": {"calendar": "month", "zone": "Mars/Olympus"},
			"allocation": {"policy": "home", "hash_of": "caler", "wieghts": {}}, "max_instances": 10, "max_evidence_age": "soon", "on_stale_evidence": "admit"}`
	// All of one line, and in the order in which they are found.
	wantJSON := "1: allocation.wieghts 1: limit 1: limt 1: max_evidence_age 1: unit 1: window.zone 1: allocation.hash_of"
	for file, c := range map[string][2]string{"f.yaml": {yaml, wantYAML}, "f.json": {json, wantJSON}} {
		_, faults := parse(file, []byte(c[0]))
		var got []string
		for _, f := range faults {
			field, _, _ := strings.Cut(f.Text, ": ")
			got = append(got, fmt.Sprintf("%d: %s", f.Line, field))
		}
		if strings.Join(got, " ") != c[1] {
			t.Errorf("%s: got %v\nwant %s", file, got, c[1])
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add(`{"budget":"x"}`)
	f.Add("a: &b {c: *b}\n---\n? [x]\n: y")
	f.Fuzz(func(t *testing.T, text string) {
		for _, file := range []string{"f.yaml", "f.json"} {
			found, _ := parse(file, []byte(text))
			for _, b := range found {
				if err := b.Validate(); err != nil {
					t.Errorf("a budget that is not valid came through: %v", err)
				}
			}
		}
	})
}
