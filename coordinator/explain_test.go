package coordinator_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// explainOf asks a replica to explain a receipt.
func (w *world) explainOf(r *replica, receipt string) coordinator.ExplainAnswer {
	w.t.Helper()
	recorder := w.request(r, "POST", "/v1/explain", map[string]string{"receipt": receipt})
	var a coordinator.ExplainAnswer
	if err := json.Unmarshal(recorder.Body.Bytes(), &a); err != nil || recorder.Code != http.StatusOK {
		w.t.Fatalf("%d %s: %v", recorder.Code, recorder.Body.String(), err)
	}
	return a
}

// refusal is a receipt as a node of the region would sign it now.
func (f *fakeRegion) refusal(reason allocation.Reason, period allocation.Period, generation int64) string {
	at := f.w.clock.now().UnixMicro()
	return allocation.ReceiptKeyOf(f.deployment, f.name, f.token).Sign(allocation.Receipt{
		Node: "node-1", Decision: "00ff00ff00ff00ff", At: at, ObservedAt: at - 500_000, Op: allocation.Spend, Reason: reason,
		Budget: "acme/requests", Unit: "requests", Version: 1, Period: period.Start, Until: period.End, Generation: generation,
		Limit: 100, Share: 60, Requested: 3,
	})
}

// A refusal that nobody stored is explained a month later, from its receipt alone, also after the region's token was
// replaced and the budget changed. If it fails a team is told a story that nobody can check.
func TestExplainAMonthLater(t *testing.T) {
	w, east, _ := two(t, 2)
	r := w.replicas[0]
	shares := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	receipt := east.refusal(allocation.CeilingReached, shares.Period, shares.Generation.Number)

	a := w.explainOf(r, receipt)
	if a.Verdict != coordinator.VerdictGenuine || a.Receipt.Reason != "ceiling_reached" || a.Receipt.Node != "node-1" || a.Receipt.Requested != 3 {
		t.Fatalf("%+v", a)
	}
	if a.Explanation.Cause != allocation.CauseLocalCeiling || !a.Explanation.Fresh || *a.Explanation.Evidence != 500 {
		t.Errorf("%+v", a.Explanation)
	}
	if a.Now.Period != coordinator.PeriodRunning || a.Now.ChangedSince || a.Now.Limit != 100 || len(a.Now.Shares.Regions) != 2 {
		t.Errorf("%+v", a.Now)
	}

	w.must(r, http.StatusOK, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "250"), "If-Match", `"1"`)
	w.must(r, http.StatusOK, "POST", "/v1/regions/us-east/token", nil)
	w.clock.move(31 * 24 * time.Hour)
	for _, one := range w.replicas {
		if err := one.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		a = w.explainOf(one, receipt)
		if a.Verdict != coordinator.VerdictGenuine || a.Receipt.Limit != 100 || a.Explanation.Cause != allocation.CauseLocalCeiling {
			t.Fatalf("a month later: %+v", a)
		}
		if n := a.Now; n.Limit != 250 || !n.ChangedSince || n.Version != 2 || n.Period == coordinator.PeriodRunning {
			t.Errorf("a month later: %+v", n)
		}
	}
}

// What is not true is named as what it is. If a forged one passed, anybody could make evidence.
func TestExplainRefusesWhatIsNotTrue(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	receipt := east.refusal(allocation.CeilingReached, allocation.Period{}, 1)
	sign := func(deployment, region, token string) string {
		return allocation.ReceiptKeyOf(deployment, region, token).Sign(allocation.Receipt{Reason: allocation.CeilingReached, Budget: "acme/requests"})
	}
	middle := len(receipt) / 2
	other := "A"
	if receipt[middle:middle+1] == other {
		other = "B"
	}
	for name, c := range map[string]struct{ receipt, verdict string }{
		"changed":            {receipt[:middle] + other + receipt[middle+1:], coordinator.VerdictForged},
		"cut":                {receipt[:len(receipt)-4], coordinator.VerdictCut},
		"of another text":    {"hello", coordinator.VerdictNone},
		"of a later version": {"tr9" + receipt[3:], coordinator.VerdictNewer},
		"of another place":   {sign("d-other", "us-east", east.token), coordinator.VerdictForeign},
		"of no region":       {sign(east.deployment, "nowhere", east.token), coordinator.VerdictForged},
		"with another token": {sign(east.deployment, "us-east", east.token+"x"), coordinator.VerdictUnknownKey},
		"for another region": {sign(east.deployment, "eu-west", east.token), coordinator.VerdictUnknownKey},
	} {
		a := w.explainOf(r, c.receipt)
		if a.Verdict != c.verdict || a.Detail == "" || a.Receipt != nil || a.Explanation != nil || a.Now != nil {
			t.Errorf("%s: %+v", name, a)
		}
	}
	if got := w.must(r, http.StatusUnprocessableEntity, "POST", "/v1/explain", map[string]string{}); got["field"] != "receipt" {
		t.Errorf("%v", got)
	}
	if code := w.request(r, "POST", "/v1/explain", map[string]string{"receipt": receipt}, "Authorization", "Bearer "+east.token).Code; code != http.StatusForbidden {
		t.Errorf("a region may explain: %d", code)
	}
}

