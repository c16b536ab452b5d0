package mutants

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// keeping is a world in which permits move, and a part of each budget is kept.
var keeping = arena{name: "budgets that keep a part", focus: fleet.Focus{
	Faults: map[string]int{"cut-link": 1, "slow-disk": 2}, Every: 4 * time.Second, Kept: true, Clients: 1, Think: time.Second,
	Operate: 500 * time.Millisecond, Acts: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// giveKept grants whoever is below its target all that is unallocated, also what is kept.
func giveKept() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		ledgersOf(&t, func(l *allocation.Ledger, made bool) (changed bool) {
			if made || l.Policy.KeepPercent == 0 {
				return false
			}
			for i := range l.Entries {
				e := &l.Entries[i]
				left := e.Limit - e.OpeningSpent
				for _, a := range e.Allocations {
					left -= a.Held()
				}
				for j := range e.Allocations {
					a := &e.Allocations[j]
					if n := min(left, a.Target-a.Held()); n > 0 {
						a.Granted, left, changed = a.Granted+n, left-n, true
					}
				}
			}
			return changed
		})
		return s.Commit(ctx, t)
	}}
}
