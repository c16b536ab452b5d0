package allocation

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const budgetJSON = `{
	"budget": "acme/{tier}/{caller}", "unit": "usd_micros", "limit": 9007199254740992,
	"window": {"calendar": "month", "zone": "Europe/Berlin"},
	"match": {"tenant": "acme", "route": "/v1/chat"}, "missing_label": "unchecked", "instead_of": "{tier}/{caller}", "counted": "each tier and caller",
	"allocation": {"policy": "home", "region_from": "tier"},
	"runs_alone_for": "3d", "max_instances": 1000, "admission_id": "generated", "on_lapse": "release",
	"longest_reservation": "90s", "on_exhausted": 402, "max_evidence_age": "1m30s", "on_stale_evidence": "admit", "wait_for_share": "2s",
	"protected": 7, "ladder": {"interactive": {"degrade_at": 80, "route": "small"}, "batch": {"defer_at": 70, "refuse_at": 90, "retry_after": "1m"}},
	"synthetic": true, "enforcement": "shadow", "enforce_for": {"percent": 5, "match": {"plan": "free"}}, "enforcement_until": "2026-12-01T00:00:00Z"}`

// Every field must arrive: one that is silently dropped is a rule that is not enforced.
func TestParseBudgetReadsEveryField(t *testing.T) {
	got, err := ParseBudget([]byte(budgetJSON))
	want := Budget{
		Name: "acme/{tier}/{caller}", Unit: "usd_micros", Limit: units(MaxUnits),
		Window:    Window{Calendar: "month", Zone: "Europe/Berlin"},
		Match:     map[string]string{"tenant": "acme", "route": "/v1/chat"},
		InsteadOf: "{tier}/{caller}", Counted: "each tier and caller", MissingLabel: MissingLabelUnchecked, Allocation: Policy{Policy: PolicyHome, RegionFrom: "tier"},
		RunsAloneFor: 3 * Day, MaxInstances: 1000, AdmissionID: AdmissionIDGenerated, OnLapse: OnLapseRelease,
		LongestReservation: 90, OnExhausted: 402, MaxEvidenceAge: 90, OnStaleEvidence: OnStaleAdmit, WaitForShare: 2,
		Protected: 7, Ladder: &Ladder{Interactive: &Rungs{DegradeAt: 80, Route: "small"}, Batch: &Rungs{DeferAt: 70, RefuseAt: 90, RetryAfter: Minute}},
		Synthetic: true, Enforcement: Shadow, EnforceFor: &EnforceFor{Percent: 5, Match: map[string]string{"plan": "free"}}, EnforcementUntil: 1_796_083_200,
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Fatalf("read %+v, %v; want %+v", got, err, want)
	}
	for i := range reflect.TypeFor[Budget]().NumField() {
		if name := reflect.TypeFor[Budget]().Field(i).Name; name == "OpeningSpent" || name == "Override" || name == "Thresholds" {
			continue // no template has it
		}
		if reflect.ValueOf(got).Field(i).IsZero() {
			t.Errorf("field %s is not part of this test", reflect.TypeFor[Budget]().Field(i).Name)
		}
	}
}

func TestParseBudgetReadsOpeningSpent(t *testing.T) {
	const budget = `{"budget": "a", "unit": "requests", "limit": 50, "window": {"every": "1m"}, "opening_spent": %s,
		"allocation": {"policy": "demand"}}`
	if got, err := ParseBudget(fmt.Appendf(nil, budget, "7")); err != nil || got.OpeningSpent != 7 {
		t.Errorf("read %+v, %v", got, err)
	}
	if _, err := ParseBudget(fmt.Appendf(nil, budget, "-7")); err == nil {
		t.Error("-7 was taken")
	}
}