// If this failed, whoever reads the audit log, an answer or a log could sign receipts, or call as a region.
func TestReceiptKeysAreToldToNobody(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	w.must(r, http.StatusOK, "POST", "/v1/regions/us-east/token", nil)
	key := allocation.ReceiptKeyOf(east.deployment, "us-east", east.token)
	kept := 0
	items, _, err := w.store.Range(t.Context(), coordinator.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		if strings.HasPrefix(item.Key, coordinator.Root+"receipts/us-east/") {
			kept++
			if strings.Contains(string(item.Value), east.token) {
				t.Errorf("%s holds the token", item.Key)
			}
			continue
		}
		if strings.Contains(string(item.Value), key.Stored()) {
			t.Errorf("%s tells a receipt key", item.Key)
		}
	}
	if kept != 2 {
		t.Errorf("%d keys of us-east are kept, not the old one and the new", kept)
	}
	receipt := east.refusal(allocation.CeilingReached, allocation.Period{}, 1)
	for _, path := range []string{"/v1/audit", "/v1/status", "/v1/regions", "/v1/tokens", "/v1/ledgers"} {
		if body := w.request(r, "GET", path, nil).Body.String(); strings.Contains(body, key.Stored()) {
			t.Errorf("%s tells a receipt key", path)
		}
	}
	if body := w.request(r, "POST", "/v1/explain", map[string]string{"receipt": receipt}).Body.String(); strings.Contains(body, key.Stored()) || strings.Contains(body, east.token) {
		t.Errorf("an explanation tells a secret: %s", body)
	}
}

// A deployment whose tokens were made by a version without receipts keeps their keys as soon as it runs.
func TestReceiptKeysOfOlderTokens(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	key := coordinator.Root + "receipts/us-east/" + allocation.ReceiptKeyOf(east.deployment, "us-east", east.token).ID
	if _, err := w.store.Commit(t.Context(), coordinator.Txn{Deletes: []string{key}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.Persist(t.Context()); err != nil {
		t.Fatal(err)
	}
	items, _, err := w.store.Range(t.Context(), key)
	if err != nil || len(items) != 1 {
		t.Errorf("the key was not kept: %v, %v", items, err)
	}
}

// An etcd that went back knows what was signed with the tokens that it knows. Of one that was lost nothing is claimed: it
// may be true.
func TestExplainAfterEtcdWasRestored(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	before := east.refusal(allocation.CeilingReached, allocation.Period{}, 1)
	snapshot := w.backup()
	renewed := w.must(r, http.StatusOK, "POST", "/v1/regions/eu-west/token", nil)
	west.token = renewed["token"].(string)
	after := west.refusal(allocation.CeilingReached, allocation.Period{}, 1)
	if v := w.explainOf(r, after).Verdict; v != coordinator.VerdictGenuine {
		t.Fatalf("before the restore it is %s", v)
	}
	w.restore(snapshot)
	if err := r.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if v := w.explainOf(r, before).Verdict; v != coordinator.VerdictGenuine {
		t.Errorf("what was signed with a token that is known is %s", v)
	}
	if a := w.explainOf(r, after); a.Verdict != coordinator.VerdictUnknownKey || !strings.Contains(a.Detail, "restore") {
		t.Errorf("what was signed with a lost token: %+v", a)
	}
}

// In a rotation two tokens of a region are valid at once, and its nodes sign with either; afterwards with the new one. If one
// of them were not known, every refusal of some node would look forged.
func TestExplainThroughARotation(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	old := *east
	for range 2 {
		answer := w.must(r, http.StatusCreated, "POST", "/v1/tokens/region:us-east/rotate", map[string]string{"overlap": "1h"})
		east.token = answer["token"].(string)
		for _, f := range []*fakeRegion{&old, east} {
			if v := w.explainOf(r, f.refusal(allocation.CeilingReached, allocation.Period{}, 1)).Verdict; v != coordinator.VerdictGenuine {
				t.Errorf("it is %s", v)
			}
		}
	}
	items, _, err := w.store.Range(t.Context(), coordinator.Root+"receipts/us-east/")
	if err != nil || len(items) != 3 {
		t.Errorf("%d keys are kept, not three: %v", len(items), err)
	}
}
