//go:build unix

package client_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const examples = "../../deploy/examples/"

// If this failed, the examples of other languages would not do what they say: admit once when an answer is lost, and
// refuse when nobody decides.
func TestExamplesOfOtherLanguages(t *testing.T) {
	python, node := "python3", "node"
	for name, command := range map[string][]string{"python": {python, examples + "admit.py"}, "typescript": {node, plainJavaScript(t)}} {
		t.Run(name, func(t *testing.T) {
			interpreter, err := exec.LookPath(command[0])
			if err != nil {
				t.Logf("NOT RUN: %s is not installed here", command[0])
				return
			}
			lossy := newHop(t, loses, through, loses)
			before := spent(t, "acme")
			checkExample(t, 0, "served in us-east, settled", interpreter, command[1], lossy.URL, "acme")
			if n := spent(t, "acme") - before; n != 1 {
				t.Errorf("%d charged, want 1", n)
			}
			if calls := lossy.calls(); len(calls) != 4 || calls[0].id != calls[3].id {
				t.Errorf("calls %v", calls)
			}
			checkExample(t, 1, "refused: no_budget", interpreter, command[1], nodeURL, "nobody")
			checkExample(t, 1, "refused: of_the_future", interpreter, command[1], newHop(t, says(200, `{"decision":"admitted","reason":"of_the_future"}`)).URL, "acme")
			checkExample(t, 1, "usage: ", interpreter, command[1])
			checkExample(t, 1, "usage: ", interpreter, command[1], "acme", nodeURL)
			away := newHop(t, slicesRepeat(says(503, stopped), 5)...)
			checkExample(t, 2, "nobody decided", interpreter, command[1], away.URL, "acme")
			if n := len(away.calls()); n != 5 {
				t.Errorf("%d tries, want 5", n)
			}
		})
	}
}

func checkExample(t *testing.T, status int, says string, command ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), command[0], command[1:]...)
	c.Env = append(os.Environ(), "TRANCHE_NODE_TOKEN="+token)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var ended *exec.ExitError
	got := 0
	if errors.As(err, &ended) {
		got = ended.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if got != status || !strings.Contains(out.String(), says) {
		t.Errorf("ended with status %d, want %d and %q: %s", got, status, says, out.String())
	}
}

// types are the forms of types in the example: all of them can be erased, as Node.js itself does from 22.18 on.
var types = regexp.MustCompile(`(?m)^type .*;$|: (?:Promise<[^>]*>|Decided \| null|d is Decided|string|number|object|Answer)`)

// plainJavaScript is the file of the TypeScript example; for an earlier Node.js, of what is left without its types.
func plainJavaScript(t *testing.T) string {
	t.Helper()
	source, err := filepath.Abs(examples + "admit.ts")
	if err != nil {
		t.Fatal(err)
	}
	if erases, err := exec.Command("node", "-p", "Boolean(process.features.typescript)").Output(); err == nil && strings.TrimSpace(string(erases)) == "true" {
		return source
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(t.TempDir(), "admit.mjs")
	if err := os.WriteFile(plain, types.ReplaceAll(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
	return plain
}
