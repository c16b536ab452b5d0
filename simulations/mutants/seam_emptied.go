package mutants

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/fleet"
)

// emptied is a world in which etcd is lost whole, and databases lose their owner after they were registered with it, before
// they could call.
var emptied = arena{name: "an etcd that is gone, and databases that lose their owner", long: 60 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-empty": 1, "cut-region": 6, "unsafe-crash": 2}, Every: 3 * time.Second, Coordinators: 1, Nodes: 1, Clients: 1, Think: 400 * time.Millisecond,
	Operate: -1, Acts: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// neverBelieveEmptied takes every call that names no incarnation for a late one: none of them shows a later mark.
func neverBelieveEmptied() func(serve fleet.Sync) fleet.Sync {
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			if call.Incarnation == "" {
				call.Marks = nil
			}
			return serve(ctx, call)
		}
	}
}

// emptiedMutants are those of databases that lost their owner before they ever called.
func emptiedMutants() []Mutant {
	return []Mutant{
		inFleet("never-believe-the-emptied", "a database that lost its owner before it ever called is taken for one whose calls are late, for good", emptied, arriveSeams(neverBelieveEmptied), 0),
	}
}
