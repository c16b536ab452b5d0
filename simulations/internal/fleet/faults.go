package fleet

import (
	"math/rand/v2"
	"time"

	"tranche/simulations/internal/network"
	"tranche/simulations/internal/ownertwin"
	"tranche/simulations/internal/world"
)

// fault is one thing that goes wrong.
type fault struct {
	name string
	do   func(*faults)
}

var allFaults = []fault{
	{"crash-node", (*faults).crashNode},
	{"crash-coordinator", (*faults).crashCoordinator},
	{"stop-node", (*faults).stopNode},
	{"restart-postgres", (*faults).restartPostgres},
	{"pause", (*faults).pause},
	{"cut-link", (*faults).cutLink},
	{"cut-region", (*faults).cutRegion},
	{"cut-coordinator", (*faults).cutCoordinator},
	{"etcd-quorum", (*faults).quorum},
	{"etcd-restart", (*faults).etcdRestart},
	{"etcd-compact", (*faults).compact},
	{"clock-jump", (*faults).jump},
	{"slow-disk", (*faults).slowDisk},
	{"replica-away", (*faults).replicaAway},
	{"zone-data", (*faults).upgradeZones},
	{"etcd-restored", (*faults).etcdRestored},
	{"restore-logically", losing("restore-logically")},
	{"restore-physically", losing("restore-physically")},
	{"restore-copy", losing("restore-copy")},
	{"unsafe-crash", losing("unsafe-crash")},
	{"failover-lossy", losing("failover-lossy")},
	{"failover-lossless", losing("failover-lossless")},
	{"local-commit-lost", losing("local-commit-lost")},
	{"unsafe-crash-of-one", losing("unsafe-crash-of-one")},
	{kindTogether, losing(kindTogether)},
	{"etcd-step-back", (*faults).etcdStepBack},
}

// before are the faults whose weights are drawn first; those of the others are drawn from a stream of their own.
const before = 14

// ordinary are the faults that lose no history. Those that do are drawn in some runs only: see drawLosses.
const ordinary = 15

// clockJump is the fault that moves a clock, among all.
const clockJump = 11

// faults makes them, and takes them all back.
type faults struct {
	fleet  *fleet
	plan   faultPlan
	random *rand.Rand
	crash  *rand.Rand // of crashes around commits
	lost   *rand.Rand // of what loses history
	loses  *Expected  // history, in a run of that kind
	begun  bool
	over   bool
	done   map[string]int
	losses int                 // of databases, that were drawn
	chosen *region             // by the loss that was drawn last; nil: none was
	spared map[*region]sparing // none of its nodes is crashed
}

func newFaults(f *fleet) *faults {
	x := &faults{fleet: f, plan: f.plan.faults, random: f.w.Random("faults"), crash: f.w.Random("crash"), lost: f.w.Random("lost"), done: map[string]int{}, spared: map[*region]sparing{}}
	switch f.o.Kind {
	case KindFaults:
	case KindCalm:
		x.plan = faultPlan{weights: make([]int, len(allFaults)), every: time.Hour}
	default:
		x.plan = faultPlan{weights: make([]int, len(allFaults)), every: time.Hour}
		x.loses = expectedOf(f.o.Kind)
	}
	return x
}

// pairs are all links between processes that talk to each other.
func (x *faults) pairs() (all [][2]*world.Process) {
	f := x.fleet
	add := func(a, b *world.Process) { all = append(all, [2]*world.Process{a, b}, [2]*world.Process{b, a}) }
	for _, c := range f.replicas {
		add(c.process, f.etcd.Server())
	}
	for _, r := range f.regions {
		for _, n := range r.nodes {
			add(n.process, r.db.Server())
			for _, c := range f.replicas {
				add(n.process, c.process)
			}
			for _, c := range f.clients {
				if c.region == r {
					add(c.process, n.process)
				}
			}
		}
	}
	return all
}

// run makes faults until they are over.
func (x *faults) run() {
	x.begin()
	if x.loses != nil {
		x.fleet.w.After(x.fleet.o.For/3, func() {
			x.done[x.loses.Name]++
			x.fleet.w.Trace("fault", x.loses.Name)
			x.loses.do(x)
		})
	}
	x.laterGone()
	total := 0
	for _, w := range x.plan.weights {
		total += w
	}
	out := x.fleet.w.Outside()
	for !x.over && total > 0 {
		out.Sleep(out.Context(), time.Duration(x.random.Int64N(int64(x.plan.every))))
		if x.over {
			return
		}
		pick, kind := x.random.IntN(total), 0
		for pick >= x.plan.weights[kind] {
			pick -= x.plan.weights[kind]
			kind++
		}
		x.done[allFaults[kind].name]++
		x.fleet.w.Trace("fault", allFaults[kind].name)
		allFaults[kind].do(x)
	}
}

