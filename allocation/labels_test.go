package allocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Bounds at the door: whatever passes goes into keys, rows and documents.
func TestLabelsValidate(t *testing.T) {
	many := Labels{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprintf("l%d", i)] = "x"
	}
	for name, c := range map[string]struct {
		labels Labels
		ok     bool
	}{
		"none":          {nil, true},
		"plain":         {Labels{"tenant": "acme", "a.b-c_d9": "Größe / 100 %"}, true},
		"longest":       {Labels{strings.Repeat("a", MaxLabelName): strings.Repeat("v", MaxLabelValue)}, true},
		"too many":      {many, false},
		"no name":       {Labels{"": "x"}, false},
		"upper case":    {Labels{"Tenant": "x"}, false},
		"digit first":   {Labels{"9a": "x"}, false},
		"name too long": {Labels{strings.Repeat("a", MaxLabelName+1): "x"}, false},
		"empty":         {Labels{"a": ""}, false},
		"too long":      {Labels{"a": strings.Repeat("v", MaxLabelValue+1)}, false},
		"line break":    {Labels{"a": "x\ny"}, false},
		"null":          {Labels{"a": "x\x00"}, false},
		"no UTF-8":      {Labels{"a": "\xff"}, false},
		"lost bytes":    {Labels{"a": "x\uFFFD"}, false},
		"right to left": {Labels{"a": "x\u202Ey"}, false},
	} {
		if err := c.labels.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func drawLabels(t *rapid.T, label string) Labels {
	return rapid.MapOf(rapid.StringMatching(`[a-c0-9:]{1,4}`), rapid.StringMatching(`[a-c0-9:]{0,4}`)).Draw(t, label)
}

// Two payloads with one encoding would let an id be used again for another
// request; one payload with two would refuse an honest retry.
func TestCanonicalIsUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawLabels(t, "a"), drawLabels(t, "b")
		if maps.Equal(a, b) != (a.Canonical() == b.Canonical()) {
			t.Fatalf("%v and %v are %q and %q", a, b, a.Canonical(), b.Canonical())
		}
		if a.Canonical() != maps.Clone(a).Canonical() {
			t.Fatal("the order of a map shows")
		}
	})
	if got, want := (Labels{"b": "x", "a": "yz"}).Canonical(), "1:a2:yz1:b1:x"; got != want {
		t.Errorf("the encoding changed to %s: hashes that are stored no longer fit", got)
	}
}

// Which budgets apply, and to which instance.
func TestMatches(t *testing.T) {
	template, unchecked := validTemplate(), validTemplate()
	unchecked.MissingLabel = MissingLabelUnchecked
	wide := validBudget()
	wide.Match = nil
	long := strings.Repeat("ü", 127) // 762 bytes when escaped
	for name, c := range map[string]struct {
		budget   Budget
		labels   Labels
		instance string
		applies  bool
		missing  string
	}{
		"applies":               {validBudget(), Labels{"tenant": "acme", "x": "y"}, "", true, ""},
		"other value":           {validBudget(), Labels{"tenant": "acme2"}, "", false, ""},
		"no label":              {validBudget(), nil, "", false, ""},
		"no match: all":         {wide, nil, "", true, ""},
		"instance":              {template, Labels{"tenant": "acme", "tier": "a/b", "caller": "ü"}, "a%2Fb/%C3%BC", true, ""},
		"missing":               {template, Labels{"tenant": "acme", "tier": "gold"}, "", false, "caller"},
		"both missing":          {template, Labels{"tenant": "acme"}, "", false, "tier"},
		"missing, not matched":  {template, Labels{"tenant": "other"}, "", false, ""},
		"missing, unchecked":    {unchecked, Labels{"tenant": "acme", "tier": "gold"}, "", false, ""},
		"complete, unchecked":   {unchecked, Labels{"tenant": "acme", "tier": "gold", "caller": "7"}, "gold/7", true, ""},
		"too long":              {template, Labels{"tenant": "acme", "tier": "gold", "caller": long}, "", false, "caller"},
		"too long does not let": {unchecked, Labels{"tenant": "acme", "tier": "gold", "caller": long}, "", false, "caller"},
	} {
		instance, applies, missing := c.budget.Matches(c.labels)
		if instance != c.instance || applies != c.applies || missing != c.missing {
			t.Errorf("%s: %q, %v, %q", name, instance, applies, missing)
		}
	}
}

// Two callers with one instance name would share one limit, or one caller would get two.
func TestInstancesAreUnambiguous(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.StringMatching(`[a%/.~2F]{0,4}`), 2, 2)
		a, b := values.Draw(t, "a"), values.Draw(t, "b")
		if slices.Equal(a, b) != (EscapeInstance(a) == EscapeInstance(b)) {
			t.Fatalf("%q and %q are %s and %s", a, b, EscapeInstance(a), EscapeInstance(b))
		}
	})
	if got := EscapeInstance([]string{"..", "a b", ".x", "~"}); got != "%2E%2E/a%20b/.x/~" {
		t.Errorf("the escape changed to %s: rows that are stored no longer fit", got)
	}
	for _, bad := range []string{"a%2", "%", "%2f", "%41", "a b", "..", "%zz", "ü", "a%+1"} {
		if values, err := ParseInstance(bad); err == nil {
			t.Errorf("%q was read as %q", bad, values)
		}
	}
}

// Names round-trip, whatever bytes the values hold, and hold nothing that a URL or key must escape again.
func FuzzInstanceEscape(f *testing.F) {
	f.Add("a/b", "..", "a%2Fb/c")
	f.Add("", "ü\x00", "%zz")
	f.Fuzz(func(t *testing.T, a, b, instance string) {
		name := EscapeInstance([]string{a, b})
		values, err := ParseInstance(name)
		if err != nil || !slices.Equal(values, []string{a, b}) {
			t.Fatalf("%q, %q became %s and then %q, %v", a, b, name, values, err)
		}
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%/") != "" {
			t.Fatalf("%s needs escaping", name)
		}
		if values, err := ParseInstance(instance); err == nil && EscapeInstance(values) != instance {
			t.Fatalf("%q was taken as %q", instance, values)
		}
	})
}
