package allocation_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tranche/allocation"
)

func sampleReceipt() allocation.Receipt {
	return allocation.Receipt{
		Node: "node-1", Decision: "00ff00ff00ff00ff", Admission: "order-17", At: 1_780_315_230_000_000, Op: allocation.Spend,
		Reason: allocation.CeilingReached, Priority: allocation.Batch, Budget: "acme/requests", Instance: "tenant=acme", Unit: "requests",
		Version: 7, Period: 1_780_315_200, Until: allocation.Never, Generation: 12, Limit: 100, Share: 60, Requested: 3, Remaining: -1,
		Config: 9, LedgerRevision: 44, ObservedAt: 1_780_315_229_000_000,
	}
}

// open reads a receipt with a key.
func open(key allocation.ReceiptKey, text string) (allocation.Receipt, bool) {
	sealed, err := allocation.ParseReceipt(text)
	if err != nil {
		return allocation.Receipt{}, false
	}
	return key.Open(sealed)
}

const receiptHash = "5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8"

// What was signed is read back whole. If it fails an explanation speaks of another refusal.
func TestReceiptIsReadBack(t *testing.T) {
	key := allocation.NewReceiptKey("d1", "us-east", receiptHash)
	text := key.Sign(sampleReceipt())
	got, ok := open(key, " "+text[:30]+"\n"+text[30:]+"\n") // as a mail has it
	want := sampleReceipt()
	want.Deployment, want.Region, want.Key = "d1", "us-east", key.ID
	if !ok || got != want {
		t.Errorf("%+v, %v", got, ok)
	}
	if len(text) > 400 {
		t.Errorf("an ordinary receipt has %d bytes; a header should not", len(text))
	}
	long := sampleReceipt()
	long.Node, long.Admission, long.Instance, long.Budget = strings.Repeat("n", 300), strings.Repeat("a", 300), strings.Repeat("i", 300), strings.Repeat("b", allocation.MaxName)
	text = key.Sign(long)
	if got, ok := open(key, text); !ok || got.Node+got.Admission+got.Instance != "" || got.Budget != long.Budget || len(text) > 1024 {
		t.Errorf("%d bytes, %+v, %v", len(text), got, ok)
	}
}

// If one of these passed, anybody could make evidence against an operator.
func TestReceiptIsNotForged(t *testing.T) {
	key := allocation.NewReceiptKey("d1", "us-east", receiptHash)
	text := key.Sign(sampleReceipt())
	for i := range len(text) {
		for _, c := range "A1_" {
			changed := text[:i] + string(c) + text[i+1:]
			if _, ok := open(key, changed); ok && changed != text {
				t.Fatalf("byte %d may be changed", i)
			}
		}
	}
	for name, other := range map[string]allocation.ReceiptKey{
		"another region":     allocation.NewReceiptKey("d1", "eu-west", receiptHash),
		"another deployment": allocation.NewReceiptKey("d2", "us-east", receiptHash),
		"another token":      allocation.ReceiptKeyOf("d1", "us-east", "tranche_region_d1_us-east_other"),
	} {
		if _, ok := open(other, text); ok || other.ID == key.ID {
			t.Errorf("%s signs the same", name)
		}
	}
	for cut := 1; cut < len(text); cut++ {
		_, err := allocation.ParseReceipt(text[:cut])
		if err == nil {
			t.Fatalf("%d of %d bytes are taken for a receipt", cut, len(text))
		}
		if cut > 5 && !errors.Is(err, allocation.ErrReceiptCut) && !errors.Is(err, allocation.ErrReceiptBroken) {
			t.Errorf("cut after %d: %v", cut, err)
		}
	}
	if _, err := allocation.ParseReceipt(text[:len(text)-3]); !errors.Is(err, allocation.ErrReceiptCut) {
		t.Errorf("the end is missing: %v", err)
	}
	if _, err := allocation.ParseReceipt(text[len(text)/2:]); !errors.Is(err, allocation.ErrNoReceipt) {
		t.Errorf("the beginning is missing: %v", err)
	}
	if _, err := allocation.ParseReceipt("tr2" + text[3:]); !errors.Is(err, allocation.ErrReceiptNewer) {
		t.Errorf("a later version: %v", err)
	}
}

