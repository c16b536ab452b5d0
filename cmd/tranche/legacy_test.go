package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

const legacyBudget = `budget: legacy/requests
unit: requests
limit: 3
window: {calendar: year}
match: {tenant: legacy}
allocation: {policy: home, region: eu-west}
enforcement: shadow
`

// If this failed, nobody could see from a real deployment where enforcement would differ from the limiter that is still in force.
func testLegacy(t *testing.T, s *stage.Stage) {
	file := filepath.Join(t.TempDir(), "budget.yaml")
	if err := os.WriteFile(file, []byte(legacyBudget), 0o600); err != nil {
		t.Fatal(err)
	}
	at := s.Regions["eu-west"].Nodes[0]
	node := []string{"--node", at.Address, "--node-token", s.Gateways[stage.Edge1]}
	until(t, "legacy/requests", "budgets", "apply", file, "--coordinator", s.Coordinators[0].Address, "--token", s.AdminToken)
	until(t, "allow ", append([]string{"check", "tenant=legacy"}, node...)...)
	gateway, err := s.Gateway(stage.Edge1, at)
	if err != nil {
		t.Fatal(err)
	}
	// Three fit. Of the two that do not, one was allowed; of those that fit, one was denied.
	for i, verdict := range []string{"allow", "deny", "allow", "allow", "deny"} {
		call := api.Call{Method: http.MethodPost, Path: "/v1/admit", Body: map[string]any{
			"labels": map[string]string{"tenant": "legacy"}, "legacy": verdict, "admission_id": fmt.Sprint("legacy-", i), "deadline_ms": 10_000,
		}}
		if _, err := gateway.Do(t.Context(), call, nil); err != nil {
			t.Fatal(err)
		}
	}
	said := run(t, append([]string{"shadow", "report"}, node...)...)
	for _, want := range []string{
		`legacy/requests +5 +2 +1 +1 +3 +5 +6 +requests`,
		`legacy/requests +ceiling_reached +\S+ +1 +allowed it`,
		`legacy/requests +admitted +\S+ +1 +denied it`,
	} {
		if !regexp.MustCompile("(?m)^" + want).MatchString(said) {
			t.Errorf("no line %q in:\n%s", want, said)
		}
	}
}
