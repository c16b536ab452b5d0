package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/stage"
)

const policyBudgets = `
budget: model
unit: requests
limit: 100
counted: shared
protected: 10
window: {calendar: year}
match: {capability: model}
allocation: {policy: fixed, weights: {us-east: 1, eu-west: 1}}
ladder:
  interactive: {degrade_at: 80, route: small}
  batch: {defer_at: 75, retry_after: 20s}
---
budget: calls/{caller}
unit: requests
limit: 1000
counted: each caller
window: {calendar: year}
allocation: {policy: fixed, weights: {us-east: 1, eu-west: 1}}
`

// policyWorld is a deployment on real processes with those budgets.
type policyWorld struct {
	*vault
	asked int
}

// admit asks a region's node for an admission of an endpoint.
func (w *policyWorld) admit(region, op, priority string, cost int) (int, string) {
	w.t.Helper()
	w.asked++
	body := fmt.Sprintf(`{"op":%q,"labels":{"method":"POST","path":"/chat","caller":"kim"},"costs":{"requests":%d},"priority":%q}`, op, cost, priority)
	return w.decided(region, w.Gateways[stage.Edge1], "/v1/admit", fmt.Sprint("policy-", w.asked), body)
}

// until asks for a check until the answer has all words.
func (w *policyWorld) until(region, priority string, words ...string) string {
	w.t.Helper()
	deadline, tick := time.After(90*time.Second), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		_, text := w.admit(region, "check", priority, 1)
		lacks := ""
		for _, word := range words {
			if !strings.Contains(text, word) {
				lacks = word
			}
		}
		if lacks == "" {
			return text
		}
		select {
		case <-deadline:
			w.t.Fatalf("%s: the answer never has %s: %s", region, lacks, text)
		case <-tick.C:
		}
	}
}

// On real processes: a gateway that sends the endpoint only is charged to its capability's budgets in every region, under
// the table that an operator applied last; and the ladder goes by what is used of the whole budget, not of the region's share.
func TestPolicyOnRealProcesses(t *testing.T) {
	w := &policyWorld{vault: openVault(t)}
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if printed := w.run(0, "budgets", "apply", write("budgets.yaml", policyBudgets)); !strings.Contains(printed, "each caller") || !strings.Contains(printed, "shared") {
		t.Errorf("apply does not say whose the limits are: %s", printed)
	}
	routes := write("routes.yaml", "routes:\n  - {method: POST, path: /chat, capability: model}\n")
	if printed := w.run(0, "routes", "apply", "--dry-run", routes); !strings.Contains(printed, "nothing was changed") {
		t.Error(printed)
	}
	w.run(0, "routes", "apply", routes)
	if printed := w.run(0, "routes", "match", "POST", "/chat"); !strings.HasPrefix(printed, "model ") {
		t.Error(printed)
	}
	if printed := w.run(0, "routes", "list"); !strings.Contains(printed, "/chat") || !strings.Contains(printed, "version 1") {
		t.Error(printed)
	}
	w.run(2, "routes", "apply", write("wrong.yaml", "routes:\n  - {path: chat, capability: model}\n"))
	for region := range w.Regions {
		w.until(region, "interactive", `"budget":"calls/{caller}"`, `"budget":"model"`, `"protected":5`)
	}
	// All that is not protected in us-east, and less than two thirds of eu-west's share: 77 percent of the whole.
	for region, n := range map[string]int{"us-east": 45, "eu-west": 32} {
		if status, text := w.admit(region, "spend", "interactive", n); status != 200 || !strings.Contains(text, `"action":"preferred"`) {
			t.Fatalf("%s: %d %s", region, status, text)
		}
	}
	if status, text := w.admit("us-east", "spend", "batch", 1); status != 429 || !strings.Contains(text, "only_protected_left") {
		t.Errorf("%d %s", status, text)
	}
	w.until("eu-west", "batch", `"action":"deferred"`, `"used_percent":77`, `"of":"budget"`, `"age_ms":`, `"retry":"soon"`)
	if status, text := w.admit("eu-west", "spend", "interactive", 3); status != 200 || !strings.Contains(text, `"action":"preferred"`) {
		t.Fatalf("%d %s", status, text)
	}
	w.until("eu-west", "interactive", `"action":"degraded"`, `"route":"small"`, `"used_percent":80`, `"of":"budget"`)
	if status, text := w.admit("eu-west", "spend", "essential", 1); status != 403 || !strings.Contains(text, "scope_denied") {
		t.Errorf("%d %s", status, text)
	}
	w.run(0, "routes", "apply", write("moved.yaml", "routes:\n  - {path: /talk, capability: model}\n"))
	deadline, tick := time.After(60*time.Second), time.NewTicker(100*time.Millisecond)
	defer tick.Stop()
	for {
		if _, text := w.admit("us-east", "check", "batch", 1); !strings.Contains(text, `"budget":"model"`) && strings.Contains(text, `"budget":"calls/{caller}"`) {
			break
		}
		select {
		case <-deadline:
			t.Fatal("the endpoint that moved keeps its capability")
		case <-tick.C:
		}
	}
}
