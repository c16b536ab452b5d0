package importer

import (
	"fmt"
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
	if _, err := CSV(strings.NewReader("budget,limit\n"), home); err == nil || !strings.Contains(err.Error(), "window") {
		t.Error(err)
	}
}
