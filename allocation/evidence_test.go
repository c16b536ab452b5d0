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
