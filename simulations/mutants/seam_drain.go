package mutants

import (
	"context"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// drainTakesMore grants a region that drains what is unallocated, as if it took part.
func drainTakesMore() storeSeam {
	draining := map[string]bool{}
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			if p := t.Puts[i]; strings.HasPrefix(p.Key, regionsAt) {
				edit(&p, func(d *coordinator.RegionDocument) bool { draining[d.Region] = d.Draining; return false })
			}
		}
		ledgersOf(&t, func(l *allocation.Ledger, made bool) (changed bool) {
			for i := range l.Entries {
				free := l.Unallocated(l.Entries[i].From)
				for j := range l.Entries[i].Allocations {
					if a := &l.Entries[i].Allocations[j]; !made && !l.Template && free > 0 && draining[a.Region] {
						a.Granted, a.Target, free, changed = a.Granted+free, a.Held()+free, 0, true
					}
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}

// forgetOpening opens the first term of a budget as if nothing had been spent before it was declared.
func forgetOpening() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		ledgersOf(&t, func(l *allocation.Ledger, made bool) (changed bool) {
			for i := range l.Entries {
				changed = changed || made && l.Entries[i].OpeningSpent > 0
				if made {
					l.Entries[i].OpeningSpent = 0
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}
