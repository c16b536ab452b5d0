package coordinator_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"tranche/coordinator/etcd/embedded"
)

// A read that is newer than what the mirror shows must not make the mirror look as new as the read.
func TestEvidenceWaitsForTheWatch(t *testing.T) {
	store := openEtcd(t)
	release := make(chan struct{})
	hooked := &hookedStore{Store: store, reads: make(chan error), beforeWatch: func(int) {
		select {
		case <-release:
		case <-t.Context().Done():
		}
	}}
	m, _ := mirroring(t, hooked)
	<-hooked.reads
	waitFor(t, m, 0)
	shown, _ := m.Evidence()
	commitRaw(t, store, puts(document("a"), "1"))
	written := time.Now()
	for range 3 { // of which the second at least began after the write, and was counted before the third came
		<-hooked.reads
	}
	if revision, at := m.Evidence(); revision != shown || at.After(written) {
		t.Fatalf("evidence of %s for revision %d, which lacks what was written at %s", at, revision, written)
	}
	close(release)
	for give := time.After(patience); ; {
		if _, at := m.Evidence(); at.After(written) {
			return
		}
		select {
		case <-hooked.reads:
		case <-give:
			t.Fatal("the evidence stays old")
		}
	}
}

// Decisions quote the age of the evidence; it must grow while nobody can say what etcd holds, and shrink afterwards.
func TestEvidenceAges(t *testing.T) {
	options := embedded.Options{Dir: t.TempDir()}
	server, err := embedded.Start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := url.Parse(server.Endpoints()[0])
	if err != nil {
		t.Fatal(err)
	}
	store := dialEtcd(t, server.Endpoints())
	hooked := &hookedStore{Store: store, reads: make(chan error)}
	m, shown := mirroring(t, hooked)
	fresh := func(since time.Time) { // until the evidence is newer than that
		t.Helper()
		for give := time.After(patience); ; {
			if _, at := m.Evidence(); at.After(since) {
				return
			}
			select {
			case <-hooked.reads:
			case <-give:
				t.Fatal("the evidence stays old")
			}
		}
	}
	begin := time.Now()
	<-hooked.reads
	fresh(begin)
	fresh(time.Now())
	// Keys elsewhere raise the revision: the evidence stays fresh by progress alone.
	commitRaw(t, store, puts("/elsewhere", "1"))
	fresh(time.Now())

	options.ClientAddr = endpoint.Host
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	for failed := 0; failed < 1; {
		if err := <-hooked.reads; err != nil {
			failed++
		}
	}
	if _, at := m.Evidence(); at.After(closed) {
		t.Fatalf("evidence of %s, etcd ended at %s", at, closed)
	}
	if server, err = embedded.Start(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	fresh(time.Now())
	go func() {
		for range hooked.reads { //nolint:revive // whoever reads on must not wait for us
		}
	}()
	commitRaw(t, store, puts(document("after"), strings.Repeat("x", 10)))
	waitFor(t, m, read(t, store, document("after")).Revision)
	shown.check(store)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.WaitFor(ended, 1<<60); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}
