package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tranche/regional/envoy"
)

// printed is a block of a page that a command prints: the command stands in a comment before it.
var printed = regexp.MustCompile("(?ms)^<!-- (tranche gateway-config [^\n]*) -->\n```(\\w+)\n(.*?)^```$")

// What a page shows of a gateway's configuration is what the command prints, which the tests try on the gateway itself.
func TestDocsGateways(t *testing.T) {
	for _, v := range []string{"TRANCHE_NODE", "TRANCHE_NODE_TOKEN", "TRANCHE_CA", "TRANCHE_CONFIG"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	const page = docs + "gateways.md"
	text, blocks := read(t, page), map[string]bool{}
	want := printed.ReplaceAllStringFunc(text, func(block string) string {
		m := printed.FindStringSubmatch(block)
		status, output := inProcess(strings.Fields(m[1])[1:]...)
		if status != 0 {
			t.Errorf("%s: %s", m[1], output)
			return block
		}
		blocks[strings.Fields(m[1])[2]] = true
		return "<!-- " + m[1] + " -->\n```" + m[2] + "\n" + output + "```"
	})
	if *update {
		if err := os.WriteFile(filepath.Join(checkout, page), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Error("gateways.md shows other blocks than the command prints; run: go test ./cmd/tranche -run TestDocs -update")
	}
	for _, gateway := range []string{"envoy", "nginx", "haproxy", "caddy", "traefik"} {
		if !blocks[gateway] {
			t.Errorf("gateways.md has no block for %s", gateway)
		}
	}
}

// shownElsewhere says whether a block of YAML is no budget, and holds it against what it is.
func shownElsewhere(t *testing.T, name, text string) bool {
	t.Helper()
	switch first, _, _ := strings.Cut(text, "\n"); {
	case strings.HasPrefix(first, "# mapping"):
		if _, err := envoy.ParseMapping(name, []byte(text)); err != nil {
			t.Error(err)
		}
		return true
	case strings.HasPrefix(first, "# Envoy asks"), strings.HasPrefix(first, "# Traefik asks"):
		return true // held against the command, and that against the gateway's own types
	}
	return false
}
