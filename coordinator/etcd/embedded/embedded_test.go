//go:build unix

package embedded_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tranche/coordinator/etcd/embedded"
)

// TestMain makes the test binary a member when StartProcesses calls it.
func TestMain(m *testing.M) {
	options, asMember, err := embedded.OptionsFromEnvironment()
	if !asMember {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err == nil {
		err = embedded.RunMember(ctx, options)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func connect(t *testing.T, endpoints ...string) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// putAtLast asks again when a call is not answered: what was sent on to a leader
// that is dead is lost, and etcd would say so only after seven seconds. Putting
// the same value twice does no harm.
func putAtLast(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	for {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := client.Put(ctx, key, value)
		cancel()
		if err == nil {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
}

func get(t *testing.T, client *clientv3.Client, key string, options ...clientv3.OpOption) string {
	t.Helper()
	answer, err := client.Get(t.Context(), key, options...)
	if err != nil {
		t.Fatal(err)
	}
	if len(answer.Kvs) != 1 {
		t.Fatalf("%s: %d values", key, len(answer.Kvs))
	}
	return string(answer.Kvs[0].Value)
}

func start(t *testing.T, options embedded.Options) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// If this failed, a coordinator on a single machine would lose its ledgers at
// each restart.
func TestDataSurvivesClose(t *testing.T) {
	dir := t.TempDir()
	first := start(t, embedded.Options{Dir: dir})
	put(t, connect(t, first.Endpoints()...), "ledger", "7")
	if !strings.HasPrefix(first.Endpoints()[0], "http://127.0.0.1:") {
		t.Errorf("serves on %v, not on loopback", first.Endpoints())
	}
	for range 2 {
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
	}
	second := start(t, embedded.Options{Dir: dir})
	if got := get(t, connect(t, second.Endpoints()...), "ledger"); got != "7" {
		t.Errorf("got %q", got)
	}
}

// If this failed, demos and tests would fill the disk, or a failed start would
// hang.
func TestTemporaryFolderGoesAway(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	s := start(t, embedded.Options{})
	if left, _ := os.ReadDir(os.TempDir()); len(left) != 1 {
		t.Fatalf("%d folders of a running member: this test could not fail", len(left))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Start(ctx, embedded.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := embedded.Start(t.Context(), embedded.Options{ClientAddr: "nonsense"}); err == nil {
		t.Error("an address without a port was taken")
	}
	if left, err := os.ReadDir(os.TempDir()); len(left) != 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}

// If this failed, an operator would hear of errors at each start and each end,
// and would no longer look when etcd is in trouble.
func TestLoggerHearsNoErrorsOfAnOrderlyLife(t *testing.T) {
	var out bytes.Buffer
	logger := hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})
	s := start(t, embedded.Options{Logger: logger})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// A slow disk may be warned of at any time.
	if strings.Contains(out.String(), "[ERROR]") || strings.Contains(out.String(), "closed") || strings.Contains(out.String(), "production") {
		t.Errorf("logged:\n%s", out.String())
	}
}

// If this failed, a member's process would not end when it is told to, or would
// call that an error.
func TestRunMemberEndsWithItsContext(t *testing.T) {
	probe, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	probe.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	dir := t.TempDir()
	go func() { ended <- embedded.RunMember(ctx, embedded.Options{Dir: dir, ClientAddr: address}) }()
	client := connect(t, "http://"+address)
	put(t, client, "n", "1")
	client.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func startProcesses(t *testing.T, n int) *embedded.Cluster {
	t.Helper()
	c, err := embedded.StartProcesses(t.Context(), n, func(embedded.Options) *exec.Cmd { return exec.Command(os.Args[0]) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// If this failed, tests of a lost coordinator store would prove nothing: the
// kill would not be one, or a returned member would serve old data.
func TestThreeMembersSurviveAKill(t *testing.T) {
	c := startProcesses(t, 3)
	client := connect(t, c.Endpoints()...)
	put(t, client, "n", "1")
	if err := c.Kill(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Kill(0); err == nil {
		t.Error("killed twice")
	}
	putAtLast(t, connect(t, c.Endpoints()[1:]...), "n", "2")
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	// Serializable: what this one member has, without asking the others.
	if got := get(t, connect(t, c.Endpoints()[0]), "n", clientv3.WithSerializable()); got != "2" {
		t.Errorf("the member that was away has %q", got)
	}
}

// If this failed, what etcd had answered could be lost in a power cut of all
// members.
func TestKillOfAllKeepsWhatWasAnswered(t *testing.T) {
	c := startProcesses(t, 1)
	put(t, connect(t, c.Endpoints()...), "n", "1")
	if err := c.Restart(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Pause(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Resume(0); err != nil {
		t.Fatal(err)
	}
	if got := get(t, connect(t, c.Endpoints()...), "n"); got != "1" {
		t.Errorf("got %q", got)
	}
	if err := c.Pause(0); err != nil {
		t.Fatal(err)
	}
	if err := c.Stop(); err != nil {
		t.Fatalf("stop a paused member: %v", err)
	}
	if err := c.Kill(0); err == nil {
		t.Error("killed a member that was stopped")
	}
}

// If this failed, a child that cannot start would leave its folder or its reason
// behind.
func TestErrorsCarryTheOutput(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	_, err := embedded.StartProcesses(t.Context(), 1, func(embedded.Options) *exec.Cmd {
		return exec.Command("sh", "-c", "echo out of luck; exit 3")
	})
	if err == nil || !strings.Contains(err.Error(), "out of luck") {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(os.TempDir()); len(left) != 0 || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is left", left)
	}
}
