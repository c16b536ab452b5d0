package fleet

import (
	"testing"
	"time"

	"tranche/allocation"
)

// A minute budget costs one write of its ledger for each term, and nothing when a minute begins: otherwise ten thousand of
// them would be more than etcd can write. What etcd holds of ledgers does not grow.
func TestMinuteBudgetsCostOneWriteATerm(t *testing.T) {
	k, err := RunKeep(t.Context(), Keep{Seed: 1, Regions: 2, Budgets: 3, RunsAlone: 20 * allocation.Minute, For: 24 * time.Minute, Every: 12 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if k.Periods != 3*24 || k.Terms < 3*4 || k.Terms > 3*6 || k.LedgerWrites != k.Terms {
		t.Errorf("%d periods, %d terms, %d writes of ledgers", k.Periods, k.Terms, k.LedgerWrites)
	}
	if first, last := k.Held[0].Bytes["ledgers"], k.Held[len(k.Held)-1].Bytes["ledgers"]; first == 0 || last > first*11/10 {
		t.Errorf("ledgers were %d bytes, and are %d", first, last)
	}
}
