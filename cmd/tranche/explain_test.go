package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
)

// A caller that a real node refused shows its receipt, and an operator's command says what it was: the key that signs comes
// from the region's token on one side, and from its hash on the other. A forgery is named.
func testExplain(t *testing.T, s *stage.Stage) {
	admin, err := s.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Gateway(stage.Edge1, s.Regions["us-east"].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]any{
		"budget": "explained", "unit": "requests", "limit": 0, "window": map[string]string{"every": "1h"},
		"match": map[string]string{"tenant": "explained"}, "allocation": map[string]string{"policy": "home", "region": "us-east"},
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: budget}, nil); err != nil {
		t.Fatal(err)
	}
	receipt := ""
	err = stage.Until(t.Context(), 20*time.Second, "a ceiling", func() (bool, error) {
		status, header, body, err := node.Send(t.Context(), api.Call{
			Method: http.MethodPost, Path: "/v1/admit", Body: map[string]any{"labels": map[string]string{"tenant": "explained"}, "admission_id": "explained-1"},
		})
		receipt = header.Get("Tranche-Receipt")
		if err == nil && (status < 400 || !strings.Contains(string(body), receipt) || receipt == "") {
			t.Fatalf("%d without a receipt: %s", status, body)
		}
		return strings.Contains(string(body), `"ceiling_reached"`), err
	})
	if err != nil {
		t.Fatal(err)
	}
	address := []string{"--coordinator", s.Coordinators[0].Address, "--token", s.AdminToken}
	said := run(t, append([]string{"explain", receipt}, address...)...)
	for _, want := range []string{"genuine. refused: ceiling_reached", "in us-east by ", "cause      local_ceiling", "explained", "limit 0", "running", "do not:"} {
		if !strings.Contains(said, want) {
			t.Errorf("explain does not say %q: %s", want, said)
		}
	}
	for _, secret := range []string{s.AdminToken, s.Gateways[stage.Edge1]} {
		if strings.Contains(said+receipt, secret) {
			t.Error("a secret is told")
		}
	}
	if said := run(t, append([]string{"explain", receipt[:len(receipt)-5]}, address...)...); !strings.Contains(said, "not genuine: cut") {
		t.Errorf("a cut receipt: %s", said)
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/explained", Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
		t.Error(err)
	}
}
