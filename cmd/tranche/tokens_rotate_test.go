package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"tranche/cmd/tranche/internal/stage"
)

// Every token is rotated under load, and no call is refused: a gateway's, the region's, and the admin's.
func TestTokensRotateUnderLoad(t *testing.T) {
	v := openVault(t)
	old, next := v.Gateways[stage.Edge1], "the-next-token-of-edge-1-0123456789"
	v.secrets = append(v.secrets, next)
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var mu sync.Mutex
	asked, token, wrong := 0, old, []string{}
	for range 4 {
		load.Go(func() {
			for ctx.Err() == nil {
				mu.Lock()
				secret := token
				mu.Unlock()
				id := fmt.Sprint("load-", serial.Add(1))
				status, text := v.decided("us-east", secret, "/v1/admit", id, `{"labels":{"tenant":"acme"},"deadline_ms":10000}`)
				mu.Lock()
				asked++
				if status != 200 && status != 429 {
					wrong = append(wrong, fmt.Sprint(status, " ", text))
				}
				mu.Unlock()
			}
		})
	}
	more := func() {
		t.Helper()
		mu.Lock()
		from := asked
		mu.Unlock()
		err := stage.Until(t.Context(), progressWait, "the load goes on", func() (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			return asked >= from+50, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	more()
	v.tokens("us-east", old, next)
	v.taken("us-east", next, true)
	mu.Lock()
	token = next
	mu.Unlock()
	more()
	v.tokens("us-east", next)
	v.taken("us-east", old, false)
	more()

	// The region's token: its node reads the file again, and the old one ends without an overlap.
	file := filepath.Join(v.Dir, "us-east.token")
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "token")
	v.run(0, "tokens", "rotate", "region:us-east", "--overlap", "1h", "--token-file", made)
	text, err := os.ReadFile(made)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	v.secrets = append(v.secrets, strings.TrimSpace(string(before)), strings.TrimSpace(string(text)))
	_, printed := v.key("keys", "issue", "probe", "--tenant", "acme", "--capability", "*")
	v.contains(printed, "us-east: enforced after") // it is in contact
	// The admin's: the next one is taken beside the old one, and then instead of it.
	admin := filepath.Join(t.TempDir(), "admin")
	v.run(0, "tokens", "rotate", "first", "--overlap", "1h", "--token-file", admin)
	text, err = os.ReadFile(admin)
	if err != nil {
		t.Fatal(err)
	}
	v.run(0, "status")
	v.AdminToken = strings.TrimSpace(string(text))
	v.secrets = append(v.secrets, v.AdminToken)
	v.run(0, "status")
	more()
	stop()
	load.Wait()
	if len(wrong) > 0 {
		t.Errorf("%d of %d calls were refused: %s", len(wrong), asked, wrong[0])
	}
	t.Logf("%d calls in the rotations, none was refused", asked)
	v.unseen()
}

// taken waits until a node takes a token, or takes it no more.
func (v *vault) taken(region, token string, want bool) {
	v.t.Helper()
	err := stage.Until(v.t.Context(), progressWait, fmt.Sprintf("%s takes the token: %v", region, want), func() (bool, error) {
		status, _ := v.ask(region, token, "/v1/match", "x", `{"labels":{"tenant":"acme"}}`)
		return (status == 200) == want && status != 0, nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
}
