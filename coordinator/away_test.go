package coordinator_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"tranche/coordinator"
)

// awayStore is an etcd that a test takes away and gives back.
type awayStore struct {
	coordinator.Store
	away  atomic.Bool // nothing is read or written: it has no leader
	muted atomic.Bool // its watches deliver nothing
}

func (s *awayStore) Range(ctx context.Context, prefix string) ([]coordinator.Item, int64, error) {
	if s.away.Load() {
		return nil, 0, fmt.Errorf("read %s: %w", prefix, coordinator.ErrUnavailable)
	}
	return s.Store.Range(ctx, prefix)
}

func (s *awayStore) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	if s.away.Load() {
		return coordinator.TxnResult{}, fmt.Errorf("commit: %w", coordinator.ErrUnavailable)
	}
	return s.Store.Commit(ctx, txn)
}

func (s *awayStore) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	return s.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		if !s.muted.Load() {
			deliver(events, revision)
		}
	})
}

// withAway is a world whose etcd can be taken away.
func withAway(t *testing.T) (*world, *awayStore) {
	t.Helper()
	w := newWorld(t, 0)
	store := &awayStore{Store: w.store}
	w.store = store
	w.start()
	east := w.addRegion("us-east")
	east.join(w.replicas[0])
	w.must(w.replicas[0], 201, "POST", "/v1/budgets", `{"budget":"b","unit":"requests","limit":7,"window":{"every":"1m"},"allocation":{"policy":"home","region":"us-east"}}`)
	return w, store
}

// While etcd has no quorum a change is refused as what it is: to be tried again, with nothing changed. A 500 would send
// people to our log.
func TestChangeWithoutQuorum(t *testing.T) {
	w, store := withAway(t)
	r := w.replicas[0]
	store.away.Store(true)
	got := w.request(r, "PUT", "/v1/budgets/b", `{"budget":"b","unit":"requests","limit":8,"window":{"every":"1m"},"allocation":{"policy":"home","region":"us-east"}}`, "If-Match", `"1"`)
	for _, word := range []string{`"code":"unavailable"`, `"retryable":true`, "no leader", "nothing was changed", `"fix"`} {
		if got.Code != 503 || !strings.Contains(got.Body.String(), word) {
			t.Errorf("%q does not stand in %d %s", word, got.Code, got.Body)
		}
	}
	if got.Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	store.away.Store(false)
	w.must(r, 200, "PUT", "/v1/budgets/b", `{"budget":"b","unit":"requests","limit":8,"window":{"every":"1m"},"allocation":{"policy":"home","region":"us-east"}}`, "If-Match", `"1"`)
}

// A change that stands must not be reported as undone because the answer could not be made: it would be made twice.
func TestWrittenAndNotReadBack(t *testing.T) {
	w, store := withAway(t)
	r := w.replicas[0]
	store.muted.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the caller leaves once its change is written
		defer cancel()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for seen := 0; seen < 3; <-tick.C {
			if items, _, err := w.store.Range(t.Context(), coordinator.Root+"budgets/b"); err != nil {
				return
			} else if len(items) == 1 && strings.Contains(string(items[0].Value), `"deleted":true`) {
				seen++
			}
		}
	}()
	q := httptest.NewRequestWithContext(ctx, "DELETE", "/v1/budgets/b", nil)
	q.Header.Set("Authorization", "Bearer "+w.admin)
	q.Header.Set("If-Match", `"1"`)
	got := httptest.NewRecorder()
	r.handler.ServeHTTP(got, q)
	items, _, err := w.store.Range(t.Context(), coordinator.Root+"budgets/b")
	if err != nil || len(items) != 1 || !strings.Contains(string(items[0].Value), `"deleted":true`) {
		t.Fatalf("not written: %+v %v", items, err)
	}
	if got.Code != 503 || !strings.Contains(got.Body.String(), `"code":"outcome_unknown"`) || !strings.Contains(got.Body.String(), "tranche audit") || strings.Contains(got.Body.String(), "retryable") {
		t.Errorf("%d %s", got.Code, got.Body)
	}
}

// Figures of ledgers are as old as the last read of etcd; whoever reads them must see how old, or take them for the present.
func TestAnswersSayHowOldTheyAre(t *testing.T) {
	w, store := withAway(t)
	r := w.replicas[0]
	store.away.Store(true)
	w.clock.move(20 * time.Second)
	for _, path := range []string{
		"/v1/status", "/v1/shares/b", "/v1/ledgers", "/v1/ledgers/b", "/v1/stranded", "/v1/regions", "/v1/rebalances",
	} {
		a := w.must(r, 200, "GET", path, nil)
		if age, _ := a["evidence_age_ms"].(float64); age < 20_000 {
			t.Errorf("%s says age %v", path, a["evidence_age_ms"])
		}
		if revision, _ := a["revision"].(float64); revision <= 0 {
			t.Errorf("%s says revision %v", path, a["revision"])
		}
	}
	found := false
	for _, p := range get[coordinator.Status](w, r, "/v1/status").Problems {
		found = found || p.Severity == coordinator.SeverityCritical && strings.Contains(p.What, "etcd was last read")
	}
	if !found {
		t.Error("the status does not say it")
	}
}

// logged hands out the lines of a log.
type logged chan string

func (l logged) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// until waits for a line.
func (l logged) until(t *testing.T, words string) {
	t.Helper()
	for give := time.After(patience); ; {
		select {
		case line := <-l:
			if strings.Contains(line, words) {
				return
			}
		case <-give:
			t.Fatalf("%q is never logged", words)
		}
	}
}

// A replica watches by itself: that etcd went away and came back stands in its log.
func TestReplicaLogsThatEtcdIsAway(t *testing.T) {
	w, store := newWorld(t, 0), &awayStore{}
	store.Store = w.store
	lines := make(logged, 1000)
	w.store, w.log = store, hclog.New(&hclog.LoggerOptions{Output: lines})
	w.start()
	store.away.Store(true)
	w.clock.move(10 * time.Second)
	lines.until(t, "etcd does not answer")
	store.away.Store(false)
	lines.until(t, "etcd answers again")
}
