//go:build unix

package envoy_test

import (
	"strings"
	"testing"

	"tranche/regional/envoy"
)

const guardedBudget = `{"budget":"acme/requests","unit":"requests","limit":10,"protected":5,"ladder":{"interactive":{"degrade_at":10,"route":"small"}},"window":{"once":{"from":"2020-01-01T00:00:00Z"}},"match":{"tenant":"acme"},"allocation":{"policy":"home","region":"us-east"}}
`

// If this failed, Envoy's batch work would count as interactive, anybody behind it could say essential, or the upstream would not hear
// of the cheaper route.
func TestPriorityAndRoute(t *testing.T) {
	t.Parallel()
	w := newWorld(t, guardedBudget)
	of := func(id, priority string) string { return "tenant=acme admission_id=" + id + " " + priority }
	call := func(text string) []string { return strings.Fields(text) }
	r := w.want(ok, statuses{ok}, ask("edge", one(call(of("a", "priority=batch hits=4"))...)))
	if len(r.GetRequestHeadersToAdd()) != 0 || r.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("%v", r)
	}
	r = w.want(ok, statuses{ok}, ask("edge", one(call(of("b", ""))...)))
	got := map[string]string{}
	for _, h := range r.GetRequestHeadersToAdd() {
		got[h.GetKey()] = h.GetValue()
	}
	if got["tranche-action"] != "degraded" || got["tranche-route"] != "small" || header(r, "tranche-route") != "small" {
		t.Errorf("%v, %v", got, r.GetResponseHeadersToAdd())
	}
	for text, reason := range map[string]string{
		of("c", "priority=batch"): "only_protected_left", of("d", "priority=essential"): "scope_denied", of("e", "priority=urgent"): "invalid_request",
		of("f", "priority=batch") + " also=interactive": "invalid_request",
	} {
		if r := w.want(over, statuses{over}, ask("edge", one(call(text)...))); header(r, "tranche-reason") != reason {
			t.Errorf("%s: %s, want %s", text, header(r, "tranche-reason"), reason)
		}
	}
	w.wantSpent("acme/requests", 5, 0)
	const good = "domains:\n  d:\n    priority: %s\n    entries:\n      a: {is: priority}\n"
	if m, err := envoy.ParseMapping("m.yaml", []byte(strings.Replace(good, "%s", "batch", 1))); err != nil || m.Domains["d"].Priority != "batch" {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := envoy.ParseMapping("m.yaml", []byte(strings.Replace(good, "%s", "low", 1))); err == nil || !strings.Contains(err.Error(), "m.yaml:3: domains.d.priority: is not a priority; use") {
		t.Error(err)
	}
}