// The node derives the key from the token, the coordinator from its hash, and keeps what it needs later. If these differ
// no receipt can be checked; if the key told the token, a receipt key would be a credential.
func TestReceiptKeyIsShared(t *testing.T) {
	const token = "tranche_region_d1_us-east_0123456789abcdef"
	node := allocation.ReceiptKeyOf("d1", "us-east", token)
	kept, err := allocation.StoredReceiptKey("d1", "us-east", node.Stored())
	text := node.Sign(sampleReceipt())
	if _, ok := open(kept, text); err != nil || !ok || kept.ID != node.ID {
		t.Errorf("%v", err)
	}
	body, _ := base64.RawURLEncoding.DecodeString(strings.Split(text, ".")[1])
	for _, shown := range []string{fmt.Sprint(node), fmt.Sprintf("%+v", node), fmt.Sprintf("%#v", node), text, string(body)} {
		for _, secret := range []string{node.Stored(), token, "0123456789abcdef", "node-1", "acme", "ceiling", "order-17"} {
			if strings.Contains(shown, secret) {
				t.Errorf("%q tells a secret", shown)
			}
		}
	}
	if _, err := allocation.StoredReceiptKey("d1", "us-east", "abc"); err == nil {
		t.Error("a key that is none is taken")
	}
}

func FuzzReceipt(f *testing.F) {
	key := allocation.NewReceiptKey("d1", "us-east", receiptHash)
	f.Add(key.Sign(sampleReceipt()))
	f.Add("tr1.AA.")
	f.Add("tr1..AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := open(key, text)
		if ok && key.Sign(r) != strings.Join(strings.Fields(text), "") {
			t.Errorf("%+v is read from a text that nobody signed", r)
		}
		if ok && len(allocation.Explain(r).Do) == 0 {
			t.Errorf("%+v is not explained", r)
		}
	})
}

// Every reason has a cause, and each cause says what to do, what not to do, and whose it is. If it fails somebody is sent
// to raise a budget for a revoked key.
func TestExplainEveryReason(t *testing.T) {
	want := map[allocation.Cause]string{
		allocation.CauseEvidence:     "evidence_stale no_allocation sealed frozen history_lost starting clock_behind unsafe_settings overloaded database_unavailable",
		allocation.CauseLocalCeiling: "region_share_spent ceiling_reached capacity_stranded too_many_instances only_protected_left deferred ladder_refused cost_exceeds_limit",
		allocation.CauseNotProven:    "outcome_unknown",
		allocation.CauseKeyPolicy:    "scope_denied key_unknown key_revoked key_expired blocked",
		allocation.CauseNone:         "allow",
		allocation.CauseRequest:      "cost_unknown no_budget admission_id_conflict admission_id_released admission_id_missing admission_id_unknown admission_id_settled too_many_budgets label_missing not_home",
	}
	said := map[allocation.Reason]allocation.Cause{}
	for cause, reasons := range want {
		for reason := range strings.FieldsSeq(reasons) {
			said[allocation.Reason(reason)] = cause
		}
	}
	for _, a := range allocation.Answers() {
		e := allocation.Explain(allocation.Receipt{Reason: a.Reason, At: 2_000_000, ObservedAt: 1_000_000})
		if said[a.Reason] == "" || e.Cause != said[a.Reason] {
			t.Errorf("%s: %q, want %q", a.Reason, e.Cause, said[a.Reason])
		}
		if e.Meaning == "" || e.Owner == "" || len(e.Do) == 0 || len(e.DoNot) == 0 {
			t.Errorf("%s is explained by nothing: %+v", a.Reason, e)
		}
	}
	if c := allocation.CauseOf("made_up_later"); c != allocation.CauseEvidence {
		t.Errorf("a reason that nobody knows is %s", c)
	}
}

