package mutants

import (
	"context"
	"slices"
	"time"

	"tranche/allocation"
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

// restateMutants are those of what regions state to hold while all is frozen.
func restateMutants() []Mutant {
	return []Mutant{
		inFleet("restate-for-successor", "what an incarnation stated to hold is entered after it was replaced", restated, arriveSeams(restateForSuccessor), 2, 3, 4),
	}
}
