package fleet

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// faultPlan is how likely what is, in one run.
type faultPlan struct {
	lose, repeat, late float64 // of each link, at most
	lateMost           time.Duration
	every              time.Duration // the longest pause between two faults
	weights            []int         // by fault
	atCommit           float64       // the chance that a process crashes around a commit of its own
	clocks             clockKind     // whose clocks jump
	drift              int64         // parts per million, at most
	jump               time.Duration // at most; 0: anything
	watchLag           time.Duration
	leaderLag          time.Duration
	replica            bool // databases have a synchronous replica
}

type clockKind int

const (
	clocksRight clockKind = iota
	clocksOfNodes
	clocksOfDatabases
	clocksOfCoordinators
	clocksOfAll // also those of two sides that check each other
)

// databasesRight says that a later reading of a database's clock is a later instant.
func (k clockKind) databasesRight() bool { return k != clocksOfDatabases && k != clocksOfAll }

func newFaultPlan(r *rand.Rand) faultPlan {
	p := faultPlan{
		lose: unlikely(r, 0.05), repeat: unlikely(r, 0.2), late: unlikely(r, 0.02), lateMost: oneOf(r, time.Second, 10*time.Second, time.Minute),
		every: oneOf(r, time.Second, 2*time.Second, 5*time.Second, 12*time.Second), atCommit: unlikely(r, 0.02), clocks: clockKind(r.IntN(4)),
		drift: oneOf[int64](r, 0, 0, 200, 20_000, 100_000), watchLag: oneOf(r, 0, 0, 50*time.Millisecond, 2*time.Second),
		leaderLag: oneOf(r, 0, 5*time.Second), replica: r.IntN(4) == 0,
	}
	for range before {
		p.weights = append(p.weights, max(0, r.IntN(12)-4))
	}
	p.weights[r.IntN(len(p.weights))] += 6
	return p
}

// drawMore draws what came later.
func (p *faultPlan) drawMore(r *rand.Rand) {
	for range allFaults[before:ordinary] {
		p.weights = append(p.weights, max(0, r.IntN(12)-6))
	}
	if r.IntN(6) == 0 {
		p.clocks, p.jump = clocksOfAll, oneOf(r, 0, 8*time.Second)
		p.weights[clockJump] += 2
	}
	for range allFaults[ordinary:] {
		p.weights = append(p.weights, 0)
	}
}

func (p faultPlan) String() string {
	out := fmt.Sprintf("lose %.3f repeat %.3f late %.3f", p.lose, p.repeat, p.late)
	for i, f := range allFaults {
		if p.weights[i] > 0 {
			out += fmt.Sprintf(" %s:%d", f.name, p.weights[i])
		}
	}
	if p.clocks == clocksOfAll {
		out += " all-clocks"
	}
	return strings.TrimSpace(out)
}
