package fleet

import (
	"math/rand/v2"
	"time"

	"tranche/allocation"
)

// kindTogether is a loss of both sides at once: what the one lost, the other cannot tell.
const kindTogether = "lost-together"

// together is its place among all faults.
const together = 24

// drawTogether gives it a weight in some runs.
func (p *faultPlan) drawTogether(r *rand.Rand) {
	if r.IntN(8) == 0 {
		p.weights[together] = 2 + r.IntN(4)
	}
}

// lostTogether puts etcd and a region's database back to what they were seconds before. The coordinators remember their marks
// and the region's nodes theirs, so both notice; what the region spent meanwhile, under a limit that was raised and lowered
// again, nobody can say. Then somebody raises it once more.
func (x *faults) lostTogether() {
	f, r := x.fleet, x.victim()
	db, drawn := r.db, x.chosen != nil
	backup, snapshot := db.Backup(), f.etcd.Snapshot()
	after := func(most time.Duration) time.Duration { return time.Second + time.Duration(x.lost.Int64N(int64(most))) }
	raised, lowered, again := after(4*time.Second), after(3*time.Second), after(4*time.Second)
	b := f.plan.longest(x.lost)
	f.w.Go("person", func() {
		o := f.operator
		ctx := o.process.Context()
		limit := func(n int64) func(*allocation.Budget) { return func(b *allocation.Budget) { b.Limit = &n } }
		o.change(ctx, b, limit(2**b.Limit))
		o.process.Sleep(ctx, raised)
		o.change(ctx, b, limit(*b.Limit/3))
		o.process.Sleep(ctx, lowered)
		if x.over || f.lostWhole || r.db != db || drawn && !r.ready() {
			return
		}
		x.spare(r)
		db.RestoreLogically(backup)
		f.etcd.Restore(snapshot, 0)
		f.check.restored()
		o.process.Sleep(ctx, again)
		o.change(ctx, b, limit(2**b.Limit))
	})
}

// longest is a budget that may be changed, of a long period if there is one.
func (p *plan) longest(r *rand.Rand) budgetPlan {
	var long, all []budgetPlan
	for _, b := range p.budgets {
		if b.steady || b.IsTemplate() {
			continue
		}
		if all = append(all, b); b.Window.Every == 0 || b.Window.Every >= 30 {
			long = append(long, b)
		}
	}
	if len(long) > 0 {
		all = long
	}
	return all[r.IntN(len(all))]
}
