package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"tranche/coordinator"
	"tranche/coordinator/etcd"
	"tranche/coordinator/etcd/embedded"
	"tranche/coordinator/storetest"
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

func start(t *testing.T) *embedded.Server {
	t.Helper()
	server, err := embedded.Start(t.Context(), embedded.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func open(t *testing.T, endpoints ...string) *etcd.Store {
	t.Helper()
	store, err := etcd.Open(t.Context(), etcd.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// The adapter must keep the contract that the simulator's twin keeps.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) coordinator.Store { return open(t, start(t).Endpoints()...) })
}
