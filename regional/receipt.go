package regional

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"

	"tranche/allocation"
)

// ReceiptHeader has the receipt of a refusal: what a caller keeps, and shows when it asks why.
const ReceiptHeader = "Tranche-Receipt"

// Receipts is what a node signs refusals with.
type Receipts struct {
	Key  allocation.ReceiptKey
	Node string
}

// newDecisionName names one answer. Two of them meet once in four billion receipts of a region.
func newDecisionName() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// receipt is that of a refusal, or of what an upstream did; empty for an admission, and where none are given.
func (a *api) receipt(d *allocation.Decision, at int64, upstream allocation.Upstream) string {
	if a.config.Receipts == nil || d.Admitted() && upstream == "" {
		return ""
	}
	r := allocation.NewReceipt(d, a.nameOf(d))
	r.At, r.Upstream, r.Node = at, upstream, a.config.Receipts.Node
	if d.Reason == allocation.AdmissionIDMissing {
		r.Admission = "" // one that was made here was never used
	}
	return a.config.Receipts.Key.Sign(r)
}

// faultReceipt is that of a call which one of allocation's reasons refused before it came to a decision; empty for one
// that was merely wrong.
func (a *api) faultReceipt(f fault) string {
	if f.reason == "" {
		return ""
	}
	d := allocation.Decision{Reason: f.reason}
	if f.noted != nil {
		noted := allocation.Decision{
			Reason: f.reason, Action: allocation.ActionRefused, Op: f.noted.Op, Key: f.noted.Key, Region: a.Catalogue().Region, Detail: f.detail,
		}
		a.note(*f.noted, &noted)
		d.Record = noted.Record // the receipt says no more than the answer
	}
	return a.receipt(&d, a.config.Now().UnixMicro(), "")
}

func setReceipt(h http.Header, receipt string) {
	if receipt != "" {
		h.Set(ReceiptHeader, receipt)
	}
}

// nameOf is the name of an answer: that under which it is kept in full, if it is.
func (a *api) nameOf(d *allocation.Decision) string {
	if d.Record != nil {
		return d.Record.Name
	}
	return a.newName()
}