// begin sets what is wrong all the time.
func (x *faults) begin() {
	f := x.fleet
	x.begun = true
	for _, pair := range x.pairs() {
		x.worsen(f.net.Link(pair[0].Name(), pair[1].Name()), x.random)
	}
	f.etcd.WatchLag, f.etcd.LeaderLag = x.plan.watchLag, x.plan.leaderLag
	if x.plan.drift > 0 {
		for _, c := range x.clocks() {
			c.Drift(x.random.Int64N(2*x.plan.drift+1) - x.plan.drift)
		}
	}
	if x.plan.replica {
		for _, r := range f.regions {
			r.db.SetReplica(true, false)
		}
	}
}

// worsen sets what is wrong with a link all the time.
func (x *faults) worsen(c *network.Conditions, r *rand.Rand) {
	c.Lose, c.Repeat, c.Late, c.LateMost = r.Float64()*x.plan.lose, r.Float64()*x.plan.repeat, r.Float64()*x.plan.late, x.plan.lateMost
}

func (x *faults) clocks() (all []*world.Clock) {
	for _, c := range x.fleet.replicas {
		all = append(all, c.process.Clock)
	}
	for _, r := range x.fleet.regions {
		all = append(all, r.db.Clock())
		for _, n := range r.nodes {
			all = append(all, n.process.Clock)
		}
	}
	return all
}

// heal takes everything back.
func (x *faults) heal() {
	f := x.fleet
	x.over = true
	f.w.Trace("heal", "")
	f.net.Heal()
	f.etcd.Disk, f.etcd.WatchLag, f.etcd.LeaderLag = 0, 0, 0
	f.etcd.SetQuorum(true)
	f.etcd.Server().Resume()
	for _, c := range x.clocks() {
		c.Right()
	}
	for _, r := range f.regions {
		r.db.Disk = normalDisk
		r.db.SetReplica(r.db.SyncReplica, false)
		r.db.CancelReplicaWaits(false)
		r.db.Server().Resume()
		r.db.Start()
		for _, n := range r.nodes {
			n.process.Resume()
		}
	}
	for i, c := range f.replicas {
		c.process.Resume()
		if c.setZones(0); i > 0 && i == len(f.replicas)-1 {
			c.setZones(zoneUnknown) // an old machine that nobody looks after: the others have to open terms, whoever leads
		}
	}
	for _, r := range f.regions {
		for _, db := range r.left {
			db.Server().Resume()
			db.Start()
		}
	}
	for _, c := range f.clients {
		c.process.Resume()
	}
}

// around may crash a process between an effect of its own and the answer to it.
func (x *faults) around(process string) {
	if !x.begun || x.over || x.plan.atCommit == 0 || x.crash.Float64() >= x.plan.atCommit {
		return
	}
	for _, p := range x.services() {
		if p.Name() == process && !x.spares(p) {
			x.done["crash-at-commit"]++
			x.fleet.w.After(time.Duration(x.crash.IntN(int(2*time.Millisecond))), p.Crash)
		}
	}
}

func (x *faults) services() (all []*world.Process) {
	for _, c := range x.fleet.replicas {
		all = append(all, c.process)
	}
	for _, r := range x.fleet.regions {
		for _, n := range r.nodes {
			all = append(all, n.process)
		}
	}
	return all
}

func (x *faults) a(d ...time.Duration) time.Duration {
	return time.Duration(1 + x.random.Int64N(int64(oneOf(x.random, d...))))
}

func (x *faults) node() *node {
	r := x.fleet.regions[x.random.IntN(len(x.fleet.regions))]
	return r.nodes[x.random.IntN(len(r.nodes))]
}

func (x *faults) replica() *replica { return x.fleet.replicas[x.random.IntN(len(x.fleet.replicas))] }

func (x *faults) database() *ownertwin.Database {
	return x.fleet.regions[x.random.IntN(len(x.fleet.regions))].db
}

func (x *faults) crashNode() {
	if n := x.node(); !x.spares(n.process) {
		n.process.Crash()
	}
}

func (x *faults) stopNode() {
	if n := x.node(); !x.spares(n.process) {
		n.process.Stop()
	}
}

// crashCoordinator ends a replica, now and then in good order.
func (x *faults) crashCoordinator() {
	p := x.replica().process
	if x.random.IntN(4) == 0 {
		p.Stop()
		return
	}
	p.Crash()
}

