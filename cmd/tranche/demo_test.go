package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/process"
	"tranche/cmd/tranche/internal/stage"
	"tranche/regional/postgres/cluster/clustertest"
)

// demo runs the demo as a process of its own, with a folder of its own for all that is temporary.
type demo struct {
	*process.Child
	dir, log string
}

func startDemo(t *testing.T, arguments ...string) demo {
	t.Helper()
	d := demo{dir: clustertest.Dir(t), log: filepath.Join(t.TempDir(), "demo.json")}
	t.Setenv("TMPDIR", d.dir)
	var err error
	if d.Child, err = process.Start("demo", d.log, nil, append([]string{"demo", "--json"}, arguments...)...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	return d
}

// steps are what it has told so far.
func (d demo) steps(t *testing.T) (names []string, last map[string]any) {
	t.Helper()
	file, err := os.Open(d.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var step map[string]any
		if json.Unmarshal(lines.Bytes(), &step) == nil { // progress goes to the same file
			names, last = append(names, step["step"].(string)), step
		}
	}
	return names, last
}

// nothingLeft checks that no folder and no process of it remains.
func (d demo) nothingLeft(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(d.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		t.Errorf("the demo left %s", entry.Name())
	}
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline") // none where there is no /proc
	for _, p := range processes {
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), d.dir) {
			t.Errorf("the demo left a process: %s", strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
}

// tellsStory runs a scenario: every step must be as promised, and nothing may be left.
func tellsStory(t *testing.T, scenario string, want ...string) {
	t.Helper()
	d := startDemo(t, "--scenario", scenario)
	<-d.Ended()
	names, last := d.steps(t)
	if want = append(want, "verify", "done"); !slices.Equal(names, want) {
		t.Errorf("steps %v, want %v%s", names, want, d.Tail())
	}
	if last["overspent"] != 0.0 || last["scenario"] != scenario {
		t.Errorf("the last line is %v", last)
	}
	d.nothingLeft(t)
}

// Whoever reads what becomes of a lost region's permits must be able to see it happen.
func TestDemoStranded(t *testing.T) {
	tellsStory(t, "stranded", "share", "whatif", "stranded", "refused", "alone", "returned", "heard")
}

// Whoever tries the demo and presses Ctrl-C in the middle of it must not have to clean up after it.
func TestDemoLeavesNothingWhenInterrupted(t *testing.T) {
	d := startDemo(t)
	err := stage.Until(t.Context(), time.Minute, "the demo has told its first step", func() (bool, error) {
		if err := d.Failure(); err != nil {
			return false, stage.Fatal{Err: err}
		}
		names, _ := d.steps(t)
		return len(names) > 0, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(d.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-d.Ended()
	if d.Failure() == nil || !strings.Contains(d.Tail(), "the demo was ended") {
		t.Errorf("it should have failed, and said so%s", d.Tail())
	}
	d.nothingLeft(t)
}

// tranche demo | head: who looks at its first lines only must not have to clean up after it either.
func TestDemoLeavesNothingWhenNobodyReads(t *testing.T) {
	d := demo{dir: clustertest.Dir(t)}
	t.Setenv("TMPDIR", d.dir)
	cmd, err := process.Command(nil, "demo")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(output)
	for lines.Scan() && !strings.Contains(lines.Text(), "starting etcd") {
	}
	output.Close()
	if err := cmd.Wait(); err == nil || !strings.Contains(said.String(), "nobody reads its output any more") {
		t.Errorf("%v: %s", err, said.String())
	}
	d.nothingLeft(t)
}
