package allocation

import "testing"

// What an operator is shown before and after a seal is what the ledger counts: else a preview promises what nobody gets.
func TestSealLeft(t *testing.T) {
	periods := Periods{First: 1000, Step: 100, Count: 4}
	share := func(template bool) Share {
		return Share{Budget: "b", Template: template, Periods: periods, Sealed: true, Entries: []GrantEntry{
			{From: 1000, Until: 1200, Granted: 12, Returned: 2}, {From: 1200, Until: 1400, Granted: 7},
		}}
	}
	used := []Usage{
		{UsageKey: UsageKey{Budget: "b", Period: 1100}, Spent: 3, Reserved: 2, Sealed: true},
		{UsageKey: UsageKey{Budget: "b", Period: 1300}, Spent: 1, Sealed: true},
	}
	for name, c := range map[string]struct {
		now      Instant
		template bool
		want     SealLeft
	}{
		"in the second period": {now: 1150, want: SealLeft{Held: 10, Spent: 3, Reserved: 2, Free: 5, AheadPeriods: 2, AheadFree: 13}},
		"before the term":      {now: 900, want: SealLeft{AheadPeriods: 4, AheadFree: 10 + 5 + 7 + 6}},
		"after it":             {now: 1400, want: SealLeft{}},
		"a template":           {now: 1150, template: true, want: SealLeft{Spent: 3, Reserved: 2, AheadPeriods: 2}},
	} {
		if got := (SealedShare{Share: share(c.template), Used: used}).Left(c.now); got != c.want {
			t.Errorf("%s: %+v, not %+v", name, got, c.want)
		}
	}
}
