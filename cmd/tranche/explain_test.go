package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
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
		"budget": "explained", "unit": "requests", "limit": 0, "window": map[string]string{"calendar": "year"},
		"match": map[string]string{"tenant": "explained"}, "allocation": map[string]string{"policy": "home", "region": "us-east"},
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: budget}, nil); err != nil {
		t.Fatal(err)
	}
	receipt, secrets := "", []string{s.AdminToken, s.Gateways[stage.Edge1]}
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
	said += testRecord(t, s, receipt, said)
	for _, secret := range secrets {
		if strings.Contains(said+receipt, secret) {
			t.Error("a secret is told")
		}
	}
	if said := run(t, append([]string{"explain", receipt[:len(receipt)-5]}, address...)...); !strings.Contains(said, "not genuine: cut") {
		t.Errorf("a cut receipt: %s", said)
	}
	testTooLarge(t, s, admin, node, address)
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/explained", Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
		t.Error(err)
	}
}

// testTooLarge: a request that is larger than the whole fixed share of its region is told so by a real node, and not to come back.
func testTooLarge(t *testing.T, s *stage.Stage, admin, node *api.Client, address []string) {
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: fixed("too-large", 10, "large", allocation.Window{Calendar: "year"})}, nil); err != nil {
		t.Fatal(err)
	}
	ask := func(units int) (status int, header http.Header, body string) {
		t.Helper()
		for range truthTries {
			var text []byte
			var err error
			status, header, text, err = node.Send(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/admit", Body: map[string]any{
				"labels": map[string]string{"tenant": "large"}, "costs": map[string]int{"requests": units}, "admission_id": fmt.Sprint("large-", units),
			}})
			if err != nil {
				t.Fatal(err)
			}
			if body = string(text); !undecided.MatchString(body) {
				break
			}
			<-time.After(retryEvery)
		}
		return status, header, body
	}
	err := stage.Until(t.Context(), 20*time.Second, "the share is there", func() (bool, error) {
		status, _, _ := ask(1)
		return status == http.StatusOK, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	status, header, body := ask(7) // of 6
	if status != http.StatusTooManyRequests || header.Get("Retry-After") != "" || !strings.Contains(body, `"retryable":false,"retry":"never"`) || !strings.Contains(body, "whole share of too-large is 6 requests of each period, of 10 in all") {
		t.Errorf("7 of a share of 6: %d %v %s", status, header, body)
	}
	receipt := header.Get("Tranche-Receipt")
	if said := run(t, append([]string{"explain", receipt}, address...)...); !strings.Contains(said, "6 of 7") {
		t.Errorf("explain: %s", said)
	}
	if status, header, body = ask(6); status != http.StatusTooManyRequests || header.Get("Retry-After") == "" || !strings.Contains(body, `"retryable":true,"retry":"soon"`) {
		t.Errorf("6 of a share of 6, of which 1 is spent: %d %v %s", status, header, body)
	}
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/too-large", Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
		t.Error(err)
	}
}

// testRecord finds the refusal that a receipt is of in the region's sample, by its decision's id, and decides it again:
// through the commands, against a real node and its database. It returns all that they said.
func testRecord(t *testing.T, s *stage.Stage, receipt, explained string) (all string) {
	found := regexp.MustCompile(`decision   ([0-9a-f]{16}),`).FindStringSubmatch(explained)
	if found == nil {
		t.Fatalf("explain names no decision: %s", explained)
	}
	decision, ops := found[1], "operator-secret-0123456789"
	file := filepath.Join(s.Dir, "us-east.gateways")
	tokens, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(tokens, "ops "+ops+" operator\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	node := []string{"--node", s.Regions["us-east"].Nodes[0].Address, "--node-token", ops}
	ask := func(want int, args ...string) string {
		status, said := inProcess(append(args, node...)...)
		if all += said; status != want {
			t.Fatalf("%v ended with %d, not %d: %s", args, status, want, said)
		}
		return said
	}
	err = stage.Until(t.Context(), 30*time.Second, "the record", func() (bool, error) {
		status, said := inProcess(append([]string{"explain", decision}, node...)...)
		all += said
		return status == 0 && strings.Contains(said, "replay     same") && strings.Contains(said, "recorded. refused: ceiling_reached") && strings.Contains(said, "admission id explained-1"), nil
	})
	if err != nil {
		t.Fatalf("%v: %s", err, all)
	}
	if said := ask(0, "explain", receipt, "--replay", "--coordinator", s.Coordinators[0].Address, "--token", s.AdminToken); !strings.Contains(said, "genuine") || !strings.Contains(said, "replay     same") {
		t.Errorf("a receipt's record: %s", said)
	}
	list := ask(0, "refusals", "find", "--tenant", "explained", "--reason", "ceiling_reached", "--since", "1h", "--json")
	if !strings.Contains(list, decision) || !strings.Contains(list, `"limit": 0`) {
		t.Errorf("find: %s", list)
	}
	kept := filepath.Join(t.TempDir(), "records.json")
	for text, status := range map[string]int{list: 0, strings.ReplaceAll(list, `"limit": 0`, `"limit": 7`): 3} {
		if err := os.WriteFile(kept, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		said := ask(status, "refusals", "replay", kept, "--json")
		var answers []struct{ Replay string }
		if err := json.Unmarshal([]byte(said), &answers); err != nil || len(answers) == 0 || (answers[0].Replay == "same") != (status == 0) {
			t.Errorf("replay: %s, %v", said, err)
		}
	}
	if said := ask(0, "refusals", "counts", "--by", "tenant,reason", "--every", "1h"); !strings.Contains(said, "explained") || !strings.Contains(said, "ceiling_reached") {
		t.Errorf("counts: %s", said)
	}
	if said := ask(0, "refusals", "keep", "explained", "--for", "1h", "--by", "kim"); !strings.Contains(said, "kim (token ops)") {
		t.Errorf("keep: %s", said)
	}
	ask(2, "refusals", "keep", "explained")
	ask(2, "refusals", "counts", "--every", "90s")
	ask(1, "explain", strings.Repeat("0", 16))
	if status, said := inProcess("refusals", "find", "--node", s.Regions["us-east"].Nodes[0].Address, "--node-token", s.Gateways[stage.Edge1]); status == 0 || !strings.Contains(said, "operator") {
		t.Errorf("a gateway's token lists refusals: %d %s", status, said)
	}
	if strings.Contains(all, ops) {
		t.Error("the operator's token is told")
	}
	return all
}
