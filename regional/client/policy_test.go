//go:build unix

package client_test

import (
	"testing"

	"tranche/allocation"
	"tranche/regional/client"
)

// A priority must reach the node from each kind of call, and the cheaper route its caller. If this failed a client's batch work would
// count as interactive, or what is degraded would take the dear route.
func TestPriorityAndRoute(t *testing.T) {
	c := newClient(t, client.Options{})
	ask := func(p allocation.Priority, n int64) client.Request {
		r := tenant("guarded")
		r.Priority, r.Costs = p, map[string]int64{"requests": n}
		return r
	}
	d, err := c.Admit(t.Context(), ask(allocation.Batch, 4))
	if err != nil || !d.Admitted() || d.Action != "preferred" || d.Budgets[0].Protected != 5 || d.Budgets[0].Remaining != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	d, err = c.Reserve(t.Context(), ask("", 1))
	if err != nil || !d.Admitted() || d.Action != "degraded" || d.Route != "small" || d.Budgets[0].Charged != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	all, err := c.Batch(t.Context(), []client.Item{{Request: ask(allocation.Batch, 1)}, {Request: ask(allocation.Essential, 1)}})
	if err == nil || len(all) != 2 || all[0].Admitted() || all[1].Admitted() { // this token may not say essential
		t.Fatalf("%+v, %v", all, err)
	}
	d, err = c.Admit(t.Context(), ask(allocation.Batch, 1))
	if err != nil || d.Admitted() || d.Reason != allocation.OnlyProtectedLeft || !d.Retryable {
		t.Fatalf("%+v, %v", d, err)
	}
	if _, err := c.Admit(t.Context(), ask("urgent", 1)); err == nil {
		t.Error("a word that is no priority was taken")
	}
}
