package simulations

import (
	"context"
	"time"

	"tranche/simulations/internal/fleet"
)

// KeepOptions says how long how many minute budgets roll over.
type KeepOptions struct {
	Seed     uint64
	Regions  int
	Budgets  int
	For      time.Duration            // of simulated time
	Progress func(done time.Duration) // nil: nobody hears it
}

// Kept is what ledgers cost etcd while minute budgets roll over, with the real coordinator and nodes in the simulated world.
type Kept struct {
	Regions      int        `json:"regions"`
	Budgets      int        `json:"budgets"`
	For          string     `json:"for"`
	Periods      int        `json:"periods"`       // of all budgets, that began meanwhile
	Terms        int        `json:"terms"`         // that were opened meanwhile
	LedgerWrites int        `json:"ledger_writes"` // meanwhile
	Revisions    int64      `json:"revisions"`     // of etcd, meanwhile
	Held         []KeptLook `json:"etcd_holds"`
}

// KeptLook is what etcd held at one time: bytes of keys and values.
type KeptLook struct {
	Hours float64          `json:"after_hours"`
	Bytes map[string]int64 `json:"bytes"` // by kind of document
	All   int64            `json:"all_bytes"`
}

// keptLooks is how often what etcd holds is looked at.
const keptLooks = 13

// MeasureKept measures it. An error is a broken invariant, or that of ctx.
func MeasureKept(ctx context.Context, o KeepOptions) (Kept, error) {
	kept := Kept{Regions: o.Regions, Budgets: o.Budgets, For: o.For.String(), Held: []KeptLook{}}
	k, err := fleet.RunKeep(ctx, fleet.Keep{Seed: o.Seed, Regions: o.Regions, Budgets: o.Budgets, For: o.For, Every: o.For / keptLooks, Looked: o.Progress})
	if err != nil {
		return kept, err
	}
	kept.Periods, kept.Terms, kept.LedgerWrites, kept.Revisions = k.Periods, k.Terms, k.LedgerWrites, k.Revisions
	for _, h := range k.Held {
		look := KeptLook{Hours: h.After.Hours(), Bytes: h.Bytes}
		for _, n := range h.Bytes {
			look.All += n
		}
		kept.Held = append(kept.Held, look)
	}
	return kept, nil
}
