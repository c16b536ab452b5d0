package cluster_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tranche/regional/postgres/cluster"
	"tranche/regional/postgres/cluster/clustertest"
)

// parentVariable makes the test binary start a cluster in the folder it names,
// and wait to be killed.
const parentVariable = "CLUSTER_TEST_PARENT_OF"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentVariable); dir != "" {
		beParent(dir)
	}
	clustertest.Main(m)
}

func beParent(dir string) {
	c, err := cluster.Start(context.Background(), cluster.Options{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("started", c.PID())
	select {}
}

// If this failed, tests would fill the disk and the process table.
func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	c := clustertest.Own(t, cluster.Options{})
	family := processesOf(t, c.Dir())
	if len(family) == 0 {
		t.Fatal("found no process of a running cluster: this test could not fail")
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := processesOf(t, c.Dir()); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := os.Stat(c.Dir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is left: %v", err)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Errorf("stop again: %v", err)
	}
}

// If this failed, every killed test run and demo would leave a Postgres behind.
func TestPostmasterDiesWithItsParent(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(clustertest.Dir(t), "orphan")
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"="+dir)
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(said, "started ") {
		t.Fatalf("the parent said %q, %v", said, err)
	}
	if len(processesOf(t, dir)) == 0 {
		t.Fatal("found no process of a running cluster: this test could not fail")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // it was killed, which is an error
	// At once: Start itself must wait for the former postmaster to be gone.
	c := clustertest.Own(t, cluster.Options{Dir: dir})
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntilNone(t, dir)
}

func waitUntilNone(t *testing.T, dir string) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for left := processesOf(t, dir); len(left) > 0; left = processesOf(t, dir) {
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("processes %v are left", left)
		}
	}
}

// processesOf lists the processes that work in the data directory of dir. A
// zombie works nowhere.
func processesOf(t *testing.T, dir string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(filepath.Join("/proc", entry.Name(), "cwd"))
		if err == nil && strings.HasPrefix(cwd, dir+string(filepath.Separator)) {
			found = append(found, pid)
		}
	}
	return found
}