func TestParseBudgetReadsThresholds(t *testing.T) {
	const budget = `{"budget": "%s", "unit": "requests", "limit": 50, "window": {"every": "1m"}, "thresholds": %s, "allocation": {"policy": "home", "region": "a"}}`
	if got, err := ParseBudget(fmt.Appendf(nil, budget, "a", "[70, 95]")); err != nil || !slices.Equal(got.Thresholds, []int64{70, 95}) || !slices.Equal(got.Told(), got.Thresholds) {
		t.Errorf("read %+v, %v", got, err)
	}
	if told := validBudget().Told(); !slices.Equal(told, []int64{50, 80, 100}) || validTemplate().Told() != nil {
		t.Errorf("without any, told are %v and %v", told, validTemplate().Told())
	}
	for _, wrong := range []string{"[]", "70", `["70"]`, "[0]", "[101]", "[70.5]", "[90, 70]", "[70, 70]", "[1,2,3,4,5,6,7,8,9,10,11]", "[null]"} {
		if _, err := ParseBudget(fmt.Appendf(nil, budget, "a", wrong)); err == nil || !strings.Contains(err.Error(), "thresholds") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if _, err := ParseBudget(fmt.Appendf(nil, budget, "a/{caller}", "[70]")); err == nil || !strings.Contains(err.Error(), "sum over its instances") {
		t.Errorf("of a template: %v", err)
	}
}

// The same for the fields of the policies: a min that is dropped leaves a region with nothing.
func TestParseBudgetReadsEveryPolicyField(t *testing.T) {
	const start = `{"budget": "a/{b}", "unit": "requests", "limit": 50, "window": {"every": "1m"}, "allocation": `
	seen := map[string]bool{}
	for text, want := range map[string]Policy{
		start + `{"policy": "home", "hash_of": "b", "forward": true}}`:                {Policy: PolicyHome, HashOf: "b", Forward: true},
		start + `{"policy": "home", "region_from": "b"}}`:                             {Policy: PolicyHome, RegionFrom: "b"},
		start + `{"policy": "fixed", "weights": {"us": 1}, "keep_percent": 5}}`:       {Policy: PolicyFixed, Weights: map[string]int64{"us": 1}, KeepPercent: 5},
		strings.Replace(start, "/{b}", "", 1) + `{"policy": "home", "region": "us"}}`: {Policy: PolicyHome, Region: "us"},
		strings.Replace(start, "/{b}", "", 1) + `{"policy": "demand", "min": {"us": 5}, "max": {"us": 40, "eu": 0}, "least_runway": "9s"}}`: {
			Policy: PolicyDemand, Min: map[string]int64{"us": 5}, Max: map[string]int64{"us": 40, "eu": 0}, LeastRunway: 9,
		},
	} {
		got, err := ParseBudget([]byte(text))
		if err != nil || !reflect.DeepEqual(got.Allocation, want) {
			t.Errorf("%s: read %+v, %v", text, got.Allocation, err)
		}
		for i := range reflect.TypeFor[Policy]().NumField() {
			if !reflect.ValueOf(got.Allocation).Field(i).IsZero() {
				seen[reflect.TypeFor[Policy]().Field(i).Name] = true
			}
		}
	}
	if n := reflect.TypeFor[Policy]().NumField(); len(seen) != n {
		t.Errorf("%d of %d fields are part of this test: %v", len(seen), n, seen)
	}
}

const simple = `"budget": "a", "unit": "requests", "limit": 5, "window": {"every": "1m"}, "allocation": {"policy": "fixed", "weights": {"us": 1}}`

// Strictness, case by case: each of these is a different budget than its author meant, or two at once.
func TestParseBudgetIsStrict(t *testing.T) {
	if _, err := ParseBudget([]byte("{" + simple + "}")); err != nil {
		t.Fatal(err)
	}
	swap := func(old, new string) string { return "{" + strings.Replace(simple, old, new, 1) + "}" }
	for _, c := range []struct{ field, text string }{
		{"document", ""},
		{"document", "null"},
		{"document", "[]"},
		{"document", `"a"`},
		{"document", "{" + simple},
		{"document", "{" + simple + "} {}"},
		{"document", "{" + simple + "}x"},
		{"document", "{" + simple + ", \"x\": \"\xff\"}"},
		{"document", "{" + simple + strings.Repeat(" ", MaxBudgetBytes) + "}"},
		{"colour", "{" + simple + `, "colour": 1}`},
		{"Limit", swap(`"limit"`, `"Limit"`)},
		{"limit", "{" + simple + `, "limit": 6}`},
		{"window.every", swap(`{"every": "1m"}`, `{"every": "1m", "every": "2m"}`)},
		{"window.often", swap(`"every"`, `"often"`)},
		{"allocation.weights.us", swap(`{"us": 1}`, `{"us": 1, "us": 2}`)},
		{"allocation.weights.us", swap(`{"us": 1}`, `{"us": 1.5}`)},
		{"allocation.weights.us", swap(`{"us": 1}`, `{"us": -1}`)},
		{"allocation.weights", swap(`{"us": 1}`, `["us"]`)},
		{"allocation.weights", swap(`{"us": 1}`, `5`)},
		{"allocation.weights.us", swap(`{"us": 1}`, `{"us": {"us": 1}}`)},
		{"allocation.weights.us.us", swap(`{"us": 1}`, `{"us": {"us": {"us": 1}}}`)},
		{"limit", swap("5", "null")},
		{"limit", swap("5", `"5"`)},
		{"limit", swap("5", "5.0")},
		{"limit", swap("5", "5e0")},
		{"limit", swap("5", "5E2")},
		{"limit", swap("5", "-5")},
		{"limit", swap("5", "-0")},
		{"limit", swap("5", "9007199254740993")},
		{"limit", swap("5", "99999999999999999999")},
		{"limit", swap(`"limit": 5, `, "")},
		{"window.every", swap(`"1m"`, `60`)},
		{"window.every", swap(`"1m"`, `"1.5s"`)},
		{"unit", swap(`"requests"`, `null`)},
		{"match", "{" + simple + `, "match": "tenant"}`},
		{"match.tenant", "{" + simple + `, "match": {"tenant": 5}}`},
		{"match.tenant", "{" + simple + `, "match": {"tenant": "\ud800"}}`},
		{"runs_alone_for", "{" + simple + `, "runs_alone_for": "0s"}`},
		{"on_exhausted", "{" + simple + `, "on_exhausted": 0}`},
		{"on_exhausted", "{" + simple + `, "on_exhausted": 4294967698}`}, // 402 in the lower 32 bits
		{"max_instances", swap(`"a"`, `"{a}", "max_instances": 0`)},
		{"window.once.from", swap(`{"every": "1m"}`, `{"once": {}}`)},
		{"window.once.until", swap(`{"every": "1m"}`, `{"once": {"from": "2026-01-01T00:00:00Z", "until": "tomorrow"}}`)},
	} {
		b, err := ParseBudget([]byte(c.text))
		problems, _ := err.(Problems)
		if len(problems) != 1 || problems[0].Field != c.field || problems[0].Fix == "" {
			t.Errorf("%.120s: %+v, %v; want one problem of %s", c.text, b, err, c.field)
		}
	}
}

func drawBudget(t *rapid.T) Budget {
	b := validBudget()
	region := rapid.StringMatching(`[a-z0-9-]{1,63}`)
	label := rapid.StringMatching(`[a-z][a-z0-9_.-]{0,20}`)
	b.Limit = units(rapid.Int64Range(1000, 1e12).Draw(t, "limit"))
	b.Match = rapid.MapOfN(label, rapid.StringMatching(`[ -~äß日]{1,40}`), 0, 5).Draw(t, "match")
	if len(b.Match) == 0 {
		b.Match = nil
	}
	b.Window = drawWindow(t)
	b.Allocation.Weights = rapid.MapOfN(region, rapid.Int64Range(1, 10), 1, 10).Draw(t, "weights")
	b.MaxEvidenceAge = Duration(rapid.Int64Range(0, int64(Day)).Draw(t, "age"))
	if rapid.Bool().Draw(t, "template") {
		b.Name += "/{" + label.Draw(t, "label") + "}"
		b.MaxInstances = rapid.Int64Range(0, 1e6).Draw(t, "instances")
	}
	if rapid.Bool().Draw(t, "once") {
		b.Window = Window{Once: &Once{From: Instant(rapid.Int64Range(1, 1e10).Draw(t, "from"))}}
	}
	if rapid.Bool().Draw(t, "defaults") {
		b = b.WithDefaults()
	}
	return b
}

// A budget that changed on its way through the store would raise its version,
// and move permits, without anybody having asked.
func TestParseBudgetKeepsWhatIsWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := drawBudget(t)
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := ParseBudget(data)
		if err != nil || !reflect.DeepEqual(parsed, b) {
			t.Fatalf("%s was read as %+v, %v; want %+v", data, parsed, err, b)
		}
	})
}