// A ceiling is proven by fresh evidence only, and an upstream's word goes before ours.
func TestExplainGoesByTheEvidence(t *testing.T) {
	const second = 1_000_000
	for _, c := range []struct {
		receipt allocation.Receipt
		cause   allocation.Cause
		fresh   bool
	}{
		{allocation.Receipt{Reason: allocation.CeilingReached, At: 100 * second, ObservedAt: 70 * second}, allocation.CauseLocalCeiling, true},
		{allocation.Receipt{Reason: allocation.CeilingReached, At: 101 * second, ObservedAt: 70 * second}, allocation.CauseEvidence, false},
		{allocation.Receipt{Reason: allocation.RegionShareSpent, At: 101 * second}, allocation.CauseEvidence, false},
		{allocation.Receipt{Reason: allocation.ScopeDenied, At: 101 * second}, allocation.CauseKeyPolicy, false},
		{allocation.Receipt{Reason: allocation.Allow, Upstream: allocation.UpstreamRefused, At: second, ObservedAt: second}, allocation.CauseUpstream, true},
		{allocation.Receipt{Reason: allocation.Allow, Upstream: allocation.UpstreamTimeout}, allocation.CauseNotProven, false},
		{allocation.Receipt{Reason: allocation.Allow, Upstream: allocation.UpstreamMalformed}, allocation.CauseNotProven, false},
		{allocation.Receipt{Reason: allocation.Allow, Upstream: allocation.UpstreamOK}, allocation.CauseNone, false},
	} {
		e := allocation.Explain(c.receipt)
		if strings.Contains(strings.Join(e.Do, " "), "whole share") {
			t.Errorf("%+v is said to be too large: %+v", c.receipt, e)
		}
		if e.Cause != c.cause || e.Fresh != c.fresh || e.Owner == "" || len(e.DoNot) == 0 {
			t.Errorf("%+v: %+v", c.receipt, e)
		}
	}
}

// A request that is larger than all that its region has is not to be repeated until somebody looks at the split.
func TestExplainSaysTooLarge(t *testing.T) {
	e := allocation.Explain(allocation.Receipt{Reason: allocation.RegionShareSpent, Share: 30, Requested: 31, At: 2_000_000, ObservedAt: 1_000_000})
	if !strings.Contains(e.Do[0], "30 of 31") || !strings.Contains(e.DoNot[0], "no wait makes it fit") || e.Cause != allocation.CauseLocalCeiling {
		t.Errorf("%+v", e)
	}
}

// The receipt is about the budget that refused, not about one that stood beside it.
func TestReceiptIsOfTheBudgetThatRefused(t *testing.T) {
	d := allocation.Decision{Reason: allocation.CeilingReached, Blames: "b [tenant=acme]", Budgets: []allocation.BudgetDecision{
		{UsageKey: allocation.UsageKey{Budget: "a"}, Requested: 1},
		{UsageKey: allocation.UsageKey{Budget: "b", Instance: "tenant=globex"}, Requested: 2},
		{UsageKey: allocation.UsageKey{Budget: "b", Instance: "tenant=acme"}, Requested: 3, Version: 4},
	}}
	if r := allocation.NewReceipt(&d, "x"); r.Budget != "b" || r.Instance != "tenant=acme" || r.Requested != 3 || r.Version != 4 || r.Decision != "x" {
		t.Errorf("%+v", r)
	}
	d.Blames = ""
	if r := allocation.NewReceipt(&d, "x"); r.Budget != "" || r.Requested != 0 {
		t.Errorf("no budget refused: %+v", r)
	}
}

// On old evidence an explanation says what is certain of just this refusal: a request that a ladder deferred, or that asked for more
// than the limit, was not refused because nothing was left.
func TestExplainedOnOldEvidence(t *testing.T) {
	for reason, words := range map[allocation.Reason]string{
		allocation.RegionShareSpent: "had nothing left", allocation.CeilingReached: "had nothing left", allocation.CapacityStranded: "had nothing left",
		allocation.OnlyProtectedLeft: "was protected", allocation.Deferred: "ladder", allocation.LadderRefused: "ladder",
		allocation.CostExceedsLimit: "more than the limit", allocation.TooManyInstances: "as many instances",
	} {
		e := allocation.Explain(allocation.Receipt{Reason: reason, At: 2_000_000})
		if e.Cause != allocation.CauseEvidence || !strings.Contains(e.Meaning, words) || !strings.Contains(e.Meaning, "too old, or there was none") {
			t.Errorf("%s: %s: %s", reason, e.Cause, e.Meaning)
		}
	}
}
