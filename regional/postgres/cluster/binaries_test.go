//go:build unix

package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// install makes a folder with these programs in it.
func install(t *testing.T, names ...string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// If this failed, a machine with a client package only, or with several servers,
// would start the wrong Postgres or none.
func TestFindOrder(t *testing.T) {
	whole := func() string { return install(t, "postgres", "initdb") }
	chosen, configured, onPath, packaged := whole(), whole(), whole(), whole()
	clientOnly := install(t, "psql")
	linked := t.TempDir()
	if err := os.Symlink(filepath.Join(packaged, "postgres"), filepath.Join(linked, "postgres")); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name                     string
		chosen, configured, path string
		packaged                 string
		want                     string
	}{
		{"chosen goes first", chosen, configured, onPath, packaged, chosen},
		{"then pg_config", "", configured, onPath, packaged, configured},
		{"pg_config of a client package", "", clientOnly, onPath, packaged, onPath},
		{"then PATH", "", "", onPath, packaged, onPath},
		{"a lone link on PATH", "", "", linked, "", packaged},
		{"then packages", "", "", clientOnly, packaged, packaged},
		{"nothing", "", "", clientOnly, clientOnly, ""},
		{"a wrong choice is not passed over", clientOnly, configured, onPath, packaged, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := find(places{
				chosen:   test.chosen,
				pgConfig: func() string { return test.configured },
				path:     []string{test.path},
				patterns: []string{"packages"},
				glob:     func(string) []string { return []string{test.packaged} },
			})
			if test.want == "" {
				if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "apt-get install postgresql") {
					t.Fatalf("got %v, %v; want an error that says what to install", got, err)
				}
				return
			}
			if err != nil || got.Dir != test.want {
				t.Fatalf("got %q, %v; want %q", got.Dir, err, test.want)
			}
		})
	}
}

// If this failed, 9.6 would win over 15, as it does in the order of letters.
func TestHighestVersionFirst(t *testing.T) {
	got := highestFirst([]string{"/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/17/bin"})
	want := []string{"/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/9.6/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// If this failed, a setting could break out of its line, or give up durability
// unnoticed.
func TestSettingsThatAreRefused(t *testing.T) {
	for name, value := range map[string]string{
		"fsync":              "off",
		"full_page_writes":   "off",
		"synchronous_commit": "local",
		"port":               "1",
		"Work_mem":           "1MB",
		"work_mem":           "1MB\nfsync = off",
		"work_mem = 1 #":     "x",
	} {
		if err := checkSettings(map[string]string{name: value}); err == nil {
			t.Errorf("%s = %q was taken", name, value)
		}
	}
	if err := checkSettings(map[string]string{"work_mem": "1MB", "synchronous_commit": "on"}); err != nil {
		t.Error(err)
	}
	text := settingsText(1234, map[string]string{"search_path": "a'b"})
	for _, line := range []string{"search_path = 'a''b'\n", "port = '1234'\n", "fsync = 'on'\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("%q is missing in:\n%s", line, text)
		}
	}
}