// Whatever the bytes, there is no panic; what is taken is valid and survives
// being written; what is refused names fields and fixes.
func FuzzParseBudget(f *testing.F) {
	for _, s := range []string{budgetJSON, "{" + simple + "}", "{}", "[[[[", `{"limit": 1e400}`, `{"window": {"once": {"from": "never"}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := ParseBudget(data)
		if err != nil {
			problems, ok := err.(Problems)
			if !ok || len(problems) == 0 || problems[0].Field == "" || problems[0].Fix == "" {
				t.Fatalf("refused without field or fix: %v", err)
			}
			return
		}
		if err := b.WithDefaults().Validate(); err != nil {
			t.Fatalf("taken, but its defaults are not valid: %v", err)
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := ParseBudget(again); err != nil || !reflect.DeepEqual(parsed, b) {
			t.Fatalf("%s was read as %+v, %v; want %+v", again, parsed, err, b)
		}
	})
}

// A fix with another field's bound, or a problem that is not the writer's, sends people astray.
func TestProblemsSayWhatToWrite(t *testing.T) {
	for text, says := range map[string]string{
		strings.Replace("{"+simple+"}", `"1m"`, `"0s"`, 1):                           "window.every: is 0s; use 1s to 12h",
		strings.Replace("{"+simple+"}", `"unit": "requests", `, "", 1):               "unit: is missing; use 1 to 64",
		strings.Replace("{"+simple+"}", `{"us": 1}`, `{"us": -1}`, 1):                "allocation.weights.us: is negative; use 0 to 2147483648",
		strings.Replace("{"+simple+"}", `{"us": 1}`, `{"us": 10000000000000000}`, 1): "allocation.weights.us: is over 2^53; use at most 2147483648",
		strings.Replace("{"+simple+"}", `"a"`, `"{a}", "max_instances": -1`, 1):      "max_instances: is negative; use 1 to 1000000000",
	} {
		if _, err := ParseBudget([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, not %s", text, err, says)
		}
	}
}
