//go:build unix

package client_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tranche/regional/postgres/cluster"
)

const guide = "../../deploy/docs/client.md"

// blocks are the module and the program of the guide.
var blocks = regexp.MustCompile("(?ms)^```(?:go)?\n(module .*?|// A service.*?)^```$")

// If this failed, who follows the guide would have a program that does not compile, or one that serves what is refused.
func TestGuideIsAProgram(t *testing.T) {
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	found := blocks.FindAllStringSubmatch(string(text), -1)
	if len(found) != 2 {
		t.Fatalf("the guide has %d of a go.mod and a program", len(found))
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	free, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address, dir := fmt.Sprint("127.0.0.1:", free), t.TempDir()
	const here, port = "=> ../tranche\n", "127.0.0.1:8090"
	if !strings.Contains(found[0][1], here) || !strings.Contains(found[1][1], port) {
		t.Fatal("the guide says another place or port than this test replaces")
	}
	for name, content := range map[string]string{
		"go.mod": strings.Replace(found[0][1], here, "=> "+root+"\n", 1), "main.go": strings.Replace(found[1][1], port, address, 1),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", "shop", ".")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off", "GOPROXY=off")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	var said bytes.Buffer
	shop := exec.Command(filepath.Join(dir, "shop"))
	shop.Env = append(os.Environ(), "TRANCHE_NODE="+nodeURL, "TRANCHE_NODE_TOKEN="+token)
	shop.Stdout, shop.Stderr = &said, &said
	if err := shop.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = shop.Process.Kill()
		_ = shop.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	}()
	for tenant, want := range map[string]int{"acme": http.StatusOK, "nobody": http.StatusUnprocessableEntity} {
		if got := asks(t, "http://"+address+"/chat", tenant); got != want {
			t.Errorf("%s: %d, want %d", tenant, got, want)
		}
	}
}

// asks waits until the program listens.
func asks(t *testing.T, url, tenant string) int {
	t.Helper()
	tick, until := time.NewTicker(20*time.Millisecond), time.Now().Add(20*time.Second)
	defer tick.Stop()
	for {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Tenant", tenant)
		answer, err := http.DefaultClient.Do(r)
		if err == nil {
			answer.Body.Close()
			return answer.StatusCode
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
		<-tick.C
	}
}
