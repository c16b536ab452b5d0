package fleet

import (
	"math/rand/v2"
	"slices"
	"time"

	"tranche/simulations/internal/ownertwin"
	"tranche/simulations/internal/world"
)

// What loses the history of a region's database is drawn among the other faults, too. The services answer it as long as
// somebody remembers what is gone: a node that wrote it, or the coordinator that was told of it. If all memories go
// together with what they remember, nobody can know; that is what the runbook says of it, and no fault that a service must
// survive. So a loss comes where every node of the region serves, and none of them is crashed until it could say what it knows.
//
// A node that alone knows what was lost must be able to say so, over whichever of its connections: where it is cut off from the
// database, or stands still, for longer than the others wait for it, its permits are sold twice. Losses alone are kinds of their
// own: see kinds_lost.go.

// mostLosses is how often databases lose history in one run: each time a region begins with nothing.
const mostLosses = 3

// sparedFor is for how long, at least, no node of a region is crashed that lost history.
const sparedFor = 8 * time.Second

// lossRemembered bounds how far before it a loss may reach back.
const lossRemembered = time.Minute

// losing is the fault of a kind of runs, as one among others.
func losing(kind string) func(*faults) {
	return func(x *faults) {
		if x.losses >= mostLosses {
			return
		}
		var ready []*region
		for _, r := range x.fleet.regions {
			if r.ready() {
				ready = append(ready, r)
			}
		}
		if len(ready) == 0 {
			return
		}
		x.losses++
		x.chosen = ready[x.lost.IntN(len(ready))]
		x.spare(x.chosen)
		expectedOf(kind).do(x)
	}
}

// drawLosses gives losses a weight in some runs, of etcd and of databases.
func (p *faultPlan) drawLosses(r *rand.Rand) {
	losses := r.IntN(3) == 0
	for i := range allFaults[ordinary:together] {
		if weight := max(0, r.IntN(12)-8); losses {
			p.weights[ordinary+i] = weight
		}
	}
}

// apart keeps apart what a person does to databases and to etcd, and what loses the history of databases: an owner that is being
// handed over and loses commits meanwhile, or that starts over while an empty etcd waits for its word, comes right by more than
// the simulated person knows to do.
func (p *plan) apart() {
	if p.handovers > 0 {
		p.gone = 0
	}
	if p.handovers > 0 || p.gone > 0 {
		clear(p.faults.weights[ordinary:])
	}
	p.raises = p.raises && p.faults.weights[together] == 0 // an override's end lowers a limit, of which both sides may then know nothing
}

// drawMovedBack lets etcd go back in some of the runs with handovers, in the midst of them.
func (p *plan) drawMovedBack(r *rand.Rand) {
	if p.handovers > 0 && r.IntN(3) == 0 {
		p.faults.weights[ordinary] = 1 + r.IntN(4)
	}
}

// ready says whether all nodes of a region serve. One that is being stopped takes what it knows with it.
func (r *region) ready() bool {
	return r.started && !slices.ContainsFunc(r.nodes, func(n *node) bool {
		return n.current == nil || !n.current.Status().Ready || n.process.Context().Err() != nil
	})
}

// sparing is why no node of a region is crashed: its database lost history, which one of them may know alone.
type sparing struct {
	at          time.Duration
	db          *ownertwin.Database
	incarnation string
}

// spare lets no node of a region be crashed for a while, and until it has said what it knows to be lost: a connection that broke
// in silence keeps it from the database for longer than that.
func (x *faults) spare(r *region) {
	x.spared[r] = sparing{x.fleet.w.Elapsed(), r.db, r.db.Incarnation()}
}

// spares says whether a process is not to be crashed now.
func (x *faults) spares(p *world.Process) bool {
	for r, s := range x.spared {
		if slices.ContainsFunc(r.nodes, func(n *node) bool { return n.process == p }) {
			return x.fleet.w.Elapsed() < s.at+sparedFor || s.db.Incarnation() == s.incarnation && x.knowsAlone(s, p)
		}
	}
	return false
}

// knowsAlone says whether something is lost that a node was told to be committed, and it has not recorded that since. It is the
// one of its writers whose mark is gone that finds it, over whatever connection that stands; the others go on.
func (x *faults) knowsAlone(s sparing, p *world.Process) bool {
	for _, c := range slices.Backward(x.fleet.truth.Commits()) {
		if c.Process != p.Name() || c.Database != s.db.Name() {
			continue
		}
		switch {
		case c.Lost && c.Acknowledged:
			return true
		case c.What == "lose" && !c.Lost, c.At < s.at-lossRemembered:
			return false
		}
	}
	return false
}

// forgetOne waits until the last that a database has is what one node admitted, and then lets it forget what that node
// committed last.
func (x *faults) forgetOne(r *region, tries int) {
	switch n := r.db.TailOfOne(); {
	case x.over || tries == 0:
	case n > 0 && (x.chosen == nil || r.ready()):
		x.spare(r)
		r.db.LoseTail(n)
	default:
		x.fleet.w.After(20*time.Millisecond, func() { x.forgetOne(r, tries-1) })
	}
}
