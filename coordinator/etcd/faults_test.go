package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"tranche/coordinator"
	"tranche/coordinator/etcd/embedded"
)

// processes starts members that can be killed and stopped.
func processes(t *testing.T, n int) *embedded.Cluster {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := embedded.StartProcesses(t.Context(), n, func(embedded.Options) *exec.Cmd { return exec.Command(self) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Stop() })
	return cluster
}

// run starts what blocks until its context ends, and ends it with the test.
func run(t *testing.T, part func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- part(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A machine that stops answering without closing anything must not hold calls for ever, must leave a write's outcome
// unknown, and must let the evidence age; when it goes on, the truth is found and the evidence is fresh.
func TestStoppedMember(t *testing.T) {
	cluster := processes(t, 1)
	store := open(t, cluster.Endpoints()...)
	committer := coordinator.NewCommitter(store, nil)
	run(t, committer.Run)
	mirror := coordinator.NewMirror(store, func([]coordinator.Event, int64, bool) {})
	run(t, mirror.Run)
	if err := mirror.WaitFor(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := committer.Commit(t.Context(), put("a", "1")); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Pause(0); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := committer.Commit(short, put("b", "1")); !errors.Is(err, coordinator.ErrUnknownOutcome) {
		t.Errorf("write: %v", err)
	}
	if _, _, err := store.Range(t.Context(), coordinator.Root); err == nil { // bounded without a deadline of ours
		t.Error("a stopped member was read")
	}
	if _, at := mirror.Evidence(); at.After(stopped) {
		t.Errorf("evidence of %s, stopped at %s", at, stopped)
	}
	if err := cluster.Resume(0); err != nil {
		t.Fatal(err)
	}
	revision, err := committer.Commit(t.Context(), put("c", "1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := mirror.WaitFor(t.Context(), revision); err != nil {
		t.Fatal(err)
	}
	resumed := time.Now()
	for { // each commit moves the mirror on, so that there is always something to wait for
		if _, at := mirror.Evidence(); at.After(resumed) {
			break
		}
		if revision, err = committer.Commit(t.Context(), put("c", "1")); err != nil {
			t.Fatal(err)
		}
		if err := mirror.WaitFor(t.Context(), revision); err != nil {
			t.Fatal(err)
		}
	}
}

func put(name, value string) coordinator.Change {
	return coordinator.Change{Puts: []coordinator.Item{{Key: coordinator.Root + "test/" + name, Value: []byte(value)}}}
}

// What was acknowledged before, while and after one member of three is killed must all be there; a write whose outcome
// was unknown for a while is settled by the committer, so nobody hears of an error.
func TestKilledMember(t *testing.T) {
	cluster := processes(t, 3)
	// Two processes, each with its own connections and its own mark.
	stores := []coordinator.Store{open(t, cluster.Endpoints()...), open(t, cluster.Endpoints()...)}
	const writers, each = 4, 40
	half := make(chan struct{}, 2*writers)
	var wait sync.WaitGroup
	revisions := make([]sync.Map, len(stores))
	for s, store := range stores {
		committer := coordinator.NewCommitter(store, nil)
		run(t, committer.Run)
		for w := range writers {
			wait.Go(func() {
				for i := range each {
					name := fmt.Sprintf("%d/%d/%d", s, w, i)
					change := put(name, name)
					change.Reads = []coordinator.Item{{Key: change.Puts[0].Key}} // written once, or a conflict
					revision, err := committer.Commit(t.Context(), change)
					if err != nil {
						t.Errorf("%s: %v", name, err)
						continue
					}
					revisions[s].Store(change.Puts[0].Key, revision)
					if i == each/4 {
						half <- struct{}{}
					}
				}
			})
		}
	}
	for range 2 * writers {
		<-half
	}
	if err := cluster.Kill(leader(t, stores[0], cluster.Endpoints())); err != nil {
		t.Fatal(err)
	}
	wait.Wait()
	items, _, err := stores[1].Range(t.Context(), coordinator.Root+"test/")
	if err != nil {
		t.Fatal(err)
	}
	if len(items) != len(stores)*writers*each {
		t.Errorf("%d documents", len(items))
	}
	for _, item := range items {
		told, ok := revisions[item.Key[len(coordinator.Root+"test/")]-'0'].Load(item.Key)
		if !ok || told != item.Revision {
			t.Errorf("%s is at revision %d, told %v", item.Key, item.Revision, told)
		}
	}
}

// leader is the index of the leading member among the endpoints.
func leader(t *testing.T, store coordinator.Store, endpoints []string) int {
	t.Helper()
	members, err := store.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, endpoint := range endpoints {
		for _, m := range members {
			if m.Leader && m.Endpoint == endpoint {
				return i
			}
		}
	}
	t.Fatalf("no leader among %+v", members)
	return 0
}
