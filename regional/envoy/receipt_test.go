//go:build unix

package envoy_test

import (
	"strings"
	"testing"

	"tranche/allocation"
)

// Envoy's caller gets the receipt as a header, and Envoy's own log has it among the dynamic metadata. If it fails a refusal
// behind Envoy can be explained to nobody.
func TestReceiptThroughEnvoy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, strings.ReplaceAll(guardedBudget, `"limit":10,"protected":5,"ladder":{"interactive":{"degrade_at":10,"route":"small"}}`, `"limit":0`))
	r := w.want(over, statuses{over}, ask("edge", one("tenant=acme", "admission_id=a")))
	text := header(r, "tranche-receipt")
	sealed, err := allocation.ParseReceipt(text)
	receipt, ok := allocation.ReceiptKeyOf("d1", testRegion, edgeRegionToken).Open(sealed)
	if err != nil || !ok || receipt.Budget != "acme/requests" || receipt.Admission != "a" || allocation.CauseOf(receipt.Reason) != allocation.CauseLocalCeiling {
		t.Errorf("%q: %+v, %v", text, receipt, err)
	}
	if got := r.GetDynamicMetadata().GetFields()["receipt"].GetStringValue(); got != text || !strings.Contains(string(r.GetRawBody()), text) {
		t.Errorf("the metadata have %q, the header %q, the body %s", got, text, r.GetRawBody())
	}
}
