package mutants

import (
	"context"
	"slices"
	"strings"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/fleet"
)

// leaving is a world in which a region is removed, and registered again.
var leaving = arena{name: "a region that leaves", long: 45 * time.Second, focus: fleet.Focus{
	Faults: map[string]int{"cut-region": 3, "cut-link": 1}, Every: 8 * time.Second, Acts: time.Second, Leave: true, Nodes: 1, Clients: 2, Think: 300 * time.Millisecond,
	Operate: -1, Handovers: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
}}

// regionPuts shows every region's document that a transaction writes.
func regionPuts(t *coordinator.Txn, change func(d *coordinator.RegionDocument) bool) {
	for i := range t.Puts {
		if strings.HasPrefix(t.Puts[i].Key, regionsAt) {
			edit(&t.Puts[i], change)
		}
	}
}

// removeAtOnce removes a region as soon as it is to drain, with all that it holds.
func removeAtOnce() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		regionPuts(&t, func(d *coordinator.RegionDocument) bool {
			if !d.Draining || d.Incarnation == "" || d.Removed != nil {
				return false
			}
			d.Former, d.Incarnation = append(d.Former, d.Incarnation), ""
			d.Removed = &coordinator.Removal{Reason: "it drains", By: "nobody"}
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// forgetRemoved registers the name of a removed region as if there had never been one.
func forgetRemoved() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		regionPuts(&t, func(d *coordinator.RegionDocument) bool {
			was := slices.ContainsFunc(t.Compares, func(c coordinator.Item) bool {
				removed := false
				edit(&c, func(before *coordinator.RegionDocument) bool {
					removed = before.Region == d.Region && before.Removed != nil
					return false
				})
				return removed && strings.HasPrefix(c.Key, regionsAt)
			})
			if !was || len(d.Former) == 0 {
				return false
			}
			d.Former = nil
			return true
		})
		return s.Commit(ctx, t)
	}}
}

// leaveMutants are those of regions that are removed.
func leaveMutants() []Mutant {
	return []Mutant{
		inFleet("remove-with-permits", "a region is removed as soon as it drains, with all that it holds", leaving, storeSeams(removeAtOnce), 5),
		inFleet("forget-removed", "a region that was removed leaves no document: its old database passes for one of which etcd never heard", leaving, storeSeams(forgetRemoved), 8),
	}
}
