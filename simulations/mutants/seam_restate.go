package mutants

import (
	"context"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// restated is a world in which etcd goes back, and databases lose their history while the regions state what they hold.
var restated = arena{name: "an etcd that goes back, and databases that lose history meanwhile", long: 60 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-restored": 2, "unsafe-crash": 2, "cut-region": 3}, Every: 4 * time.Second, Nodes: 1, Clients: 2, Think: 300 * time.Millisecond,
	Operate: -1, Acts: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

func statesHeld(call allocation.SyncCall) bool {
	return slices.ContainsFunc(call.Statements, func(st allocation.Statement) bool {
		return slices.ContainsFunc(st.Shares, func(sh allocation.ShareStatement) bool { return sh.Held != nil })
	})
}

// restateForSuccessor enters what an incarnation stated to hold although it was replaced since, as if it were said of the one
// that took its place.
func restateForSuccessor() func(serve fleet.Sync) fleet.Sync {
	stated := map[string]allocation.SyncCall{} // by region: the last call that states what is held
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			before, there := stated[call.Region]
			if there && call.Incarnation != "" && before.Incarnation != "" && call.Incarnation != before.Incarnation {
				late := call
				late.Statements, late.WaitMillis = before.Statements, 0
				_, _ = serve(ctx, late)
			}
			if statesHeld(call) {
				stated[call.Region] = call
			}
			return serve(ctx, call)
		}
	}
}

// restateAdds adds what a region states to hold to what its ledger knows of it, where the greater of the two counts.
func restateAdds() storeSeam {
	frozen := false
	look := func(i *coordinator.Item) {
		if i.Key == historyAt {
			edit(i, func(d *coordinator.StandingDocument) bool { frozen = d.Freeze != nil; return false })
		}
	}
	return storeSeam{read: look, commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			look(&t.Puts[i])
		}
		ledgersOf(&t, func(l *allocation.Ledger, made bool) bool {
			if !frozen || made {
				return false
			}
			return addGranted(l, comparedLedger(t, l.Budget, l.Periods.Start()))
		})
		return s.Commit(ctx, t)
	}}
}

// comparedLedger is a ledger as a transaction compares it; one without entries if it does not.
func comparedLedger(t coordinator.Txn, budget string, term allocation.Instant) (was allocation.Ledger) {
	for _, c := range t.Compares {
		if !strings.HasPrefix(c.Key, ledgersAt) {
			continue
		}
		edit(&c, func(l *allocation.Ledger) bool {
			if l.Budget == budget && l.Periods.Len() > 0 && l.Periods.Start() == term {
				was = *l
			}
			return false
		})
	}
	return was
}

// addGranted adds what was granted before to all that is granted more of now.
func addGranted(l *allocation.Ledger, was allocation.Ledger) (changed bool) {
	if len(was.Entries) == 0 {
		return false
	}
	for i := range l.Entries {
		e := &l.Entries[i]
		for j := range e.Allocations {
			a := &e.Allocations[j]
			for _, b := range was.EntryAt(e.From).Allocations {
				if b.Holder == a.Holder && b.Class == a.Class && b.Granted > 0 && a.Granted > b.Granted {
					a.Granted, changed = a.Granted+b.Granted, true
				}
			}
		}
	}
	return changed
}

// restateMutants are those of what regions state to hold while all is frozen.
func restateMutants() []Mutant {
	return []Mutant{
		inFleet("restate-for-successor", "what an incarnation stated to hold is entered after it was replaced", restated, arriveSeams(restateForSuccessor), 2, 3, 4),
		inFleet("restate-adds", "what a region states to hold is added to what its ledger knows of it", restated, storeSeams(restateAdds), 4),
	}
}
