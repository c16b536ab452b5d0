package importer

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tranche/allocation"
)

var home = allocation.Policy{Policy: allocation.PolicyHome, Region: "us-east"}

const ratelimit = `
domain: edge proxy
descriptors:
  - key: tenant
    value: acme
    rate_limit: {unit: minute, requests_per_unit: 100}
    descriptors:
      - key: path
        value: /v1/chat
        shadow_mode: true
        rate_limit: {unit: DAY, requests_per_unit: 5000, name: chat}
      - key: path
        value: /v1/*
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10}
  - key: Plan
    value: free
    quota_mode: true
    rate_limit: {unit: month, requests_per_unit: 7, replaces: [{name: chat}]}
  - key: admin
    value: "1"
    rate_limit: {unlimited: true}
  - key: odd
    value: x
    rate_limit: {unit: fortnight, requests_per_unit: 3}
`

// If this failed, a limit would be lost on the way in, or change its meaning without a word.
func TestEnvoy(t *testing.T) {
	r, err := Envoy(strings.NewReader(ratelimit), home)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, b := range r.Budgets {
		got = append(got, fmt.Sprintf("%s %d %s %v %s %s", b.Name, *b.Limit, b.Window, b.Match, b.Enforcement, b.MissingLabel))
	}
	want := `edge-proxy/tenant/acme 100 every 1m map[tenant:acme]
edge-proxy/tenant/acme/path/-v1-chat 5000 calendar day UTC map[path:/v1/chat tenant:acme] shadow
edge-proxy/remote_address/{remote_address} 10 every 1s map[]  unchecked
edge-proxy/plan/free 7 calendar month UTC map[plan:free]`
	lines := strings.Split(want, "\n")
	if len(got) != len(lines) {
		t.Fatalf("%s\n%v", strings.Join(got, "\n"), r.Notes)
	}
	for i := range lines {
		if strings.Join(strings.Fields(got[i]), " ") != strings.Join(strings.Fields(lines[i]), " ") {
			t.Errorf("%s, want %s", got[i], lines[i])
		}
	}
	notes := fmt.Sprint(r.Notes)
	for _, words := range []string{
		"/v1/* has no equivalent", "quota_mode has no equivalent", "rate_limit.replaces has no equivalent", "unlimited has no equivalent",
		"fortnight has no equivalent", "Plan becomes the label plan", "calendar month", "charged to both", "applies to every request that has remote_address",
	} {
		if !strings.Contains(notes, words) {
			t.Errorf("no note says %q: %s", words, notes)
		}
	}
	if _, err := Envoy(strings.NewReader("a: 1"), home); err == nil {
		t.Error("takes any file")
	}
}

// If this failed, a line that is wrong would be a budget all the same, or stop the others.
func TestCSV(t *testing.T) {
	r, err := CSV(strings.NewReader("budget,limit,window,match,owner\nacme,100,1m,tenant=acme plan=pro,kim\nacme,5,day,,\nbad,x,day,,\nbad,1,moon,,\n../x,1,day,,\n"), home)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Budgets) != 2 || r.Budgets[0].Match["plan"] != "pro" || r.Budgets[1].Name != "acme-2" || r.Budgets[1].Unit != "requests" || len(r.Notes) != 4 {
		t.Errorf("%+v\n%v", r.Budgets, r.Notes)
	}
	if !strings.Contains(fmt.Sprint(r.Notes), "line 4 is not imported: limit") {
		t.Errorf("%v", r.Notes)
	}
	// As a spreadsheet saves it: a byte order mark, column names with capitals, lines that end with \r\n.
	r, err = CSV(strings.NewReader("\xef\xbb\xbfBudget, Limit,window\r\nacme,100,1m\r\n"), home)
	if err != nil || len(r.Budgets) != 1 || r.Budgets[0].Name != "acme" || len(r.Notes) != 0 {
		t.Errorf("%+v %v", r, err)
	}
	for text, want := range map[string]string{
		"budget,limit\n":                    "line 1: the column window is missing; there are budget, limit. Begin the file",
		"":                                  "line 1: the file is empty",
		"budget;limit;window\nacme;1;1m\n":  "line 1: the columns are separated by semicolons or tabs; save the file with commas",
		"\xef\xbb\xbfbudget;limit;window\n": "line 1: the columns are separated by semicolons",
		"\xff\xfeb\x00u\x00":                "line 1: the file is in UTF-16; save it",
		"budget,limit,window\na,1,1m\nb,1,000\nc,1,1m,x\n": "line 4: wrong number of fields; give each line the 3 columns",
	} {
		if _, err := CSV(strings.NewReader(text), home); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// If this failed, a tenant with a limit of its own would be held to that of all others too, which Envoy does not do.
func TestEnvoyKeyBesideItsValues(t *testing.T) {
	const values = `
domain: edge
descriptors:
  - {key: tenant, value: acme, rate_limit: {unit: minute, requests_per_unit: %s}%s}
  - {key: tenant, value: beta, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: tenant, rate_limit: {unit: minute, requests_per_unit: 10}%s}
`
	for name, c := range map[string]struct {
		limit, acme, alone string
		template           bool // made of the key alone
	}{
		"higher for one":         {"100", "", "", false},
		"lower for each":         {"10", "", "", true},
		"another unit":           {"5", ", shadow_mode: false", ", detailed_metric: true", true},
		"in shadow for one":      {"5", ", shadow_mode: true", "", false},
		"all of them in shadow":  {"5", ", shadow_mode: true", ", shadow_mode: true", true},
		"unlimited for one":      {"5, unlimited: true", "", "", false},
		"something below":        {"5", "", ", descriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 1}}]", false},
		"a unit that none knows": {"5, unit: fortnight", "", "", false},
	} {
		text := fmt.Sprintf(values, c.limit, c.acme, c.alone)
		if name == "a unit that none knows" {
			text = strings.Replace(text, "unit: minute, requests_per_unit: 5, unit: fortnight", "unit: fortnight, requests_per_unit: 5", 1)
		}
		r, err := Envoy(strings.NewReader(text), home)
		if err != nil {
			t.Fatal(name, err)
		}
		template := slices.ContainsFunc(r.Budgets, func(b allocation.Budget) bool { return b.IsTemplate() })
		said := strings.Contains(fmt.Sprint(r.Notes), "tenant has no equivalent beside tenant=acme") || strings.Contains(fmt.Sprint(r.Notes), "edge / tenant has no equivalent beside tenant=acme")
		if template != c.template || said == c.template {
			t.Errorf("%s: a template %v, said %v: %v", name, template, said, r.Notes)
		}
	}
}
