package mutants

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Mutant is one broken rule.
type Mutant struct {
	Name       string
	Breaks     string // the rule that is broken, in words
	Invariants []int  // any of which it must be seen to violate, by number; 0: what went wrong never comes right again
	Hunter     string // how it is hunted: the kind of hunt, and the world in which it is hunted

	hunt hunt
}

// String is the mutant in one line.
func (m Mutant) String() string {
	return fmt.Sprintf("%s: %s (%s)", m.Name, m.Breaks, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(m.Invariants)), ", "), "[]"))
}

// hunt is how one mutant is hunted, or, without it, its control.
type hunt interface {
	// world names what the hunt is made in. Hunts of one world have one control.
	world() string
	// find looks for a violation that counts. Runs are made from the seed on, one seed after the other.
	find(ctx context.Context, seed uint64, most int, counts func(invariant int) bool) (found, error)
	// control is the same hunt without the mutant. It goes as far as the hunt went that found something.
	control(ctx context.Context, seed uint64, far found) (found, error)
}

// found is what a hunt came to.
type found struct {
	caught    bool
	invariant int
	violation string
	seed      uint64 // of the run that showed it
	runs      int
	states    int // of a walk
	trace     []string
}

// All lists every mutant, by name.
func All() []Mutant {
	all := slices.Concat(walkMutants(), fleetMutants(), twinMutants(), lostHistoryMutants(), keyMutants(), overrideMutants(), handoverMutants(), actMutants(), leaveMutants(), rebalanceMutants(), emptiedMutants(), restateMutants(), receiptMutants(), doubleLossMutants(), memoryMutants(), cloneMutants(), drillMutants())
	slices.SortFunc(all, func(a, b Mutant) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Names lists the mutants that a pattern names: all of those whose name holds it; of an empty one all.
func Names(pattern string) []string {
	var out []string
	for _, m := range All() {
		if strings.Contains(m.Name, pattern) {
			out = append(out, m.Name)
		}
	}
	return out
}
