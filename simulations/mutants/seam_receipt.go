package mutants

import (
	"context"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// behind is a world in which etcd goes back under two coordinators that a region calls in turn: one tells it of the freeze, and
// the other, which is far from etcd and stood still meanwhile, is told what the region holds before it knows of any of that.
var behind = arena{name: "an etcd that goes back, and a coordinator that notices late", long: 40 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"etcd-step-back": 1}, Every: 3 * time.Second, Coordinators: 2, Balanced: true, Far: 150 * time.Millisecond, Regions: 2, Nodes: 1, Clients: 2,
	Think: 200 * time.Millisecond, Operate: 400 * time.Millisecond, Demand: true, Acts: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// anyAnswer takes whatever a coordinator answers while all is frozen for a receipt of what was stated.
func anyAnswer() syncFunc {
	return func(ctx context.Context, c regional.Coordinator, call allocation.SyncCall) (allocation.SyncAnswer, error) {
		answer, err := c.Sync(ctx, call)
		answer.Restated = answer.Restated || answer.Frozen && answer.Refusal == ""
		return answer, err
	}
}

// receiptMutants are those of the receipt for what a region states to hold while all is frozen.
func receiptMutants() []Mutant {
	return []Mutant{
		inFleet("any-answer-is-receipt", "a region goes on stating what it holds by any answer, also of a replica that entered nothing of it", behind, wireSeams(anyAnswer), 2, 3, 4),
	}
}
