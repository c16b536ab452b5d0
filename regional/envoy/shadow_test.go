//go:build unix

package envoy_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/envoy"
)

// inShadow serves the world's node once more, as one that refuses nobody, and returns what it watches.
func (w *world) inShadow() *regional.Watch {
	w.t.Helper()
	tokens, err := regional.ParseTokens([]byte("edge-1 " + edgeToken))
	if err != nil {
		w.t.Fatal(err)
	}
	watch, metrics := regional.NewWatch(time.Now()), regional.NewMetrics(prometheus.NewRegistry())
	w.serve(metrics, func(c *envoy.Config) {
		c.Gate = regional.NewGate(regional.HTTPConfig{Tokens: tokens, Metrics: metrics, Shadow: true, Watch: watch}, w.backend)
	})
	return watch
}

// If this failed, a node that is to watch only would make Envoy refuse, for some reason, or keep quiet about it.
func TestShadowNodeIsAlwaysOK(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	w.inShadow()
	right := ask("edge", one("tenant=acme", "admission_id=x"), one("tenant=acme", "unit=tokens"))
	passes := func(what, would string, ctx context.Context) {
		t.Helper()
		r, err := w.client.ShouldRateLimit(ctx, right)
		if err != nil || r.GetOverallCode() != ok || len(r.GetStatuses()) != 2 || header(r, "tranche-shadow") != "would="+would {
			t.Errorf("%s: %v %v", what, r, err)
			return
		}
		for _, s := range r.GetStatuses() {
			if s.GetCode() != ok {
				t.Errorf("%s: a status says %s", what, s.GetCode())
			}
		}
	}
	for _, row := range allocation.Answers() {
		if row.Reason != allocation.Allow {
			w.backend.hook(hooks{force: row.Reason})
			passes(string(row.Reason), string(row.Reason), w.authorized())
		}
	}
	w.backend.hook(hooks{})
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	passes("no token", "token_unknown", ctx)
	right = ask("edge", one("tenant=acme", "colour=red"), one("tenant=acme"))
	passes("a wrong call", "invalid_request", w.authorized())
	w.wantSpent("acme/requests", 0, 0)
}

// The word of the limiter that is still in force comes as an entry, and goes into the report.
func TestLegacyVerdict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, tenantBudget)
	watch := w.inShadow()
	undecided := int64(0)
	for id, verdict := range map[string]string{"a": "deny", "b": "allow", "c": "deny"} {
		eventually(t, "it is decided, and not let through because a slow machine did not come to it", func() bool {
			r, err := w.call(ask("edge", one("tenant=acme", fmt.Sprint("admission_id=", id, undecided), "legacy="+verdict)))
			if err != nil || r.GetOverallCode() != ok {
				t.Errorf("%v %v", r, err)
			}
			if header(r, "tranche-shadow") == "" {
				return true
			}
			undecided++ // it may be charged all the same, so the next one is another
			return false
		})
	}
	for _, b := range watch.Report(time.Now()).Budgets {
		if b.Budget == "acme/requests" && (b.Decided != 3 || b.Looser != 2) {
			t.Errorf("%+v", b)
		}
	}
	if spent, _ := w.spent("acme/requests"); spent < 3 || spent > 3+undecided {
		t.Errorf("%d are spent, of 3 and %d that were not decided", spent, undecided)
	}
}
