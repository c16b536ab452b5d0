package allocation

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func units(n int64) *int64 { return &n }

// validBudget returns a single budget with policy fixed that others vary.
func validBudget() Budget {
	return Budget{
		Name: "acme/requests", Unit: "requests", Limit: units(100), Window: Window{Every: Minute},
		Match:      map[string]string{"tenant": "acme"},
		Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"us-east": 3, "eu-west": 2}},
	}
}

// validTemplate returns one whose instances are at home by hash.
func validTemplate() Budget {
	b := validBudget()
	b.Name = "acme/{tier}/{caller}"
	b.Allocation = Policy{Policy: PolicyHome, HashOf: "caller"}
	return b
}

// What the documentation shows must be taken, as written and with defaults.
func TestValidBudgets(t *testing.T) {
	for name, change := range map[string]func(b *Budget){
		"single":          func(*Budget) {},
		"limit 0":         func(b *Budget) { b.Limit = units(0) },
		"greatest limit":  func(b *Budget) { b.Limit = units(MaxUnits) },
		"no match":        func(b *Budget) { b.Match = nil },
		"home":            func(b *Budget) { b.Allocation = Policy{Policy: PolicyHome, Region: "eu-west"} },
		"weight 0":        func(b *Budget) { b.Allocation.Weights["ap"] = 0 },
		"402":             func(b *Budget) { b.OnExhausted = 402 },
		"evidence":        func(b *Budget) { b.MaxEvidenceAge, b.OnStaleEvidence = Minute, OnStaleAdmit },
		"once":            func(b *Budget) { b.Window = Window{Once: &Once{From: 5}} },
		"a short once":    func(b *Budget) { b.Window = Window{Once: &Once{From: 5, Until: 65}} },
		"template":        func(b *Budget) { *b = validTemplate() },
		"unchecked":       func(b *Budget) { *b = validTemplate(); b.MissingLabel = MissingLabelUnchecked },
		"region_from":     func(b *Budget) { *b = validTemplate(); b.Allocation = Policy{Policy: PolicyHome, RegionFrom: "tier"} },
		"template, fixed": func(b *Budget) { b.Name = "x-{caller}"; b.Limit = units(2) },
		"template, none":  func(b *Budget) { b.Name = "{caller}"; b.Limit = units(0) },
		"template, one home": func(b *Budget) {
			*b = validTemplate()
			b.Allocation = Policy{Policy: PolicyHome, Region: "eu-west"}
		},
	} {
		b := validBudget()
		change(&b)
		if err := b.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		full := b.WithDefaults()
		if err := full.Validate(); err != nil {
			t.Errorf("%s, with defaults: %v", name, err)
		}
		if !reflect.DeepEqual(full, full.WithDefaults()) {
			t.Errorf("%s: defaults of defaults differ", name)
		}
	}
}

