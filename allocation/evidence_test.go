package allocation

import (
	"encoding/json"
	"testing"
)

// What is admitted on old evidence is declared, and its bound is in the answer: what the region holds of the period, and until
// when. If this fails a region that is cut off goes on where its tenant said stop, or nobody can tell how far it may go.
func TestStaleEvidence(t *testing.T) {
	for _, c := range []struct {
		name    string
		age     int64 // microseconds; -1: never heard
		most    Duration
		then    string
		want    Reason
		bounded bool
	}{
		{"none declared", -1, 0, "", Allow, false},
		{"fresh", 59_000_000, Minute, "", Allow, false},
		{"exactly as old", 60_000_000, Minute, "", Allow, false},
		{"older", 60_000_001, Minute, "", EvidenceStale, false},
		{"older, strict", 60_000_001, Minute, OnStaleRefuse, EvidenceStale, false},
		{"older, admit", 60_000_001, Minute, OnStaleAdmit, Allow, true},
		{"fresh, admit", 1, Minute, OnStaleAdmit, Allow, false},
		{"never heard, strict", -1, Minute, OnStaleRefuse, EvidenceStale, false},
		{"never heard, admit", -1, Minute, OnStaleAdmit, Allow, true},
	} {
		b := testBudget("a", "requests", 100)
		b.MaxEvidenceAge, b.OnStaleEvidence = c.most, c.then
		l := newOwner(granted{b, 50})
		l.Revision = 7
		if l.ObservedAt = 0; c.age >= 0 {
			l.ObservedAt = l.Now - c.age
		}
		d := l.ask(Spend, "x", requests(10))
		if d.Reason != c.want || d.Evidence.ObservedAt != l.ObservedAt || d.Evidence.LedgerRevision != 7 {
			t.Errorf("%s: %s, %+v", c.name, d.Reason, d.Evidence)
		}
		if !d.Admitted() {
			if l.account("a") != "0/0/0" || d.Blames != "a" {
				t.Errorf("%s: %s", c.name, l.account("a"))
			}
			continue
		}
		if s := d.Budgets[0].Stale; (s != nil) != c.bounded || s != nil && (s.AtMost != 50 || s.MaxAge != Minute || s.Covered != firstMinute+180) {
			t.Errorf("%s: bounded by %+v", c.name, s)
		}
		if d := l.ask(Spend, "y", requests(41)); d.Reason != RegionShareSpent {
			t.Errorf("%s: beyond the share: %s", c.name, d.Reason)
		}
	}
}

// A key's own bound: a region that was cut off for longer may have missed its revocation. What it admitted it replays and settles.
func TestAKeyOnStaleEvidence(t *testing.T) {
	for name, c := range map[string]struct {
		age  int64 // microseconds; -1: never heard
		most Duration
		want Reason
	}{
		"none declared": {-1, 0, Allow}, "exactly as old": {60_000_000, Minute, Allow}, "older": {60_000_001, Minute, EvidenceStale},
		"never heard": {-1, Minute, EvidenceStale},
	} {
		text, key := acmeKey(func(k *Key) { k.MaxEvidenceAge = c.most })
		b := testBudget("a", "requests", 100)
		b.MaxEvidenceAge, b.OnStaleEvidence = Second, OnStaleAdmit // the budget's word is about its share, not about the key
		l := newOwner(granted{b, 50})
		l.Catalogue = l.Catalogue.WithDocuments([]Document{key})
		shown := func(op Op, id string, n int64) Request {
			r := request(op, id, requests(n))
			r.Presented, _ = Present(text)
			return r
		}
		l.ObservedAt = l.Now
		l.put(shown(Reserve, "x", 10))
		if l.ObservedAt = 0; c.age >= 0 {
			l.ObservedAt = l.Now - c.age
		}
		for _, r := range []Request{shown(Spend, "y", 1), shown(Reserve, "z", 1), shown(Check, "c", 1), shown(Extend, "x", 11)} {
			p := l.Catalogue.Plan(r, l.now())
			if d := l.put(r); d.Reason != c.want || d.Blames != "" {
				t.Errorf("%s: %s is %s: %s", name, r.Op, d.Reason, d.Detail)
			} else if !d.Admitted() {
				var record Record
				if err := json.Unmarshal(body(l.Record(p, d)), &record); err != nil {
					t.Fatal(err)
				}
				sameAgain(t, name, record, d)
			}
		}
		if d := l.put(shown(Reserve, "x", 10)); !d.Replayed {
			t.Errorf("%s: a replay is %s", name, d.Reason)
		}
		if d := l.put(shown(Settle, "x", 3)); d.Reason != Allow {
			t.Errorf("%s: a settle is %s", name, d.Reason)
		}
		if d := l.ask(Spend, "gateway", requests(1)); d.Reason != Allow {
			t.Errorf("%s: without the key: %s", name, d.Reason)
		}
	}
}

// More units for a reservation are as good as an admission: a strict budget gives none on old evidence. More time it may have, and
// what it holds is settled.
func TestNothingMoreOnStaleEvidence(t *testing.T) {
	for then, want := range map[string]Reason{"": EvidenceStale, OnStaleRefuse: EvidenceStale, OnStaleAdmit: Allow} {
		b := testBudget("a", "requests", 100)
		b.MaxEvidenceAge, b.OnStaleEvidence = Minute, then
		l := newOwner(granted{b, 50})
		l.ObservedAt = l.Now
		l.ask(Reserve, "x", requests(10))
		l.Now += 10e6
		if l.ObservedAt = l.Now - 60_000_000; l.ask(Extend, "x", requests(12)).Reason != Allow {
			t.Error("it is not older than a minute yet")
		}
		l.ObservedAt--
		d := l.ask(Extend, "x", requests(20))
		if d.Reason != want || want != Allow && (d.Blames != "a" || d.State != StateReserved || l.account("a") != "0/12/0") {
			t.Errorf("%q: more units: %s of %q, state %s; %s", then, d.Reason, d.Blames, d.State, l.account("a"))
		}
		if want != Allow {
			record, d := kept(t, l, request(Extend, "x", requests(20)))
			sameAgain(t, "more units", record, d)
		}
		longer := request(Extend, "x", nil)
		longer.Lifetime = 30 * Second
		if d := l.put(longer); d.Reason != Allow {
			t.Errorf("%q: more time: %s", then, d.Reason)
		}
		if d := l.ask(Settle, "x", requests(3)); d.Reason != Allow || l.account("a") != "3/0/0" {
			t.Errorf("%q: settled: %s, %s", then, d.Reason, l.account("a"))
		}
	}
}
