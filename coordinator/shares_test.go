package coordinator_test

import (
	"strings"
	"testing"

	"tranche/coordinator"
)

// Rows of zeros hide the one that matters; but a region that the policy names is shown, also with nothing.
func TestSharesShowWhoTakesPart(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	regions := func(budget string) string {
		t.Helper()
		var names []string
		for _, s := range get[coordinator.SharesAnswer](w, r, "/v1/shares/"+budget).Terms[0].Regions {
			names = append(names, s.Region)
		}
		return strings.Join(names, " ")
	}
	home := func(region string) string {
		return `{"budget":"home","unit":"requests","limit":9,"window":{"every":"1m"},"match":{"tenant":"other"},"allocation":{"policy":"home","region":"` + region + `"}}`
	}
	w.must(r, 201, "POST", "/v1/budgets", home("us-east"))
	if got := regions("home"); got != "us-east" {
		t.Errorf("home of us-east: %s", got)
	}
	east.untilQuiet(r)
	east.spend("home", 4)
	w.must(r, 200, "PUT", "/v1/budgets/home", home("eu-west"), "If-Match", `"1"`)
	if got := regions("home"); got != "eu-west us-east" {
		t.Errorf("while us-east holds some: %s", got)
	}
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(budgetJSON("tiny", "1"), `"acme"`, `"third"`, 1))
	if got := regions("tiny"); got != "eu-west us-east" {
		t.Errorf("weighted, with nothing: %s", got)
	}
}
