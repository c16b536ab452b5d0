package mutants

import (
	"context"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// demandOf runs change over the allocations of every ledger of policy demand that a transaction writes.
func demandOf(t *coordinator.Txn, change func(l *allocation.Ledger, a *allocation.Allocation) bool) {
	ledgersOf(t, func(l *allocation.Ledger, made bool) (changed bool) {
		if made || l.Policy.Policy != allocation.PolicyDemand {
			return false
		}
		for i := range l.Entries {
			for j := range l.Entries[i].Allocations {
				changed = change(l, &l.Entries[i].Allocations[j]) || changed
			}
		}
		return changed
	})
}

// recallIsReturn counts what a target lies below what is held as returned, at once: the others are given it while the
// owner may still spend it.
func recallIsReturn() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		demandOf(&t, func(_ *allocation.Ledger, a *allocation.Allocation) bool {
			if a.Held() <= a.Target {
				return false
			}
			a.Returned = a.Granted - a.Target
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// chunkAboveFree grants a whole target, however little is unallocated.
func chunkAboveFree() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		demandOf(&t, func(_ *allocation.Ledger, a *allocation.Allocation) bool {
			if a.Held() >= a.Target {
				return false
			}
			a.Granted = a.Returned + a.Target
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// chunkUncompared writes ledgers of policy demand over whatever stands there.
func chunkUncompared() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		var demand []string
		demandOf(&t, func(l *allocation.Ledger, _ *allocation.Allocation) bool {
			demand = append(demand, l.Budget)
			return false
		})
		if len(demand) == 0 {
			return s.Commit(ctx, t)
		}
		t.Compares = slices.DeleteFunc(t.Compares, func(c coordinator.Item) bool {
			return c.Revision > 0 && strings.HasPrefix(c.Key, ledgersAt) &&
				slices.ContainsFunc(t.Puts, func(p coordinator.Item) bool { return p.Key == c.Key })
		})
		return s.Commit(ctx, t)
	}}
}

// recallBelowMin recalls all that a region holds, whatever it is promised at least.
func recallBelowMin() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		demandOf(&t, func(l *allocation.Ledger, a *allocation.Allocation) bool {
			if l.Policy.Min[a.Region] == 0 || a.Held() <= a.Target || a.Target == 0 {
				return false
			}
			a.Target = 0
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// chunkAboveMax raises the target of a region by what it is granted and once more, whatever it may have at most.
func chunkAboveMax() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		demandOf(&t, func(l *allocation.Ledger, a *allocation.Allocation) bool {
			most := l.Policy.Max[a.Region]
			if most == 0 || a.Target > most || a.Held() < a.Target {
				return false
			}
			a.Target = most + 1
			return true
		})
		return s.Commit(ctx, t)
	}}
}
