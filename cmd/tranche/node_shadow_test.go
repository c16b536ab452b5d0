package main

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
)

// If this failed, a node that is to watch only would stop traffic when nothing is there that it needs: no database, no
// coordinator, no token.
func TestShadowNodeWithoutAnything(t *testing.T) {
	t.Parallel()
	address := freeAddress(t)
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte("edge a-token-of-a-gateway\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	node, err := process.Start("node", filepath.Join(t.TempDir(), "log"), []string{"TRANCHE_REGION_TOKEN=tranche_region_d1_us-east_secret"},
		"node", "--shadow", "--listen", address, "--gateway-token-file", tokens,
		"--postgres-url", "postgres://nobody@127.0.0.1:1/none", "--coordinator", "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	defer node.Kill()
	body, status := "", 0
	err = stage.Until(context.Background(), 20*time.Second, "an answer", func() (bool, error) {
		r, err := http.Post("http://"+address+"/v1/admit", "application/json", strings.NewReader(`{"labels":{"tenant":"acme"}}`))
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		status, body = r.StatusCode, r.Header.Get("Tranche-Shadow")
		return true, nil
	})
	if err != nil || status != 200 || body != "would=token_missing" {
		t.Fatalf("%v: status %d, %s", err, status, body)
	}
	r, err := http.NewRequest("POST", "http://"+address+"/v1/admit", strings.NewReader(`{"labels":{"tenant":"acme"}}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer a-token-of-a-gateway")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Admission-Id", "one")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if h := answer.Header.Get("Tranche-Shadow"); answer.StatusCode != 200 || h != "would=database_unavailable" {
		t.Errorf("status %d, %s", answer.StatusCode, h)
	}
	// It stays in service, and whoever looks sees that it lets everything through, and why.
	ready, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(ready.Body)
	ready.Body.Close()
	if ready.StatusCode != 200 || !strings.Contains(string(text), `"shadow":true`) || !strings.Contains(string(text), "everything is let through") {
		t.Errorf("/readyz: %d %s", ready.StatusCode, text)
	}
	said := run(t, "status", "--node", "http://"+address, "--node-token", "a-token-of-a-gateway")
	if !strings.Contains(said, "yes, in shadow: it refuses nobody") || !strings.Contains(said, "everything is let through") || strings.Contains(said, "admits nothing") {
		t.Errorf("status says: %s", said)
	}
}
