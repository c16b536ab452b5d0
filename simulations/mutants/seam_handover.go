package mutants

import (
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// handedOver is a world in which owners move to other databases all the time.
var handedOver = arena{name: "owners that are handed over", focus: fleet.Focus{
	Faults: map[string]int{"cut-link": 2, "crash-node": 2, "crash-coordinator": 1, "cut-coordinator": 3}, Every: 3 * time.Second, Handovers: 2 * time.Second,
	Nodes: 2, Clients: 2, Think: 200 * time.Millisecond, Late: 0.04, LateMost: 12 * time.Second, Operate: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// handedGoesOn lets the nodes not see that their owner was handed over for good, nor its database.
func handedGoesOn() fleet.Seams {
	s := ownerSeams(func() ownerSeam {
		return ownerSeam{loaded: func(l *regional.Loaded) {
			if l.Handover.To == (allocation.Home{}) {
				return
			}
			if l.Handover = (regional.Handover{}); l.Detail == regional.ErrHandedOver.Error() {
				l.Stopped, l.Detail = "", ""
			}
		}}
	})()
	s.Breaks.HandedGoesOn = true
	return s
}

// handoverMutants are those of an owner that moves to another database.
func handoverMutants() []Mutant {
	return []Mutant{
		inFleet("handover-old-goes-on", "an owner that was handed over for good goes on spending", handedOver, handedGoesOn, 3),
		inFleet("handover-uncompared", "a copy takes over that lacks the last commits", handedOver, func() fleet.Seams { return fleet.Seams{Uncompared: true} }, 2, 3, 4, 6, 8, 11),
	}
}
