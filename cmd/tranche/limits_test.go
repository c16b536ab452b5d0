package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional/postgres/cluster/clustertest"
)

// Whoever sends too much at once must hear which bound it is, as the commands tell it, and nothing may be charged or
// changed.
func testTooMuch(t *testing.T, s *stage.Stage) {
	admin, err := s.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	node, err := s.Gateway(stage.Edge1, s.Regions["us-east"].Nodes[0])
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("x", 1<<20)
	items := make([]map[string]any, 1001)
	for i := range items {
		items[i] = map[string]any{"admission_id": fmt.Sprint("limits-", i), "labels": map[string]string{"tenant": "limits"}}
	}
	for name, c := range map[string]struct {
		client *api.Client
		call   api.Call
		status int
		want   string
	}{
		"body to the coordinator": {admin, api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: map[string]string{"budget": long}}, 413, "more than 1048576 bytes"},
		"body to a node":          {node, api.Call{Method: http.MethodPost, Path: "/v1/match", Body: map[string]any{"labels": map[string]string{"tenant": long}}}, 413, "1 MiB"},
		"batch":                   {node, api.Call{Method: http.MethodPost, Path: "/v1/admit/batch", Body: map[string]any{"items": items}}, 400, "1000"},
		"label":                   {node, api.Call{Method: http.MethodPost, Path: "/v1/admit", Body: map[string]any{"labels": map[string]string{"tenant": long[:300]}}}, 400, "255"},
	} {
		_, err := c.client.Do(t.Context(), c.call, nil)
		problem, ok := err.(*api.Error)
		if !ok || problem.Status != c.status || !problem.BadInput() || !strings.Contains(problem.Error(), c.want) {
			t.Errorf("%s: want %d and %q, got %v", name, c.status, c.want, err)
		}
	}
}

// A node over a database that would forget commits, with the token of another deployment, must not look healthy: its log
// names the setting, it charges nothing, and status names both.
func testUnfitNode(t *testing.T, s *stage.Stage) {
	region := s.Regions["us-east"]
	database, err := region.Postgres.CreateDatabase(t.Context(), "unfit")
	if err != nil {
		t.Fatal(err)
	}
	dir, address := clustertest.Dir(t), freeAddress(t)
	log := filepath.Join(dir, "node.log")
	env := []string{
		"TRANCHE_POSTGRES_URL=" + database + "&synchronous_commit=off",
		"TRANCHE_REGION_TOKEN=tranche_region_0123456789abcdef_us-east_0123456789012345678901234567890123456789",
	}
	n, err := process.Start("node", log, env, "node", "--listen", address, "--coordinator", s.Coordinators[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Kill)
	said := ""
	err = stage.Until(t.Context(), 20*time.Second, "it says what is wrong", func() (bool, error) {
		said = run(t, "status", "--node", "http://"+address)
		return strings.Contains(said, "does not know this region's token") && strings.Contains(said, "unsafe_settings synchronous_commit=off"), n.Failure()
	})
	if err != nil || !strings.Contains(said, "turn that setting on") || !strings.Contains(said, "somebody should look") {
		t.Errorf("%v; status says: %s", err, said)
	}
	if !strings.Contains(n.Tail(), "nothing is admitted") || !strings.Contains(n.Tail(), "setting=synchronous_commit=off") {
		t.Errorf("its log does not name the setting%s", n.Tail())
	}
	if said := run(t, "check", "tenant=unfit", "--spend", "--id", "unfit-1", "--node", "http://"+address); !strings.Contains(said, "refused in us-east: unsafe_settings (503)") {
		t.Errorf("asked to spend: %s", said)
	}
	if status, _, body, err := anonymous(t, address).Send(t.Context(), api.Call{Method: http.MethodGet, Path: "/readyz"}); err != nil || status != 503 ||
		!strings.Contains(string(body), "does not know this region's token") {
		t.Errorf("/readyz: %d %s %v", status, body, err)
	}
}

func anonymous(t *testing.T, address string) *api.Client {
	t.Helper()
	c, err := api.New("node", "http://"+address, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}
