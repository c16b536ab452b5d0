package cli

import (
	"os"
	"path/filepath"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// If a torn write took the memory with it, a crash would freeze the whole deployment; if two processes shared one, each
// would take the other's mark for lost history.
func TestStateDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	open := func() *stateDir {
		t.Helper()
		s, err := openStateDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	if r, err := s.Load(t.Context()); err != nil || r.Writer != "" {
		t.Fatalf("an empty folder remembers %+v, %v", r, err)
	}
	for n := range int64(5) {
		r := coordinator.Remembered{Format: 1, Writer: "w", Left: allocation.Mark{Writer: "w", Count: n, Value: "v"}}
		if err := s.Save(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := openStateDir(dir); err == nil {
		t.Error("two processes share the folder")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open()
	if r, err := s.Load(t.Context()); err != nil || r.Left.Count != 4 {
		t.Errorf("it remembers %+v, %v", r, err)
	}
	newest := s.files[s.sequence%2].Name()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(newest, 20); err != nil {
		t.Fatal(err)
	}
	s = open()
	defer s.Close()
	if r, err := s.Load(t.Context()); err != nil || r.Left.Count != 3 {
		t.Errorf("after a torn write it remembers %+v, %v", r, err)
	}
}
