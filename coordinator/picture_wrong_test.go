package coordinator_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"tranche/coordinator"
)

// deaf is a store whose watch goes on and does not show what is written: as that of one that went back, and was ahead again before
// anybody asked.
type deaf struct {
	coordinator.Store
	is atomic.Bool
}

func (d *deaf) Watch(ctx context.Context, prefix string, after int64, deliver func([]coordinator.Event, int64)) error {
	return d.Store.Watch(ctx, prefix, after, func(events []coordinator.Event, revision int64) {
		if d.is.Load() {
			events = nil
		}
		deliver(events, revision)
	})
}

// A replica whose picture is wrong decides by it, and all that it decides is refused: for good, if it did not read everything again.
func TestPictureThatIsWrongIsReadAgain(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	store := &deaf{Store: w.store}
	w.spoil = func(c *coordinator.Config) { c.Store = store }
	second := w.start()
	store.is.Store(true)
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, `"limit":100`, `"limit":300`, 1), "If-Match", `"1"`)
	if err := second.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.is.Store(false)
	if b := get[coordinator.BudgetAnswer](w, second, "/v1/budgets/acme/year"); b.Budget.LimitOrZero() != 100 {
		t.Fatalf("it shows %d all the same: nothing is tested", b.Budget.LimitOrZero())
	}
	if status, a := w.ask(second, "PUT", "/v1/budgets/acme/year", yearly, "If-Match", `"1"`); status != 412 {
		t.Errorf("a change of version 1 is answered %d %v, and the version is 2", status, a)
	}
	if b := get[coordinator.BudgetAnswer](w, second, "/v1/budgets/acme/year"); b.Budget.LimitOrZero() != 300 {
		t.Errorf("it still shows %d", b.Budget.LimitOrZero())
	}
	w.must(second, 200, "PUT", "/v1/budgets/acme/year", yearly, "If-Match", `"2"`)
}
