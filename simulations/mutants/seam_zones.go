package mutants

import (
	"context"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// The mutants of calendar periods compute once more, by time-zone data of their own, what the term's document says. Their
// own data is that of the machine that runs the simulator; the coordinators of the fleet have other versions of it.

// ownZone is the period of a calendar window that holds an instant, by one's own time-zone data.
func ownZone(w allocation.Window, at allocation.Instant) (allocation.Period, bool) {
	if w.Calendar == "" || w.Zone == "" {
		return allocation.Period{}, false
	}
	return w.With(nil).PeriodAt(at)
}

// recomputeAtOwner lets nodes compute where the period of a grant ends.
func recomputeAtOwner() syncFunc {
	windows := map[string]allocation.Window{}
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		answer, err := c.Sync(ctx, call)
		for _, b := range answer.Budgets {
			windows[b.Budget.Name] = b.Budget.Window
		}
		answer.Shares = slices.Clone(answer.Shares)
		for i := range answer.Shares {
			g := &answer.Shares[i]
			start := g.Periods.Start()
			if p, calendar := ownZone(windows[g.Budget], start); calendar && p.End != g.Periods.End() && p.End > start {
				g.Periods.Instants = []allocation.Instant{start, p.End}
			}
		}
		return answer, err
	}
}

// recomputeOnFollow lets a replica compute the end of a term anew, whenever it writes its ledger.
func recomputeOnFollow() storeSeam {
	windows := map[string]allocation.Window{}
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		windowsOf(t, windows)
		ledgersOf(&t, func(l *allocation.Ledger, made bool) bool {
			p, calendar := ownZone(windows[l.Budget], l.Periods.Start())
			if made || !calendar || p.End <= l.Periods.Start() {
				return false
			}
			l.Periods.Instants = []allocation.Instant{l.Periods.Start(), p.End}
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// openByOwnZone lets a term begin where the replica's own data says that its period begins, not where the term before it
// ended.
func openByOwnZone() storeSeam {
	windows := map[string]allocation.Window{}
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		windowsOf(t, windows)
		ledgersOf(&t, func(l *allocation.Ledger, made bool) bool {
			p, calendar := ownZone(windows[l.Budget], l.Periods.Start())
			if !made || !calendar {
				return false
			}
			l.Periods.Instants = []allocation.Instant{p.Start, l.Periods.End()}
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// keptSeams let a replica that leads do so for as long as it holds the lease, whatever it cannot do.
func keptSeams() fleet.Seams {
	return fleet.Seams{Store: func(_ string, s coordinator.Store) coordinator.Store { return keptLead{s} }}
}

// keptLead is a store whose leaders begin again instead of giving the leadership up.
type keptLead struct{ coordinator.Store }

func (k keptLead) Lead(ctx context.Context, name string, work func(ctx context.Context) error) error {
	return k.Store.Lead(ctx, name, func(ctx context.Context) (err error) {
		for ctx.Err() == nil {
			err = work(ctx)
		}
		return err
	})
}

// windowsOf notes the windows of the budgets that a transaction writes.
func windowsOf(t coordinator.Txn, windows map[string]allocation.Window) {
	for _, p := range t.Puts {
		if strings.HasPrefix(p.Key, budgetsAt) {
			p.Value = slices.Clone(p.Value)
			edit(&p, func(d *coordinator.BudgetDocument) bool {
				windows[d.Budget.Name] = d.Budget.Window
				return false
			})
		}
	}
}

// leaveGap opens terms of several periods without their first one.
func leaveGap() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		ledgersOf(&t, func(l *allocation.Ledger, made bool) bool {
			if !made || l.Periods.Count < 2 {
				return false
			}
			l.Periods.First, l.Periods.Count = l.Periods.First+allocation.Instant(l.Periods.Step), l.Periods.Count-1
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// withoutRevision decides without saying on which state of the ledger.
func withoutRevision() ownerSeam {
	return ownerSeam{seen: func(_ regional.Want, seen *regional.Seen) { seen.Revision = 0 }}
}
