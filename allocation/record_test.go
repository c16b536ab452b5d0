package allocation

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// The example of PeriodRecord's comment. A record is what an auditor reads: a permit that is missing from it, or that
// stands in it twice, is a permit that nobody can account for.
func TestRecord(t *testing.T) {
	a, b := Holder{"a", "a1"}, Holder{"b", "b1"}
	limit := int64(100)
	budget := Budget{Name: "x", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 3, "b": 2}}}
	l := OpenLedger(budget, 1, Periods{First: 600, Step: 60, Count: 3}, Members{Regions: []string{"a", "b"}, Holders: []Holder{a, b}}, Generation{Number: 1})
	stated := ShareStatement{Budget: "x", Term: 600, Usage: []UsageStatement{{Period: 600, Class: General, Spent: 48, Reserved: 2, Overdraft: 1}}}
	got := l.Record([]Account{{Holder: a, Statement: stated, Final: true}, {Holder: b}})
	want := []PeriodRecord{
		{
			From: 600, Until: 660, Periods: 1, Limit: 100, Unused: 10, RecordSums: RecordSums{Spent: 48, Reserved: 2, Overdraft: 1, Stranded: 40},
			Shares: []ShareRecord{
				{Holder: 0, Granted: 60, RecordSums: RecordSums{Spent: 48, Reserved: 2, Overdraft: 1}},
				{Holder: 1, Granted: 40, RecordSums: RecordSums{Stranded: 40}},
			},
		},
		{
			From: 660, Until: 780, Periods: 2, Limit: 200, Unused: 120, RecordSums: RecordSums{Stranded: 80},
			Shares: []ShareRecord{{Holder: 0, Granted: 120}, {Holder: 1, Granted: 80, RecordSums: RecordSums{Stranded: 80}}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if joined := Coarser(got); len(joined) != 1 || joined[0].Until != 780 || joined[0].Limit != 300 || joined[0].Unused != 130 || joined[0].Stranded != 120 ||
		joined[0].Shares[0].Granted != 180 || got[0].Shares[0].Granted != 60 {
		t.Errorf("joined %+v", joined)
	}
}

// Whatever happened in a term, its record adds up (invariant 1), in detail and joined, and every period stands in it once.
func TestRecordAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		holders := []Holder{{"a", "a1"}, {"b", "b1"}, {"c", "c1"}}
		limit := rapid.Int64Range(0, 1000).Draw(t, "limit")
		budget := Budget{Name: "x", Unit: "requests", Limit: &limit, Allocation: Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 3, "b": 2, "c": 1}}}
		members := Members{Regions: []string{"a", "b", "c"}, Holders: holders}
		l := OpenLedger(budget, 1, Periods{First: 600, Step: 60, Count: 6}, members, Generation{Number: 1})
		for v := range rapid.IntRange(0, 3).Draw(t, "changes") {
			limit = rapid.Int64Range(0, 1000).Draw(t, "next limit")
			l, _ = l.Follow(budget, int64(v+2), rapid.IntRange(0, 5).Draw(t, "from"), members, Generation{Number: int64(v + 2)})
		}
		var accounts []Account
		for _, h := range holders {
			account := Account{Holder: h, Final: rapid.Bool().Draw(t, "final"), Statement: ShareStatement{Generation: l.Generation}}
			for i := range 6 {
				e := l.EntryAt(i)
				if held := e.find(h, General).Held(); rapid.Bool().Draw(t, "used") {
					spent := rapid.Int64Range(0, held).Draw(t, "spent")
					account.Statement.Usage = append(account.Statement.Usage, UsageStatement{
						Period: l.Periods.At(i).Start, Class: General, Spent: spent, Reserved: rapid.Int64Range(0, held-spent).Draw(t, "reserved"),
					})
				}
			}
			accounts = append(accounts, account)
		}
		for records := l.Record(accounts); ; records = Coarser(records) {
			at, periods := l.Periods.Start(), 0
			for _, r := range records {
				if r.From != at {
					t.Fatalf("%s follows %s", r.From, at)
				}
				at, periods = r.Until, periods+r.Periods
				if r.Limit+r.Overcommitted != r.Spent+r.Reserved+r.Unused+r.Stranded {
					t.Fatalf("it does not add up: %+v", r)
				}
				var sum RecordSums
				for _, s := range r.Shares {
					sum = sum.Add(s.RecordSums)
				}
				if sum != r.RecordSums {
					t.Fatalf("the regions come to %+v, not %+v", sum, r.RecordSums)
				}
			}
			if at != l.Periods.End() || periods != 6 {
				t.Fatalf("%d periods, up to %s", periods, at)
			}
			if len(records) == 1 {
				return
			}
		}
	})
}
