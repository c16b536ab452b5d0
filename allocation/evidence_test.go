package allocation

import "testing"

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
