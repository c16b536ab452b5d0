package ndjson

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func day(d int) func() time.Time {
	return func() time.Time { return time.Date(2026, 5, d, 10, 0, 0, 0, time.UTC) }
}

func readAll(t *testing.T, folder string) (lines []string, broken int) {
	t.Helper()
	broken, err := Read(folder, func(line []byte) bool {
		if line[0] != '{' || line[len(line)-1] != '}' {
			return false
		}
		lines = append(lines, string(line))
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, broken
}

// What was appended is read back in order, over several days and processes.
func TestAppendAndRead(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "closings")
	for d, lines := range [][]string{{`{"a":1}`, `{"a":2}`}, {`{"a":3}`}, {`{"a":4}`}} {
		a, err := Open(folder, day(4+d/2))
		if err != nil {
			t.Fatal(err)
		}
		var raw [][]byte
		for _, l := range lines {
			raw = append(raw, []byte(l))
		}
		if err := a.Append(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
	}
	if got, broken := readAll(t, folder); broken != 0 || !slices.Equal(got, []string{`{"a":1}`, `{"a":2}`, `{"a":3}`, `{"a":4}`}) {
		t.Errorf("%v, %d broken", got, broken)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "*")); len(files) != 2 {
		t.Errorf("%v", files)
	}
}

// A process that ended in the middle of a line must not spoil the next one.
func TestALineThatIsCutOff(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "closings-2026-05-04.ndjson"), []byte("{\"a\":1}\n{\"a\":"), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := Open(folder, day(4))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Append(t.Context(), [][]byte{[]byte(`{"a":3}`)}); err != nil {
		t.Fatal(err)
	}
	if got, broken := readAll(t, folder); broken != 1 || !slices.Equal(got, []string{`{"a":1}`, `{"a":3}`}) {
		t.Errorf("%v, %d broken", got, broken)
	}
	if err := a.Append(t.Context(), [][]byte{[]byte("{\n}")}); err == nil {
		t.Error("a line with an end in it was taken")
	}
}

// A folder that cannot be written to is told at the start, not when the first record is a day old.
func TestAFolderThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(file, "closings"), day(4)); err == nil {
		t.Error("it was opened")
	}
	if _, err := Read(filepath.Join(file, "closings"), func([]byte) bool { return true }); err == nil {
		t.Error("it was read")
	}
}
