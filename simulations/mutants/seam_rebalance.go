package mutants

import (
	"slices"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

const rebalancesAt = coordinator.Root + "rebalances/"

// unfinished is a world in which permits are moved by hand, and regions are cut off meanwhile.
var unfinished = arena{name: "moves that cannot finish", long: 60 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"cut-region": 1}, Every: 2 * time.Second, Operate: 400 * time.Millisecond, Acts: -1, Handovers: -1, Nodes: 1, Clients: 1, Think: time.Second,
	Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// onEnd shows every transaction that ends a move which cannot finish.
func onEnd(change func(t *coordinator.Txn, d coordinator.Rebalance)) storeSeam {
	return onPut(rebalancesAt, func(d coordinator.Rebalance) bool { return d.State == coordinator.RebalanceEnded }, change)
}

// endAndKeepAsking notes that a move is over, and leaves what was asked of the giver as it is.
func endAndKeepAsking() storeSeam {
	return onEnd(func(t *coordinator.Txn, d coordinator.Rebalance) {
		t.Puts = slices.DeleteFunc(t.Puts, func(p coordinator.Item) bool {
			l, is := decoded[allocation.Ledger](p, ledgersAt)
			return is && l.Budget == d.Budget
		})
	})
}

// takeBackMoved promises the giver also what it has returned.
func takeBackMoved() storeSeam {
	return onEnd(func(t *coordinator.Txn, d coordinator.Rebalance) {
		ledgersOf(t, func(l *allocation.Ledger, _ bool) (changed bool) {
			for i := range l.Entries {
				var gave, took *allocation.Allocation
				for j := range l.Entries[i].Allocations {
					switch a := &l.Entries[i].Allocations[j]; {
					case l.Budget != d.Budget || a.Class != allocation.General:
					case a.Region == d.From && a.Incarnation == d.Giver:
						gave = a
					case a.Region == d.To && a.Incarnation == d.Taker:
						took = a
					}
				}
				if gave != nil && took != nil && took.Target > 0 {
					gave.Target, took.Target, changed = gave.Target+1, took.Target-1, true
				}
			}
			return changed
		})
	})
}

// rebalanceMutants are those of moves by hand.
func rebalanceMutants() []Mutant {
	return []Mutant{
		inFleet("end-move-and-keep-asking", "a move that cannot finish is over, and its giver is still asked for the rest", unfinished, storeSeams(endAndKeepAsking), 4),
		inFleet("take-back-what-moved", "a move that cannot finish is over, and what has moved is the giver's again", unfinished, storeSeams(takeBackMoved), 4),
	}
}
