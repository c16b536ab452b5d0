package mutants

import (
	"context"
	"encoding/json"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// grantBeyondEnd goes on granting what an override raised, in periods that begin after its end.
func grantBeyondEnd() storeSeam {
	raised := map[string]*allocation.Override{}
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for _, p := range t.Puts {
			var d coordinator.BudgetDocument
			if strings.HasPrefix(p.Key, budgetsAt) && json.Unmarshal(p.Value, &d) == nil {
				raised[d.Budget.Name] = d.Budget.Override
			}
		}
		ledgersOf(&t, func(l *allocation.Ledger, _ bool) (changed bool) {
			o := raised[l.Budget]
			if o == nil {
				return false
			}
			for i := range l.Entries {
				e := &l.Entries[i]
				if l.Periods.At(e.From).Start < o.Until || len(e.Allocations) == 0 {
					continue
				}
				e.Limit += o.Units
				e.Highest = max(e.Highest, e.Limit)
				a := &e.Allocations[0]
				a.Target, a.Granted, changed = a.Target+o.Units, a.Granted+o.Units, true
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}

// overrideForgetsItsEnd has nodes count an override also in the periods after its end.
func overrideForgetsItsEnd() ownerSeam {
	return redeclared(func(b *allocation.Budget) { b.Override = nil })
}

// overrideMutants are those of temporary raises.
func overrideMutants() []Mutant {
	return []Mutant{
		inFleet("override-grants-after-its-end", "what an override raised is granted in periods after its end, too", raising, storeSeams(grantBeyondEnd), 2),
		inFleet("override-forgets-its-end", "a node counts an override in the periods after its end", raising, ownerSeams(overrideForgetsItsEnd), 12, 13),
	}
}
