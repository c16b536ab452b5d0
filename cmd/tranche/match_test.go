package main

import (
	"net/http"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// matched is a budget as POST /v1/match answers it.
type matched struct {
	Budget, Reason                   string
	Limit, Share, Remaining, Version *int64
}

func (m matched) figures() int {
	n := 0
	for _, f := range []*int64{m.Limit, m.Share, m.Remaining, m.Version} {
		if f != nil {
			n++
		}
	}
	return n
}

// testMatchByKey: a caller with a key of its own reads from a real node which budgets its requests would be charged to, and the
// figures of its tenant's alone: what others have left of a budget that is shared is none of its business. A gateway sees all.
func testMatchByKey(t *testing.T, s *stage.Stage) {
	admin, err := s.Admin(0)
	if err != nil {
		t.Fatal(err)
	}
	shared, each := fixed("matched/shared", 100, "", allocation.Window{Calendar: "year"}), fixed("matched/{caller}", 100, "", allocation.Window{Calendar: "year"})
	shared.Match, each.Match = map[string]string{"capability": "matching"}, map[string]string{"capability": "matching"}
	own, tenants := fixed("matched/own", 100, "matcher", allocation.Window{Calendar: "year"}), fixed("matched/of/{tenant}", 100, "", allocation.Window{Calendar: "year"})
	tenants.Match = shared.Match
	for _, b := range []allocation.Budget{own, shared, each, tenants} {
		if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/budgets", Body: b}, nil); err != nil {
			t.Fatal(err)
		}
	}
	var k coordinator.KeyAnswer
	if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/keys", Body: coordinator.KeyRequest{Name: "matcher", Tenant: "matcher", Capabilities: []string{"matching"}}}, &k); err != nil {
		t.Fatal(err)
	}
	node := s.Regions["us-east"].Nodes[0].Address
	ask := func(token string) map[string]matched {
		c, err := api.New("node", node, token, "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var answer struct{ Budgets []matched }
		found := map[string]matched{}
		body := map[string]any{"labels": map[string]string{"tenant": "matcher", "capability": "matching", "caller": "somebody-else"}}
		err = stage.Until(t.Context(), 20*time.Second, "all budgets are known there", func() (bool, error) {
			_, err := c.Do(t.Context(), api.Call{Method: http.MethodPost, Path: "/v1/match", Body: body}, &answer)
			clear(found)
			for _, m := range answer.Budgets {
				if found[m.Budget] = m; m.Reason != string(allocation.Allow) {
					return false, err
				}
			}
			return len(found) == 4, err
		})
		if err != nil {
			t.Fatalf("%v: %+v", err, found)
		}
		return found
	}
	for name, m := range ask(s.Gateways[stage.Edge1]) {
		if m.figures() != 4 {
			t.Errorf("a gateway sees of %s %+v", name, m)
		}
	}
	for name, m := range ask(k.Key) {
		want := 0
		if name == "matched/own" || name == "matched/of/{tenant}" {
			want = 4
		}
		if m.figures() != want {
			t.Errorf("the caller sees %d figures of %s: %+v", m.figures(), name, m)
		}
	}
	for _, b := range []allocation.Budget{own, shared, each, tenants} {
		if _, err := admin.Do(t.Context(), api.Call{Method: http.MethodDelete, Path: "/v1/budgets/" + b.Name, Header: http.Header{"If-Match": {`"1"`}}}, nil); err != nil {
			t.Error(err)
		}
	}
}
