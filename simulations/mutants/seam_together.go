package mutants

import (
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// together is a world in which etcd and a database go back at once, while somebody changes limits all the time.
var together = arena{name: "etcd and a database that go back together", long: 45 * time.Second, kind: "lost-together", focus: fleet.Focus{
	Clients: 2, Think: 150 * time.Millisecond, Operate: 1200 * time.Millisecond, Drift: -1, AtCommit: -1, Clocks: "right", Lose: -1, Regions: 2, Limit: 40,
}}

// believeLimits takes it for known that no limit was higher in what etcd lost: a raise is granted at once.
func believeLimits() storeSeam {
	was := map[string][]byte{}
	return storeSeam{
		read: func(i *coordinator.Item) {
			value := i.Value
			if i.Key == historyAt && edit(i, func(d *coordinator.StandingDocument) (changed bool) {
				d.Standing, changed = d.KnowLimits()
				return changed
			}) {
				was[string(i.Value)] = value
			}
		},
		commit: comparesAsRead(was),
	}
}

// doubleLossMutants are those of what etcd and a region lost together.
func doubleLossMutants() []Mutant {
	return []Mutant{
		inFleet("believe-limits", "a raise is granted at once, whatever a region may have spent under a limit that was lost with it", together, storeSeams(believeLimits), 1, 2, 4),
	}
}
