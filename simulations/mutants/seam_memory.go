package mutants

import (
	"bytes"
	"context"
	"strings"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// begunAgain is a world in which the only coordinator is crashed, and what it wrote may arrive after it has started again.
var begunAgain = arena{name: "one coordinator that is crashed, and writes that are late", long: 45 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"crash-coordinator": 1}, Every: 1500 * time.Millisecond, Coordinators: 1, Regions: 2, Nodes: 1, Clients: 1, Think: 400 * time.Millisecond, Late: 0.3, LateMost: 4 * time.Second,
	Operate: 500 * time.Millisecond, Acts: -1, Handovers: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// goesOnUnfenced leaves out the write by which a coordinator that was started again replaces its mark. It goes on by the mark
// that it found, under the name of the one that it meant to leave.
func goesOnUnfenced() storeSeam {
	var found, fence coordinator.Item
	waits := false // for the outcome of a write: that is settled by the life that made it, with a fence of its own
	return storeSeam{
		read: func(i *coordinator.Item) {
			if i.Key == found.Key && i.Revision == found.Revision && bytes.Equal(i.Value, found.Value) {
				*i = fence
			}
		},
		commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
			for i := range t.Compares {
				if c := &t.Compares[i]; fence.Key != "" && c.Key == fence.Key && bytes.Equal(c.Value, fence.Value) {
					*c = found
				}
			}
			if !waits && fences(t) {
				found, fence = t.Compares[0], t.Puts[0]
				fence.Revision = found.Revision
				return coordinator.TxnResult{Committed: true, Revision: found.Revision}, nil
			}
			r, err := s.Commit(ctx, t)
			waits = err != nil
			return r, err
		},
	}
}

// fences says whether a transaction replaces a mark, and does nothing else.
func fences(t coordinator.Txn) bool {
	return len(t.Compares) == 1 && len(t.Puts) == 1 && len(t.Deletes) == 0 && t.Compares[0].Revision > 0 &&
		strings.HasPrefix(t.Puts[0].Key, marksAt) && t.Puts[0].Key == t.Compares[0].Key
}

// memoryMutants are those of what a coordinator remembers of the life before.
func memoryMutants() []Mutant {
	return []Mutant{
		inFleet("recall-without-fence", "a coordinator that was started again goes on beside what its last life may still have on its way", begunAgain, storeSeams(goesOnUnfenced), 8),
	}
}
