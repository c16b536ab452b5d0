package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

func write(t *testing.T, text string, mode os.FileMode) (home string) {
	t.Helper()
	home = t.TempDir()
	folder := filepath.Join(home, ".config", "tranche")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "config.yaml"), []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return home
}

// A command that spoke to another coordinator than the one that was named last would change the wrong budgets.
func TestPrecedence(t *testing.T) {
	home := write(t, "coordinator: https://file:1\ntoken: from-file\nnode: https://file:2\n", 0o600)
	s, err := Load(map[string]string{"coordinator": "https://flag:1"}, env("HOME", home, "TRANCHE_COORDINATOR", "https://env:1", "TRANCHE_NODE", "https://env:2"))
	if err != nil {
		t.Fatal(err)
	}
	if s.Coordinator != "https://flag:1" || s.Node != "https://env:2" || s.Token != "from-file" {
		t.Errorf("%+v", s)
	}
	s, err = Load(nil, env())
	if err != nil || s.Coordinator != DefaultCoordinator || s.Node != DefaultNode {
		t.Errorf("without anything: %+v, %v", s, err)
	}
}

// Each fault of a configuration is told with what to do, and nothing is done.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"unknown field":     {"coordinator: https://a:1\ncordinator: https://b:1\n", 0o600, "2 | cordinator"},
		"readable token":    {"token: secret\n", 0o644, "chmod 600"},
		"clear text":        {"coordinator: http://other.example:7070\n", 0o600, "use https"},
		"no address":        {"node: other.example\n", 0o600, "is not an address"},
		"not even yaml":     {"coordinator: [\n", 0o600, "config.yaml"},
		"node of a region":  {"nodes: {us-east: ftp://x}\n", 0o600, "nodes.us-east"},
		"token with spaces": {"token: a b\n", 0o600, "copy it again"},
	} {
		if _, err := Load(nil, env("HOME", write(t, c.text, c.mode))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want %q, got %v", name, c.want, err)
		}
	}
	if _, err := Load(map[string]string{"config": "/does/not/exist"}, env()); err == nil {
		t.Error("a configuration that was named and does not exist was passed over")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("coordinator: https://a:1\ntoken: x\nnodes: {a: https://b:1}\n"), uint32(0o600))
	f.Add([]byte("a: &b [*b]"), uint32(0o644))
	f.Fuzz(func(t *testing.T, text []byte, mode uint32) {
		s, err := parse("f", text, os.FileMode(mode))
		if err == nil && s.Token != "" && os.FileMode(mode).Perm()&0o077 != 0 {
			t.Error("a token was taken from a file that others may read")
		}
	})
}
