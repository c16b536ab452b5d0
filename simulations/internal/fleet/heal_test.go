package fleet

import (
	"fmt"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// The checker waits for the terms of every budget that etcd has, and of none that was deleted before etcd was gone and that nobody
// declared again. A checker that waits for those fails runs that are right; one that waits for nothing finds no budget that the
// coordinator forgets.
func TestTermsAreMissingOfBudgetsThatEtcdHas(t *testing.T) {
	f := newFleet(Options{Seed: 1})
	defer f.w.Close()
	name := f.plan.budgets[0].Name
	b := f.plan.budgets[0].Budget
	for is, c := range map[string]struct {
		doc  coordinator.BudgetDocument
		anew bool
		want string
	}{
		"it is declared, and no term is open":           {coordinator.BudgetDocument{Budget: b, Version: 1}, false, name + " is opened through 1970-01-01T00:00:00Z only"},
		"it is opened far enough":                       {coordinator.BudgetDocument{Budget: b, Version: 1, OpenedThrough: allocation.At(f.w.Now()) + 1000*3600}, false, ""},
		"it is deleted":                                 {coordinator.BudgetDocument{Budget: b, Version: 2, Deleted: true}, false, ""},
		"etcd lost it, and it was not declared again":   {coordinator.BudgetDocument{}, false, ""},
		"a region has stated it, and it was declared":   {coordinator.BudgetDocument{Budget: b, Version: 1, Deleted: true, Lost: true}, true, name + " was declared in the etcd that was empty, and is not there"},
		"etcd lost it again after it was declared anew": {coordinator.BudgetDocument{}, true, name + " was declared in the etcd that was empty, and is not there"},
	} {
		f.check.budgets[name] = &budgetView{doc: c.doc}
		if clear(f.anew); c.anew {
			f.anew[name] = 0
		}
		var said string
		f.missingOfBudgets(allocation.At(f.w.Now()), func(format string, args ...any) { said += fmt.Sprintf(format, args...) })
		if said != c.want {
			t.Errorf("%s: %q is missing, want %q", is, said, c.want)
		}
	}
}
