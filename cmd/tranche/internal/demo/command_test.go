package demo

import (
	"os"
	"path/filepath"
	"testing"
)

// Whoever came by `go run` has no `tranche` on the path: a command that cannot be typed is the end of playing with it.
func TestCommandCanBeTyped(t *testing.T) {
	dir := t.TempDir()
	self, link := filepath.Join(dir, "tranche"), filepath.Join(dir, "bin-tranche")
	if err := os.WriteFile(self, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ self, found, want string }{
		{self, link, "tranche"},
		{self, "", self},
		{self, "/elsewhere/tranche", self},
		{"/a b/it's", "", `'/a b/it'\''s'`},
	} {
		if got := called(c.self, c.found); got != c.want {
			t.Errorf("%s, found %q: %s, want %s", c.self, c.found, got, c.want)
		}
	}
}
