package mutants

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// Prefixes of acts on what is stranded; see coordinator/stranded_docs.go.
const (
	writeOffsAt     = coordinator.Root + "writeoffs/"
	compensationsAt = coordinator.Root + "compensations/"
	statementsAt    = coordinator.Root + "statements/"
)

// relieved is a world in which a person acts on what is stranded.
var relieved = arena{name: "acts on what is stranded", long: 40 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"cut-region": 6}, Every: 5 * time.Second, Acts: 1500 * time.Millisecond, Nodes: 1, Clients: 2, Think: 300 * time.Millisecond,
	Operate: 8 * time.Second, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// decoded is a document of a transaction; false if it is of another kind.
func decoded[T any](i coordinator.Item, prefix string) (d T, is bool) {
	return d, strings.HasPrefix(i.Key, prefix) && json.Unmarshal(i.Value, &d) == nil
}

// afterWriteOffs shows every transaction together with all that was written off by then.
func afterWriteOffs(change func(t *coordinator.Txn, all []coordinator.WriteOff)) storeSeam {
	var all []coordinator.WriteOff
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		change(&t, all)
		r, err := s.Commit(ctx, t)
		for _, p := range t.Puts {
			if w, is := decoded[coordinator.WriteOff](p, writeOffsAt); is && r.Committed && w.Returned == nil {
				all = append(all, w)
			}
		}
		return r, err
	}}
}

// writeOffGivesAway counts what is written off as returned: the others are granted it.
func writeOffGivesAway() storeSeam {
	return afterWriteOffs(func(t *coordinator.Txn, all []coordinator.WriteOff) {
		ledgersOf(t, func(l *allocation.Ledger, _ bool) (changed bool) {
			for i := range l.Entries {
				for j := range l.Entries[i].Allocations {
					a := &l.Entries[i].Allocations[j]
					if !l.Template && a.Held() > 0 && slices.ContainsFunc(all, func(w coordinator.WriteOff) bool {
						return w.Budget == l.Budget && w.Region == a.Region && w.Incarnation == a.Incarnation && l.Periods.At(l.Entries[i].From).Start < w.Through
					}) {
						a.Returned, a.Target, changed = a.Granted, 0, true
					}
				}
			}
			return changed
		})
	})
}

// writeOffSpends writes down of an owner that it spent what was written off, on top of what it states.
func writeOffSpends() storeSeam {
	return afterWriteOffs(func(t *coordinator.Txn, all []coordinator.WriteOff) {
		for i := range t.Puts {
			if !strings.HasPrefix(t.Puts[i].Key, statementsAt) {
				continue
			}
			edit(&t.Puts[i], func(d *coordinator.StatementDocument) (changed bool) {
				for _, w := range all {
					if w.Region != d.Region || w.Incarnation != d.Incarnation {
						continue
					}
					for j := range d.Shares {
						for k := range d.Shares[j].Usage {
							if u := &d.Shares[j].Usage[k]; d.Shares[j].Budget == w.Budget && u.Period == w.Period.Start && w.Now.Stranded > 0 {
								u.Spent, changed = u.Spent+w.Now.Stranded, true
							}
						}
					}
				}
				return changed
			})
		}
	})
}

// onPut shows every transaction that writes a document in a state that is looked for.
func onPut[T any](prefix string, wanted func(T) bool, change func(t *coordinator.Txn, d T)) storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for _, p := range t.Puts {
			if d, is := decoded[T](p, prefix); is && wanted(d) {
				change(&t, d)
			}
		}
		return s.Commit(ctx, t)
	}}
}

// onCancel shows every transaction that cancels a raise.
func onCancel(change func(t *coordinator.Txn, c coordinator.Compensation)) storeSeam {
	return onPut(compensationsAt, func(c coordinator.Compensation) bool { return c.State == coordinator.CompensationCancelled }, change)
}

// cancelKeepsRaise notes that a raise is over, and leaves the limit where it is.
func cancelKeepsRaise() storeSeam {
	return onCancel(func(t *coordinator.Txn, c coordinator.Compensation) {
		t.Puts = slices.DeleteFunc(t.Puts, func(p coordinator.Item) bool {
			d, is := decoded[coordinator.BudgetDocument](p, budgetsAt)
			l, ledger := decoded[allocation.Ledger](p, ledgersAt)
			return is && d.Budget.Name == c.Budget || ledger && l.Budget == c.Budget
		})
	})
}

// raiseOutlivesReturn leaves a raise and its limit as they are when the region calls again.
func raiseOutlivesReturn() storeSeam {
	return onCancel(func(t *coordinator.Txn, c coordinator.Compensation) {
		if !strings.Contains(c.Why, "calls again") {
			return
		}
		t.Puts = slices.DeleteFunc(t.Puts, func(p coordinator.Item) bool {
			d, is := decoded[coordinator.BudgetDocument](p, budgetsAt)
			l, ledger := decoded[allocation.Ledger](p, ledgersAt)
			return strings.HasPrefix(p.Key, compensationsAt) || is && d.Budget.Name == c.Budget || ledger && l.Budget == c.Budget
		})
	})
}

// actMutants are those of acts on what is stranded.
func actMutants() []Mutant {
	return []Mutant{
		inFleet("write-off-gives-away", "what is written off is counted as returned, and granted to others", relieved, storeSeams(writeOffGivesAway), 4, 5),
		inFleet("write-off-spends", "what is written off is entered as spent, on top of what its owner states", relieved, storeSeams(writeOffSpends), 1),
		inFleet("compensation-keeps-the-raise", "a raise is called off, and the limit stays raised", relieved, storeSeams(cancelKeepsRaise), 2),
		inFleet("compensation-outlives-return", "a raise stands although the region calls again", relieved, storeSeams(raiseOutlivesReturn), 2),
	}
}
