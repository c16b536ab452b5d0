package nodetest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/regional/nodetest"
)

// soon waits for what the recorder does within a second or two.
func soon(t *testing.T, what string, done func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

func find(t *testing.T, n *nodetest.Node, q regional.RecordQuery) []allocation.Record {
	t.Helper()
	q.Limit = regional.MaxRecordPage
	list, _, err := n.Records().FindRecords(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// What a real node refused over a real database, it finds again and decides again to the same: what was found spent under
// locks, what one read refused, what the ladder degraded or deferred, and what a key was refused for. If this fails nobody
// can prove afterwards that the rule in force was followed.
func TestRefusalsAreKeptAndReplay(t *testing.T) {
	n, _ := node(t, `"budget":"a","limit":10,"ladder":{"interactive":{"degrade_at":50,"route":"small"},"batch":{"defer_at":40}}`)
	for i := range 5 {
		ask(n, allocation.Spend, fmt.Sprint("s", i), allocation.Interactive, 1)
	}
	degraded := ask(n, allocation.Spend, "degraded", allocation.Interactive, 1)
	deferred := ask(n, allocation.Spend, "deferred", allocation.Batch, 1)
	ask(n, allocation.Spend, "rest", allocation.Interactive, 4)
	spent := ask(n, allocation.Spend, "spent", allocation.Interactive, 1)
	read := ask(n, allocation.Spend, "read", allocation.Interactive, 1)
	secret := allocation.KeyText("acme", strings.Repeat("5c", 20))
	shown, _ := allocation.Present(secret)
	decided(n, allocation.Request{
		Op: allocation.Spend, Key: allocation.IDKey{Credential: shown.Credential(), Tenant: "acme", ID: "key"}, Labels: allocation.Labels{"tenant": "acme"}, Presented: shown,
	})
	if degraded.Action != allocation.ActionDegraded || deferred.Reason != allocation.Deferred || spent.Admitted() || read.Admitted() {
		t.Fatalf("%+v\n%+v\n%+v\n%+v", degraded, deferred, spent, read)
	}
	soon(t, "all are written", func() bool { return len(find(t, n, regional.RecordQuery{})) >= 6 })
	for id, reason := range map[string]allocation.Reason{
		"degraded": allocation.Allow, "deferred": allocation.Deferred, "spent": spent.Reason, "read": read.Reason, "key": allocation.KeyUnknown,
	} {
		list := find(t, n, regional.RecordQuery{AdmissionID: id})
		if len(list) != 1 || list[0].Decision.Reason != reason || list[0].Name == "" {
			t.Errorf("%s: %+v", id, list)
			continue
		}
		if differ, err := list[0].Compare(); err != nil || len(differ) > 0 {
			t.Errorf("%s: %+v, %v", id, differ, err)
		}
		text, err := json.Marshal(list[0])
		if err != nil || strings.Contains(string(text), secret) || strings.Contains(string(text), strings.Repeat("5c", 20)) {
			t.Errorf("%s tells a secret, or nothing: %v", id, err)
		}
		list[0].Decision.Budgets = nil
		if list[0].Decision.Retry++; list[0].Name != find(t, n, regional.RecordQuery{Decision: list[0].Name})[0].Name {
			t.Errorf("%s is not found by its decision", id)
		}
		if differ, err := list[0].Compare(); err != nil || len(differ) == 0 {
			t.Errorf("%s was changed, and comes out the same: %v", id, err)
		}
	}
}

// All refusals are counted by the minute, whether they are kept or not; a tenant that is to be kept is, though the node
// keeps nothing else.
func TestTenantIsKept(t *testing.T) {
	n, _ := node(t, `"budget":"none","limit":0,"match":{"capability":"export"}`)
	request := func(tenant, id string) allocation.Request {
		return allocation.Request{
			Op: allocation.Spend, Key: allocation.IDKey{Credential: "gateway", Tenant: tenant, ID: id}, Priority: allocation.Batch,
			Labels: allocation.Labels{"tenant": tenant, "capability": "export"}, Costs: map[string]int64{"requests": 3},
		}
	}
	refuse := func(tenant, id string) {
		if d := decided(n, request(tenant, id)); d.Reason != allocation.CeilingReached {
			t.Fatalf("%+v", d)
		}
	}
	now := time.Now()
	if kept, err := n.Records().KeepTenant(t.Context(), regional.KeptTenant{Tenant: "acme", Since: now, Until: now.Add(time.Hour), By: "kim"}); err != nil || !kept {
		t.Fatal(err)
	}
	refused := 0
	soon(t, "more than the node keeps of all are kept of one", func() bool {
		for range 10 {
			refused++
			refuse("acme", fmt.Sprint("a", refused))
		}
		return len(find(t, n, regional.RecordQuery{Tenant: "acme"})) > 60
	})
	refuse("globex", "g")
	soon(t, "all are counted", func() bool {
		list, err := n.Records().RefusedOver(t.Context(), regional.RefusedQuery{By: regional.RefusedBy{Capability: true, Tenant: true, Priority: true, Reason: true}})
		if err != nil {
			t.Fatal(err)
		}
		want := []regional.RefusedCount{
			{Capability: "export", Tenant: "acme", Priority: allocation.Batch, Reason: allocation.CeilingReached, Unit: "requests", Requests: int64(refused), Units: 3 * int64(refused)},
			{Capability: "export", Tenant: "globex", Priority: allocation.Batch, Reason: allocation.CeilingReached, Unit: "requests", Requests: 1, Units: 3},
		}
		return len(list) == 2 && list[0] == want[0] && list[1] == want[1]
	})
}

// A settlement says what the reservation was for, from the owner's database: whichever node settles it, the estimate of that
// capability is judged.
func TestSettlementKnowsItsCapability(t *testing.T) {
	n, _ := node(t, `"budget":"a","limit":1000`)
	key := allocation.IDKey{Credential: "gateway", Tenant: "acme", ID: "r"}
	reserve := allocation.Request{Op: allocation.Reserve, Key: key, Labels: allocation.Labels{"tenant": "acme", "capability": "model"}, Costs: map[string]int64{"requests": 10}, Fingerprint: "fp_0f3a9c61d2b84e75a610"}
	settle := allocation.Request{Op: allocation.Settle, Key: key, Costs: map[string]int64{"requests": 13}}
	if d := decided(n, reserve); !d.Admitted() || d.Evidence.Capability != "model" {
		t.Fatalf("%+v", d)
	}
	d := decided(n, settle)
	if !d.Admitted() || d.Evidence.Capability != "model" || d.Budgets[0].Requested != 10 || d.Budgets[0].Charged != 13 {
		t.Errorf("%+v", d)
	}
	if found, known, err := n.Find(t.Context(), key); err != nil || !known || found.Evidence.Fingerprint != "fp_0f3a9c61d2b84e75a610" {
		t.Errorf("a look-up has lost the key's fingerprint: %+v, %v", found.Evidence, err)
	}
}
