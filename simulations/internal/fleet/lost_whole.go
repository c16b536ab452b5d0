package fleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/ownertwin"
)

// kindEtcdEmpty is a run in which nothing is left of etcd, and a person does what the runbook says.
const kindEtcdEmpty = "etcd-empty"

// tokenWithin is how long the person waits for the first admin token, before beginning once more with an empty etcd.
const tokenWithin = 20 * time.Second

// drawGone lets some runs lose their etcd whole, at some time.
func (p *plan) drawGone(r *rand.Rand) {
	if r.IntN(8) == 0 {
		p.gone = 5*time.Second + time.Duration(r.Int64N(int64(30*time.Second)))
	}
}

func (x *faults) laterGone() {
	if after := x.fleet.plan.gone; after > 0 && x.fleet.o.Kind == KindFaults {
		x.fleet.w.After(after, func() {
			if !x.over {
				x.done[kindEtcdEmpty]++
				x.fleet.w.Trace("fault", kindEtcdEmpty)
				x.etcdGone()
			}
		})
	}
}

// etcdGone takes etcd away with all that it holds, once in a run.
func (x *faults) etcdGone() {
	f := x.fleet
	if f.lostWhole {
		return
	}
	f.lostWhole = true
	f.etcd.SetQuorum(false)
	f.w.Go("person", func() { f.operator.goOnInEmpty(x.lost.Int64N(int64(10 * time.Second))) })
}

// goOnInEmpty is the runbook's "an etcd that is gone": the coordinators start over an empty etcd with the deployment's id and
// all its regions, each region is registered with what its database says, the budgets are declared as they were, and only
// then do the nodes get their new tokens.
func (o *operator) goOnInEmpty(after int64) {
	ctx, f := o.process.Context(), o.fleet
	o.process.Sleep(ctx, time.Duration(after))
	files := o.files()
	f.barred, f.goOn = true, &coordinator.GoOn{Deployment: f.regions[0].deployment}
	for _, r := range f.regions {
		f.goOn.Regions = append(f.goOn.Regions, r.name)
	}
	for f.admin = ""; f.admin == ""; {
		for _, r := range f.replicas {
			r.process.Crash() // so that none makes the deployment in there without the regions
		}
		f.etcd.SetQuorum(true) // what waited for it is not done in the new one
		f.etcd.Restore(etcdtwin.Empty(), 0)
		f.check.restored()
		for waited := time.Duration(0); f.admin == "" && waited < tokenWithin; waited += 100 * time.Millisecond {
			o.process.Sleep(ctx, 100*time.Millisecond)
		}
	}
	for _, r := range f.regions {
		o.until(ctx, "POST", "/v1/regions", coordinator.RegisterRequest{Region: r.name, Owner: o.known(ctx, r)})
	}
	for _, b := range files {
		f.anew[b.Name] = b.OpeningSpent
		if r := o.until(ctx, "POST", "/v1/budgets", b); r.status != http.StatusCreated && r.status != http.StatusConflict && ctx.Err() == nil { // an answer may have been lost
			f.w.Fail(fmt.Errorf("declare %s in the etcd that was empty: %d %s", b.Name, r.status, r.body))
		}
	}
	f.barred, f.goOn = false, nil // from the next start on
	f.notes["runs that went on in an empty etcd"]++
}

// files are the budgets as they are kept beside etcd: as they were declared last.
func (o *operator) files() (list []allocation.Budget) {
	for _, p := range o.fleet.plan.budgets {
		if v := o.fleet.check.budgets[p.Name]; v != nil && !v.doc.Deleted && v.doc.Version > 0 {
			b := v.doc.Budget.WithoutOverride() // a file never has one
			// What was spent before its first period may be above a limit that was lowered since; a new declaration may not say so.
			b.OpeningSpent = min(b.OpeningSpent, b.LimitOrZero())
			list = append(list, b)
		}
	}
	return list
}

// known is what a region's database says of its owner; nil: it holds nothing that could go on.
func (o *operator) known(ctx context.Context, r *region) *coordinator.KnownOwner {
	for {
		bounded, cancel := o.process.WithTimeout(ctx, 10*time.Second)
		loaded, err := ownertwin.NewOwner(ownertwin.NewEndpoint(r.db), o.process, r.name).Load(bounded, 0)
		cancel()
		switch {
		case err == nil && (loaded.Incarnation == "" || loaded.Lost):
			return nil
		case err == nil:
			return &coordinator.KnownOwner{Incarnation: loaded.Incarnation, Home: loaded.Home}
		}
		o.fleet.w.Trace("register", fmt.Sprint(r.name, ": ", err))
		o.process.Sleep(ctx, 500*time.Millisecond)
	}
}

// missingRegister says that the runbook was not followed to its end yet.
func (f *fleet) missingRegister(say func(string, ...any)) {
	if f.barred {
		say("the regions are not registered in the etcd that was empty")
	}
}