// Each kind of bad input is refused with the field's name and a fix; what slipped
// through would be a limit that nobody meant.
func TestBudgetProblemsNameTheField(t *testing.T) {
	template := func(change func(b *Budget)) func(*Budget) {
		return func(b *Budget) { *b = validTemplate(); change(b) }
	}
	for _, c := range []struct {
		field  string
		change func(b *Budget)
	}{
		{"budget", func(b *Budget) { b.Name = "" }},
		{"allocation.keep_percent", func(b *Budget) { b.Allocation.KeepPercent = MaxKeepPercent + 1 }},
		{"allocation.keep_percent", func(b *Budget) { b.Allocation.KeepPercent = -1 }},
		{"allocation.keep_percent", func(b *Budget) {
			b.Allocation = Policy{Policy: PolicyHome, Region: "us-east", KeepPercent: 1}
		}},
		{"budget", func(b *Budget) { b.Name = strings.Repeat("a", MaxName+1) }},
		{"budget", func(b *Budget) { b.Name = "a b" }},
		{"budget", func(b *Budget) { b.Name = "größe" }},
		{"budget", func(b *Budget) { b.Name = "a~b" }},
		{"budget", func(b *Budget) { b.Name = "/a" }},
		{"budget", func(b *Budget) { b.Name = "a//b" }},
		{"budget", func(b *Budget) { b.Name = "a/../b" }},
		{"budget", func(b *Budget) { b.Name = "a}" }},
		{"budget", func(b *Budget) { b.Name = "a/{caller" }},
		{"budget", func(b *Budget) { b.Name = "a/{}" }},
		{"budget", func(b *Budget) { b.Name = "a/{Caller}" }},
		{"budget", func(b *Budget) { b.Name = "a/{caller}/{caller}" }},
		{"unit", func(b *Budget) { b.Unit = "" }},
		{"unit", func(b *Budget) { b.Unit = "Requests" }},
		{"unit", func(b *Budget) { b.Unit = "usd.micros" }},
		{"limit", func(b *Budget) { b.Limit = nil }},
		{"limit", func(b *Budget) { b.Limit = units(-1) }},
		{"limit", func(b *Budget) { b.Limit = units(MaxUnits + 1) }},
		{"window", func(b *Budget) { b.Window = Window{} }},
		{"window.zone", func(b *Budget) { b.Window = Window{Calendar: "day", Zone: "Europe/Atlantis"} }},
		{"match", func(b *Budget) { b.Match = map[string]string{"Tenant": "acme"} }},
		{"match.tenant", func(b *Budget) { b.Match["tenant"] = "" }},
		{"missing_label", func(b *Budget) { b.MissingLabel = MissingLabelRefuse }},
		{"missing_label", template(func(b *Budget) { b.MissingLabel = "ignore" })},
		{"max_instances", func(b *Budget) { b.MaxInstances = 5 }},
		{"max_instances", template(func(b *Budget) { b.MaxInstances = -1 })},
		{"max_instances", template(func(b *Budget) { b.Limit = units(MaxUnits) })}, // times a million overflows
		{"runs_alone_for", func(b *Budget) { b.RunsAloneFor = -1 }},
		{"runs_alone_for", func(b *Budget) { b.RunsAloneFor = MaxRunsAloneFor + 1 }},
		{"runs_alone_for", func(b *Budget) { b.Window.Every = Hour; b.RunsAloneFor = 30 * Day }},
		{"admission_id", func(b *Budget) { b.AdmissionID = "optional" }},
		{"on_lapse", func(b *Budget) { b.OnLapse = "refund" }},
		{"longest_reservation", func(b *Budget) { b.LongestReservation = 31 * Day }},
		{"on_exhausted", func(b *Budget) { b.OnExhausted = 403 }},
		{"enforcement", func(b *Budget) { b.Enforcement = "off" }},
		{"enforce_for", func(b *Budget) { b.EnforceFor = &EnforceFor{Percent: 5} }},
		{"enforce_for", func(b *Budget) { b.Enforcement, b.EnforceFor = Shadow, &EnforceFor{} }},
		{"enforce_for.percent", func(b *Budget) { b.Enforcement, b.EnforceFor = Shadow, &EnforceFor{Percent: 101} }},
		{"enforce_for.match", func(b *Budget) { b.Enforcement, b.EnforceFor = Meter, &EnforceFor{Match: map[string]string{"A": "b"}} }},
		{"enforcement_until", func(b *Budget) { b.EnforcementUntil = 5 }},
		{"max_evidence_age", func(b *Budget) { b.MaxEvidenceAge = -1 }},
		{"on_stale_evidence", func(b *Budget) { b.OnStaleEvidence = OnStaleAdmit }},
		{"on_stale_evidence", func(b *Budget) { b.MaxEvidenceAge, b.OnStaleEvidence = Minute, "allow" }},
		{"allocation.policy", func(b *Budget) { b.Allocation.Policy = "" }},
		{"allocation.policy", func(b *Budget) { b.Allocation.Policy = "auction" }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Policy = PolicyDemand }},
		{"allocation", func(b *Budget) { b.Allocation = Policy{Policy: PolicyDemand, Region: "us-east"} }},
		{"allocation.policy", template(func(b *Budget) { b.Allocation = Policy{Policy: PolicyDemand} })},
		{"allocation.min", func(b *Budget) { b.Allocation = Policy{Policy: PolicyDemand, Min: map[string]int64{"US": 1}} }},
		{"allocation.min", func(b *Budget) { b.Allocation = Policy{Policy: PolicyDemand, Min: map[string]int64{"us": -1}} }},
		{"allocation.min", func(b *Budget) {
			b.Allocation = Policy{Policy: PolicyDemand, Min: map[string]int64{"us": 60, "eu": 50}}
		}},
		{"allocation.max", func(b *Budget) {
			b.Allocation = Policy{Policy: PolicyDemand, Min: map[string]int64{"us": 5}, Max: map[string]int64{"us": 4}}
		}},
		{"allocation.least_runway", func(b *Budget) { b.Allocation = Policy{Policy: PolicyDemand, LeastRunway: 2 * Hour} }},
		{"allocation.least_runway", func(b *Budget) { b.Allocation.LeastRunway = 5 }},
		{"allocation.min", func(b *Budget) { b.Allocation.Min = map[string]int64{"us-east": 5} }},
		{"allocation.max", func(b *Budget) { b.Allocation.Max = map[string]int64{"us-east": 5} }},
		{"allocation.forward", func(b *Budget) { b.Allocation.Forward = true }},
		{"wait_for_share", func(b *Budget) { b.WaitForShare = MaxWaitForShare + 1 }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Weights = nil }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Weights = map[string]int64{"us-east": 0} }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Weights["us-east"] = -1 }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Weights["US"] = 1 }},
		{"allocation.weights", func(b *Budget) { b.Allocation.Weights["us-east"] = MaxWeightSum }},
		{"allocation.weights", func(b *Budget) { b.Name = "{caller}"; b.Limit = units(1) }},
		{"allocation.weights", template(func(b *Budget) { b.Allocation.Weights = map[string]int64{"us-east": 1} })},
		{"allocation", func(b *Budget) { b.Allocation.Region = "us-east" }},
		{"allocation", func(b *Budget) { b.Allocation = Policy{Policy: PolicyHome} }},
		{"allocation", template(func(b *Budget) { b.Allocation.Region = "us-east" })},
		{"allocation.region", func(b *Budget) { b.Allocation = Policy{Policy: PolicyHome, Region: "US"} }},
		{"allocation.hash_of", func(b *Budget) { b.Allocation = Policy{Policy: PolicyHome, HashOf: "tenant"} }},
		{"allocation.region_from", template(func(b *Budget) { b.Allocation = Policy{Policy: PolicyHome, RegionFrom: "tenant"} })},
	} {
		b := validBudget()
		c.change(&b)
		problems, _ := b.Validate().(Problems)
		if len(problems) != 1 || problems[0].Field != c.field || problems[0].Fix == "" || problems[0].Problem == "" {
			t.Errorf("want one problem of %s, have %v", c.field, problems)
		}
	}
}

