//go:build unix

package envoy_test

import (
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/regional/envoy"
)

// If this failed, a mapping could be taken that loses a label, or one refused without a word of where and why.
func TestParseMapping(t *testing.T) {
	m, err := envoy.ParseMapping("m.yaml", []byte(testMapping))
	if err != nil {
		t.Fatal(err)
	}
	if d := m.Domains["edge"]; d.Unit != "requests" || d.Op != "spend" || d.Entries["path"].Label != "route" || d.Labels["product"] != "api" {
		t.Errorf("%+v", d)
	}
	const good = "domains:\n  d:\n    entries:\n      a: {label: a}\n"
	if _, err := envoy.ParseMapping("m.yaml", []byte(good)); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"":                     "m.yaml:1: domains: are 0",
		"domains: {}":          "m.yaml:1: domains: are 0",
		"domains: [":           "m.yaml:1: is not YAML",
		"domains:\n  d: 5":     "m.yaml:2: ",
		good + "    more: 1\n": `m.yaml:5: `,
		good + "other: 1\n":    `unknown field "other"`,
		good + "---\n" + good:  "has 2 documents",
		"domains:\n  \"\":\n    entries: {a: {label: a}}": "m.yaml:2: domains.: has no name",
		good + "      b: {is: x, label: y}\n":             "m.yaml:5: domains.d.entries.b: says not what it is",
		good + "      b: {label: B}\n":                    `m.yaml:5: domains.d.entries.b.label: "B" is no label's name`,
		good + "    labels: {x: \"\"}\n":                  "m.yaml:5: domains.d.labels.x: is empty",
		good + "    labels: {X: y}\n":                     "m.yaml:5: domains.d.labels: name \"X\" is not valid",
		good + strings.Repeat("#", envoy.MaxMappingBytes): "a mapping has at most",
	} {
		if _, err := envoy.ParseMapping("m.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
	}
}

// Whatever a file holds, it is a mapping that means something, or an error that names the file.
func FuzzParseMapping(f *testing.F) {
	f.Add([]byte(testMapping))
	f.Add([]byte("domains: {d: {entries: {a: {is: unit}}, labels: {b: c}, unit: tokens, op: reserve}}"))
	f.Add([]byte("domains: &a {d: *a}"))
	f.Add([]byte("? [a]\n: b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := envoy.ParseMapping("file", text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "file:") {
				t.Errorf("names no place: %v", err)
			}
			return
		}
		for name, d := range m.Domains {
			if name == "" || len(d.Entries) == 0 || d.Unit == "" || d.Op == "" || allocation.Labels(d.Labels).Validate() != nil {
				t.Errorf("%q: %+v", name, d)
			}
			for key, e := range d.Entries {
				if (e.Label == "") == (e.Is == "") {
					t.Errorf("%q: %+v", key, e)
				}
			}
		}
	})
}
