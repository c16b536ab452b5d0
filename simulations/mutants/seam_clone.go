package mutants

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/fleet"
)

// beside is a world in which a copy of a region's database starts beside it, with one of its two nodes, while somebody changes
// limits all the time: what the copy is asked to give back, the original may spend.
var beside = arena{name: "a copy of a database beside the original", kind: "clone-both-running", focus: fleet.Focus{
	Faults: map[string]int{}, Clients: 2, Think: 150 * time.Millisecond, Operate: 400 * time.Millisecond, Drift: -1, AtCommit: -1, Clocks: "right",
	Lose: -1, Regions: 2, Nodes: 2, Limit: 40, Handovers: -1,
}}

// hearWhoStarts takes what a node states that nobody vouches for like what any other states.
func hearWhoStarts() func(serve fleet.Sync) fleet.Sync {
	return func(serve fleet.Sync) fleet.Sync {
		return func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
			call.Starting = false
			return serve(ctx, call)
		}
	}
}

// cloneMutants are those of two databases that stand beside each other.
func cloneMutants() []Mutant {
	return []Mutant{
		inFleet("hear-who-starts", "what a node gave back that nobody vouches for is granted to others, whatever the original spent", beside, arriveSeams(hearWhoStarts), 2, 4, 5),
	}
}
