package coordinator

import (
	"encoding/json"
	"testing"
	"time"

	"tranche/allocation"
)

// A ledger that says anything else once it shares its names would be written back changed.
func TestCompactLedgersSayTheSame(t *testing.T) {
	s := newState(func() time.Time { return time.Time{} })
	limit := int64(90)
	b := allocation.Budget{
		Name: "a", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{"eu": 1, "us": 2}},
	}
	members := allocation.Members{Regions: []string{"eu", "us"}, Holders: []allocation.Holder{{Region: "eu", Incarnation: "e1"}, {Region: "us", Incarnation: "u1"}}}
	s.enter(Event{Item: put(budgetKey("a"), BudgetDocument{Format: documentFormat, Budget: b, Version: 1, Number: 1})})
	for i, weights := range []map[string]int64{{"eu": 1, "us": 2}, {"eu": 2, "us": 1}, {"eu": 2, "us": 1}} {
		declared := b
		declared.Allocation.Weights = weights
		periods := allocation.Periods{First: allocation.Instant(600 * i), Step: 60, Count: 10}
		l := allocation.OpenLedger(declared, 1, periods, members, allocation.Generation{Number: 1, Stamp: "s"})
		text := encode(l)
		s.enter(Event{Item: Item{Key: ledgerKey("a", periods.Start()), Value: text, Revision: int64(i + 2)}})
		held := s.ledgers[refOf(l)]
		if held == nil || string(encode(held.value)) != string(text) {
			t.Errorf("%s\nbecame %s", text, encode(held.value))
		}
	}
	var empty allocation.Ledger
	if err := json.Unmarshal([]byte(`{"regions":[],"entries":[{"allocations":[]}]}`), &empty); err != nil {
		t.Fatal(err)
	}
	before := string(encode(empty))
	if after := string(encode(s.compact(empty))); after != before {
		t.Errorf("%s\nbecame %s", before, after)
	}
}