func (x *faults) restartPostgres() {
	db := x.database()
	db.Crash()
	x.fleet.w.After(x.a(time.Millisecond, 500*time.Millisecond, 5*time.Second), db.Start)
}

// pause lets a process, a database or etcd stand still for a while.
func (x *faults) pause() {
	all := append(x.services(), x.database().Server(), x.fleet.etcd.Server())
	p := all[x.random.IntN(len(all))]
	p.Pause()
	x.fleet.w.After(x.a(100*time.Millisecond, time.Second, 10*time.Second, 30*time.Second), p.Resume)
}

func (x *faults) cutFor(l *network.Conditions) {
	l.Cut = true
	x.fleet.w.After(x.a(500*time.Millisecond, 5*time.Second, 20*time.Second), func() { l.Cut = false })
}

// cutLink cuts one direction between two processes.
func (x *faults) cutLink() {
	pairs := x.pairs()
	pair := pairs[x.random.IntN(len(pairs))]
	x.cutFor(x.fleet.net.Link(pair[0].Name(), pair[1].Name()))
}

// cutRegion cuts a whole region off from all coordinators.
func (x *faults) cutRegion() {
	r := x.fleet.regions[x.random.IntN(len(x.fleet.regions))]
	length := x.a(5*time.Second, 20*time.Second, 40*time.Second)
	oneWay := x.random.IntN(3)
	for _, n := range r.nodes {
		for _, c := range x.fleet.replicas {
			for i, l := range []*network.Conditions{x.fleet.net.Link(n.process.Name(), c.process.Name()), x.fleet.net.Link(c.process.Name(), n.process.Name())} {
				if oneWay != i {
					l.Cut = true
					x.fleet.w.After(length, func() { l.Cut = false })
				}
			}
		}
	}
}

func (x *faults) cutCoordinator() {
	c, etcd := x.replica().process.Name(), x.fleet.etcd.Server().Name()
	if x.random.IntN(2) == 0 {
		x.cutFor(x.fleet.net.Link(c, etcd))
	}
	x.cutFor(x.fleet.net.Link(etcd, c))
}

func (x *faults) quorum() {
	x.fleet.etcd.SetQuorum(false)
	x.fleet.w.After(x.a(500*time.Millisecond, 8*time.Second, 15*time.Second), func() { x.fleet.etcd.SetQuorum(true) })
}

func (x *faults) etcdRestart() { x.fleet.etcd.Restart() }

func (x *faults) compact() { x.fleet.etcd.Compact(x.fleet.etcd.Revision()) }

// jump moves one clock of the side whose clocks are wrong in this run.
func (x *faults) jump() {
	var c *world.Clock
	switch x.plan.clocks {
	case clocksRight:
		return
	case clocksOfNodes:
		c = x.node().process.Clock
	case clocksOfDatabases:
		c = x.database().Clock()
	case clocksOfCoordinators:
		c = x.replica().process.Clock
	case clocksOfAll:
		all := x.clocks()
		c = all[x.random.IntN(len(all))]
	}
	d := x.a(time.Second, 10*time.Second, time.Minute, time.Hour, 40*24*time.Hour)
	if x.plan.jump > 0 {
		d = x.a(x.plan.jump)
	}
	if x.random.IntN(2) == 0 {
		d = -d
	}
	x.fleet.check.clocks()
	c.Jump(d)
	x.fleet.check.clocks()
}

const normalDisk = 2 * time.Millisecond

func (x *faults) slowDisk() {
	slow := x.a(10*time.Millisecond, 300*time.Millisecond, 3*time.Second)
	length := x.a(2*time.Second, 15*time.Second)
	if x.random.IntN(3) == 0 {
		x.fleet.etcd.Disk = slow
		x.fleet.w.After(length, func() { x.fleet.etcd.Disk = 0 })
		return
	}
	db := x.database()
	db.Disk = slow
	x.fleet.w.After(length, func() { db.Disk = normalDisk })
}

// replicaAway lets commits wait for a replica that does not answer; in some cases somebody cancels those waits.
func (x *faults) replicaAway() {
	db := x.database()
	if !db.SyncReplica {
		return
	}
	db.SetReplica(true, true)
	if x.random.IntN(2) == 0 {
		db.CancelReplicaWaits(true)
	}
	x.fleet.w.After(x.a(time.Second, 8*time.Second), func() {
		db.CancelReplicaWaits(false)
		db.SetReplica(true, false)
	})
}
