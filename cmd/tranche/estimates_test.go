package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// Reservations that a real node settled come to a report and a suggestion through the coordinator, and what is still open
// is told with the most that it may come to.
func testEstimates(t *testing.T, s *stage.Stage) {
	admin, err := s.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Gateway(stage.Edge1, s.Regions["us-east"].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	budget := map[string]any{
		"budget": "estimated", "unit": "tokens", "limit": 1_000_000, "window": map[string]string{"calendar": "year"},
		"match": map[string]string{"tenant": "estimated", "capability": "model"}, "allocation": map[string]string{"policy": "home", "region": "us-east"},
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: budget}, nil); err != nil {
		t.Fatal(err)
	}
	call := func(path string, body map[string]any) int {
		for tries := 1; ; tries++ {
			status, _, _, err := node.Send(t.Context(), api.Call{Method: http.MethodPost, Path: path, Body: body})
			if err != nil {
				t.Fatal(err)
			}
			if status != http.StatusServiceUnavailable || tries == truthTries {
				return status
			}
			<-time.After(retryEvery) // nobody has decided yet: the same id again
		}
	}
	reserve := func(id string) int {
		return call("/v1/admit", map[string]any{
			"op": "reserve", "labels": map[string]string{"tenant": "estimated", "capability": "model"}, "costs": map[string]int64{"tokens": 100}, "admission_id": id, "deadline_ms": 10_000,
		})
	}
	err = stage.Until(t.Context(), 20*time.Second, "a share", func() (bool, error) { return reserve("open") == http.StatusOK, nil })
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		id := fmt.Sprint("settled-", i)
		settled := map[string]any{"tenant": "estimated", "admission_id": id, "costs": map[string]int64{"tokens": 190}, "deadline_ms": 10_000}
		if status, then := reserve(id), call("/v1/settle", settled); status != http.StatusOK || then != http.StatusOK {
			t.Fatalf("%s: %d, then %d", id, status, then)
		}
	}
	address := []string{"--coordinator", s.Coordinators[0].Address, "--token", s.AdminToken}
	var answer coordinator.EstimatesAnswer
	err = stage.Until(t.Context(), 30*time.Second, "the report", func() (bool, error) {
		answer = coordinator.EstimatesAnswer{}
		if err := json.Unmarshal([]byte(run(t, append([]string{"estimates", "--json"}, address...)...)), &answer); err != nil {
			return false, err
		}
		return len(answer.Estimates) == 1 && answer.Estimates[0].Settled == 100 && len(answer.InFlight) == 1 && answer.InFlight[0].Reserved == 100, nil
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, answer)
	}
	e, f := answer.Estimates[0], answer.InFlight[0]
	if e.Capability != "model" || e.BiasPercent != 90 || e.Suggestion == nil || e.Suggestion.Factor != 2 || e.Suggestion.Capped || f.AtWorst == nil || *f.AtWorst != 90 {
		t.Errorf("%+v, %+v", e, f)
	}
	said := run(t, append([]string{"estimates"}, address...)...)
	for _, want := range []string{"model", "+90.0 %", "multiply costs.tokens", "from 100 on average to 200", "estimated", "in flight", "always taken"} {
		if !strings.Contains(said, want) {
			t.Errorf("estimates does not say %q: %s", want, said)
		}
	}
	if call("/v1/release", map[string]any{"tenant": "estimated", "admission_id": "open"}) != http.StatusOK {
		t.Error("the open one is not released")
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/estimated", Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
		t.Error(err)
	}
}
