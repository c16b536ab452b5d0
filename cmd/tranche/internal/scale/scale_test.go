package scale

import (
	"testing"
	"time"
)

// With ten times as many budgets a change and a quiet call must cost the same: a cost that grows would stop a large
// deployment while a small one, in every other test, looks well. Bytes are exact; times differ too much to be held here.
func TestCallsCostWhatChanged(t *testing.T) {
	r, err := Run(t.Context(), Options{Budgets: 600, Regions: 3, Calls: 2})
	if err != nil {
		t.Fatal(err)
	}
	near := func(what string, few, many int) {
		if few == 0 || float64(many) > 1.1*float64(few) {
			t.Errorf("%s: %d with %d budgets, %d with %d", what, few, r.Few.Budgets, many, r.Many.Budgets)
		}
	}
	near("a quiet call", r.Few.QuietBytes, r.Many.QuietBytes)
	near("a change", r.Few.ChangeByte, r.Many.ChangeByte)
	if r.LedgerWrites != 1 {
		t.Errorf("%.3f writes per budget and term; one opens it", r.LedgerWrites)
	}
	if l, b := r.Kinds["ledgers"].Documents, r.Kinds["budgets"].Documents; b != 600 || l < 600 || r.Held.Bytes == 0 || r.Database < r.Held.Bytes {
		t.Errorf("%d ledgers of %d budgets, %+v, a database of %d bytes", l, b, r.Held, r.Database)
	}
	if r.HeapBytes <= 0 || r.StartSeconds <= 0 || r.StartSeconds > (2*time.Minute).Seconds() {
		t.Errorf("a replica takes %d bytes and %.2f s", r.HeapBytes, r.StartSeconds)
	}
	if n := r.Node; n.Shares != r.Kinds["ledgers"].Documents || n.HeapBytes <= 0 || n.StoreSeconds <= 0 || n.StartSeconds <= 0 {
		t.Errorf("a node that knows all: %+v", n)
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, o := range []Options{{Budgets: 99, Regions: 2}, {Budgets: 200_001, Regions: 2}, {Budgets: 100, Regions: 1}, {Budgets: 100, Regions: 21}} {
		if _, err := Run(t.Context(), o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
