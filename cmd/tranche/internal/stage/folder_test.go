package stage

import (
	"os"
	"path/filepath"
	"testing"
)

// A demo that was killed must not fill the disk, and the next one must not take a folder from one that still runs.
func TestSweepRemovesOnlyWhatIsDead(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	alive, owner, err := makeFolder()
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	dead, killed, err := makeFolder()
	if err != nil {
		t.Fatal(err)
	}
	killed.Close() // as its end does
	if err := os.MkdirAll(filepath.Join(dead, "us-east", "postgres"), 0o700); err != nil {
		t.Fatal(err)
	}
	nobodys := filepath.Join(os.TempDir(), folderPrefix+"x")
	others := filepath.Join(os.TempDir(), "other")
	starting := filepath.Join(os.TempDir(), folderPrefix+"y")
	for _, dir := range []string{nobodys, others, starting} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for dir, text := range map[string]string{others: "1\n", starting: ""} {
		if err := os.WriteFile(filepath.Join(dir, ownerFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	Sweep()
	for dir, want := range map[string]bool{alive: true, dead: false, nobodys: true, others: true, starting: true} {
		if _, err := os.Stat(dir); (err == nil) != want {
			t.Errorf("%s: is there: %v, want %v", dir, err == nil, want)
		}
	}
}