// All problems are told at once; one at a time would take as many runs of apply.
func TestBudgetProblemsAreReportedTogether(t *testing.T) {
	err := Budget{}.Validate()
	problems, ok := err.(Problems)
	var fields []string
	for _, p := range problems {
		fields = append(fields, p.Field)
	}
	if want := []string{"budget", "unit", "limit", "window", "allocation.policy"}; !ok || !slices.Equal(fields, want) {
		t.Errorf("problems of %v, want %v", fields, want)
	}
	if first, ok := errors.AsType[*FieldError](err); !ok || first.Field != "budget" {
		t.Errorf("as a *FieldError it is %v", first)
	}
	if text := err.Error(); !strings.Contains(text, "limit: is missing; 0 refuses all") || strings.Count(text, "\n") != 4 {
		t.Errorf("in words: %s", text)
	}
}

// Defaults are part of the contract: a reservation must not live for ever, nor be lost when it lapses.
func TestDefaults(t *testing.T) {
	b := validTemplate()
	b.MaxEvidenceAge = Minute
	b.Window = Window{Calendar: "day"}
	got, want := b.WithDefaults(), b
	want.MissingLabel, want.MaxInstances, want.RunsAloneFor = "refuse", 1_000_000, 6*Hour
	want.AdmissionID, want.OnLapse, want.LongestReservation = "required", "spend", Hour
	want.OnExhausted, want.OnStaleEvidence, want.Window.Zone, want.Enforcement = 429, "refuse", "UTC", "enforce"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults are %+v, want %+v", got, want)
	}
	if single := validBudget().WithDefaults(); single.MaxInstances != 0 || single.MissingLabel != "" || single.OnStaleEvidence != "" {
		t.Errorf("a single budget got a template's defaults: %+v", single)
	}
}

// The order of labels is the order of an instance's parts; it must be the name's.
func TestTemplateLabels(t *testing.T) {
	for name, want := range map[string][]string{
		"acme/requests": nil, "{b}/{a}": {"b", "a"}, "x-{caller}.y": {"caller"}, "{a.b-c_d}": {"a.b-c_d"},
	} {
		b := Budget{Name: name}
		if got := b.TemplateLabels(); !slices.Equal(got, want) || b.IsTemplate() != (want != nil) {
			t.Errorf("%s has labels %v, want %v", name, got, want)
		}
	}
}

// Region names go into keys and URLs.
func TestValidRegion(t *testing.T) {
	for name, want := range map[string]bool{
		"us-east": true, "eu-west-1": true, "a": true, strings.Repeat("a", 63): true,
		"": false, strings.Repeat("a", 64): false, "US": false, "us_east": false, "us/east": false, "us east": false, "ü": false,
	} {
		if ValidRegion(name) != want {
			t.Errorf("%q: %v", name, !want)
		}
	}
}
