package regional

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"tranche/allocation"
)

const receiptToken = "tranche_region_d1_us-east_0f0e0d0c0b0a09080706050403020100"

// opened is what a receipt of the node says, once its key has opened it.
func (w *apiWorld) opened(text string) (allocation.Receipt, bool) {
	sealed, err := allocation.ParseReceipt(text)
	if err != nil {
		return allocation.Receipt{}, false
	}
	return w.config.Receipts.Key.Open(sealed)
}

func withReceipts(w *apiWorld) *apiWorld {
	w.config.Receipts = &Receipts{Key: allocation.ReceiptKeyOf("d1", "us-east", receiptToken), Node: "node-1"}
	return w
}

// Every refusal, whatever its reason, carries a receipt that the coordinator can check, and that says the same as the
// answer. If it fails somebody who was refused has nothing to show.
func TestEachRefusalHasAReceipt(t *testing.T) {
	for _, row := range allocation.Answers() {
		t.Run(string(row.Reason), func(t *testing.T) {
			w := withReceipts(newAPIWorld(t))
			resp := goldenCases[row.Reason](w)
			var body struct {
				Receipt     string
				Region      string
				AdmissionID string `json:"admission_id"`
				Blocking    *struct{ Budget, Instance, Unit string }
				DecidedAt   string `json:"decided_at"`
			}
			if err := json.Unmarshal([]byte(bodyOf(t, resp)), &body); err != nil {
				t.Fatal(err)
			}
			if row.Reason == allocation.Allow {
				if body.Receipt+resp.Header.Get(ReceiptHeader) != "" {
					t.Error("an admission has a receipt")
				}
				return
			}
			r, ok := w.opened(body.Receipt)
			if !ok || resp.Header.Get(ReceiptHeader) != body.Receipt {
				t.Fatalf("%q, %v, header %q", body.Receipt, ok, resp.Header.Get(ReceiptHeader))
			}
			if r.Reason != row.Reason || r.Region != "us-east" || r.Node != "node-1" || len(r.Decision) != 16 || r.At == 0 || r.Admission != body.AdmissionID {
				t.Errorf("%+v", r)
			}
			if body.DecidedAt != "" && formatMicros(r.At) != body.DecidedAt {
				t.Errorf("decided at %s, the receipt has %s", body.DecidedAt, formatMicros(r.At))
			}
			if b := body.Blocking; b != nil && (r.Budget != b.Budget || r.Instance != b.Instance || r.Unit != b.Unit && r.Unit != "") {
				t.Errorf("blocking %+v, the receipt has %+v", b, r)
			}
		})
	}
}

// If this failed, whoever is shown a receipt could call with what stands in it, or learn who was refused.
func TestNoSecretInAReceipt(t *testing.T) {
	w := withReceipts(newAPIWorld(t, twoTokens(t)...))
	resp := w.call("POST", "/v1/admit", `{"labels":{"tenant":"none","user":"jane@example.com"}}`, "Admission-Id: a", "Authorization: Bearer "+tokenA)
	text := resp.Header.Get(ReceiptHeader)
	r, ok := w.opened(text)
	if !ok || r.Reason != allocation.CeilingReached || r.Budget != "none" || r.Requested != 1 || r.Limit != 0 {
		t.Fatalf("%+v, %v", r, ok)
	}
	fields, _ := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	secret := w.config.Receipts.Key.Stored()
	for _, told := range []string{text, string(fields), bodyOf(t, resp)} {
		for _, s := range []string{tokenA, receiptToken, receiptToken[len(receiptToken)-32:], secret, "jane@example.com"} {
			if strings.Contains(told, s) {
				t.Errorf("%q stands in %q", s, told)
			}
		}
	}
	for _, hidden := range []string{"edge-a", "none", "node-1", "ceiling_reached", "requests"} { // evidence is not for callers
		if strings.Contains(string(fields), hidden) {
			t.Errorf("%s can be read in the receipt: %q", hidden, fields)
		}
	}
}

// A gateway's door gives the receipt as a header, and in the body that its caller sees.
func TestReceiptAtAGatewaysDoor(t *testing.T) {
	w := withReceipts(newAPIWorld(t))
	w.undocumented = false
	resp := w.call("GET", "/v1/authorize?denied=403", "", "Tranche-Label-Tenant: none", "Admission-Id: a")
	text := resp.Header.Get(ReceiptHeader)
	r, ok := w.opened(text)
	if !ok || resp.StatusCode != 403 || r.Reason != allocation.CeilingReached || !strings.Contains(bodyOf(t, resp), text) {
		t.Errorf("%d, %+v, %v", resp.StatusCode, r, ok)
	}
	full := w.call("GET", "/v1/authorize", "", "Tranche-Label-Tenant: acme", "Admission-Id: b", "Tranche-Priority: nonsense")
	if full.Header.Get(ReceiptHeader) != "" {
		t.Error("a call that is merely wrong has a receipt: nothing refused it")
	}
}

// What it costs a node to sign one more refusal.
func BenchmarkReceipt(b *testing.B) {
	w := withReceipts(newAPIWorld(b))
	d := allocation.Decision{Reason: allocation.CeilingReached, Blames: "acme/requests", Budgets: []allocation.BudgetDecision{{UsageKey: allocation.UsageKey{Budget: "acme/requests"}}}}
	b.ReportAllocs()
	for b.Loop() {
		w.receipt(&d, apiStart, "")
	}
}
