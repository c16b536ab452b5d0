package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/world"
)

// Keep is a long time in which minute budgets roll over in several regions and nobody asks for anything: what the ledgers
// cost etcd, in writes and in what it holds.
type Keep struct {
	Seed      uint64
	Regions   int
	Budgets   int
	RunsAlone allocation.Duration       // of each budget; 0: the default
	For       time.Duration             // of simulated time
	Every     time.Duration             // how often what etcd holds is looked at
	Looked    func(after time.Duration) // hears of each look; nil: nobody does
}

// Kept is what came of it.
type Kept struct {
	LedgerWrites int          // from the first whole term on, until the end
	Terms        int          // that were opened meanwhile
	Periods      int          // of all budgets, that began meanwhile
	Revisions    int64        // of the store, meanwhile
	Held         []HeldByKind // one at each look
}

// HeldByKind is what etcd holds at one time: bytes of keys and values, by kind of document.
type HeldByKind struct {
	After time.Duration
	Bytes map[string]int64
}

// plan is a world without faults, requests and changes.
func (o Keep) plan() *plan {
	p := &plan{
		coordinators: 1, closeGrace: 60, retention: allocation.Day, keepClosings: coordinator.DefaultClosingRetention, lanes: 1,
		faults: faultPlan{weights: make([]int, len(allFaults)), every: time.Hour},
	}
	weights := map[string]int64{}
	for i := range o.Regions {
		name := fmt.Sprint("region-", i+1)
		p.regions = append(p.regions, regionPlan{name: name, nodes: 1})
		weights[name] = 1
	}
	limit := int64(100 * o.Regions)
	for i := range o.Budgets {
		tenant := fmt.Sprint("tenant-", i)
		p.budgets = append(p.budgets, budgetPlan{Budget: allocation.Budget{
			Name: tenant + "/requests", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
			Match: map[string]string{"tenant": tenant}, Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: weights}, RunsAloneFor: o.RunsAlone,
		}})
	}
	return p
}

// RunKeep makes the run. An error is a broken invariant, or that of ctx.
func RunKeep(ctx context.Context, o Keep) (Kept, error) {
	w := world.New(world.Options{Seed: o.Seed, Ring: 512})
	f := assemble(Options{Seed: o.Seed, For: o.For, Kind: KindCalm}, w, o.plan())
	defer w.Close()
	var out Kept
	counting, known := false, map[string]bool{}
	before := f.etcd.OnCommit
	f.etcd.OnCommit = func(who string, revision int64, events []coordinator.Event) {
		before(who, revision, events)
		for _, e := range events {
			if e.Deleted || !strings.HasPrefix(e.Key, coordinator.Root+"ledgers/") {
				continue
			}
			if counting {
				out.LedgerWrites++
				if !known[e.Key] {
					out.Terms++
				}
			}
			known[e.Key] = true
		}
	}
	w.Go("script", func() {
		all := f.w.Outside()
		inside := all.Context()
		for f.admin == "" {
			all.Sleep(inside, 50*time.Millisecond)
		}
		f.operator.begin(inside)
		// What the first minutes open at once, and bring on while regions join, is no habit.
		all.Sleep(inside, 5*time.Minute)
		counting = true
		began, revision := f.w.Now(), f.etcd.Revision()
		for f.w.Now().Sub(began) < o.For && ctx.Err() == nil {
			all.Sleep(inside, o.Every)
			out.Held = append(out.Held, f.held(f.w.Now().Sub(began)))
			if o.Looked != nil {
				o.Looked(f.w.Now().Sub(began))
			}
		}
		out.Periods = o.Budgets * int(f.w.Now().Sub(began)/time.Minute)
		out.Revisions = f.etcd.Revision() - revision
		f.healed = true
		f.w.End()
	})
	err := w.Run(o.For + time.Hour)
	switch {
	case err != nil:
		return out, err
	case ctx.Err() != nil:
		return out, ctx.Err()
	case !f.healed:
		return out, errors.New("the run did not come to its end")
	}
	return out, nil
}

func (f *fleet) held(after time.Duration) HeldByKind {
	h := HeldByKind{After: after, Bytes: map[string]int64{}}
	for _, item := range f.etcd.Items(coordinator.Root) {
		kind, _, _ := strings.Cut(strings.TrimPrefix(item.Key, coordinator.Root), "/")
		h.Bytes[kind] += int64(len(item.Key) + len(item.Value))
	}
	return h
}
