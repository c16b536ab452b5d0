package mutants

import (
	"context"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
	"tranche/simulations/internal/ownertwin"
)

// restated is a world in which etcd goes back, and databases lose their history while the regions state what they hold.
var restated = arena{name: "an etcd that goes back, and databases that lose history meanwhile", long: 60 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-restored": 2, "unsafe-crash": 2, "cut-region": 3}, Every: 4 * time.Second, Nodes: 1, Clients: 2, Think: 300 * time.Millisecond,
	Operate: -1, Acts: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// gone is a world in which etcd goes back, all that is said is late now and then, and there is one coordinator.
var gone = arena{name: "an etcd that goes back under one coordinator", long: 45 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-restored": 1}, Every: 3 * time.Second, Coordinators: 1, Regions: 2, Nodes: 1, Clients: 1, Think: 400 * time.Millisecond, Late: 0.2, LateMost: 5 * time.Second,
	Operate: 500 * time.Millisecond, Acts: -1, Handovers: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// rolled is a world in which nodes are stopped in order and started again, and etcd goes back to before it, under coordinators that
// have no memory of it.
var rolled = arena{name: "nodes that are started again, and an etcd that goes back", long: 60 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-restored": 1, "stop-node": 2, "crash-coordinator": 1}, Every: 2 * time.Second, Coordinators: 1, Regions: 2, Nodes: 2, Clients: 1, Think: 400 * time.Millisecond,
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

// whileFrozen shows every ledger that is written while all is frozen, with what it was.
func whileFrozen(change func(l *allocation.Ledger, was allocation.Ledger) bool) storeSeam {
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
			was := comparedLedger(t, l.Budget, l.Periods.Start())
			return frozen && !made && len(was.Entries) > 0 && change(l, was)
		})
		return s.Commit(ctx, t)
	}}
}

// restateAdds adds what a region states to hold to what its ledger knows of it, where the greater of the two counts.
func restateAdds() storeSeam { return whileFrozen(addGranted) }

// keepWhatCameBack takes it that a ledger which counted a return while all was frozen has nothing to follow.
func keepWhatCameBack() storeSeam {
	return whileFrozen(func(l *allocation.Ledger, was allocation.Ledger) (changed bool) {
		for _, e := range l.Entries {
			for _, a := range e.Allocations {
				for _, b := range was.EntryAt(e.From).Allocations {
					same := b.Holder == a.Holder && b.Class == a.Class
					if changed = changed || same && a.Returned > b.Returned; same && a.Granted > b.Granted {
						return false // it follows for that
					}
				}
			}
		}
		l.Members = was.Members
		return changed
	})
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
		inFleet("forget-ended", "an owner forgets what a writer left that ended in order, and etcd goes back to before it", rolled, broken(ownertwin.Breaks{ForgetEnded: true}), 8),
		inFleet("keep-what-came-back", "what an owner returned in what etcd lost is granted to nobody, once nothing is frozen", gone, storeSeams(keepWhatCameBack), 0),
	}
}
