package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/regional"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/ownertwin"
	"tranche/simulations/internal/world"
)

// Seams let a caller put something between the services and the simulated stores: a mutant of the protocol, which
// production code does not pay for. Nil fields change nothing.
type Seams struct {
	Store       func(process string, s coordinator.Store) coordinator.Store
	Owner       func(process string, o regional.Owner) regional.Owner
	Coordinator func(process string, c regional.Coordinator) regional.Coordinator
	Sync        func(replica string, serve Sync) Sync // how a replica hears calls, as they arrive
	Breaks      ownertwin.Breaks                      // rules that every database leaves out

	Uncompared bool // a handover's copy takes over without being compared

	Door func(process string, requests []allocation.Request) []allocation.Request // how a node takes requests
}

// Sync answers a region's call.
type Sync func(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error)

// Options says what a run is.
type Options struct {
	Seed     uint64
	For      time.Duration // the safety phase; 0: DefaultFor
	Kind     string        // of the run: one of Kinds; empty: KindFaults
	Trace    io.Writer     // hears every line; nil: nobody does
	Lines    int           // of the trace that a report keeps; 0: 60
	Switches bool          // each time that a task goes on is a line of the trace, too
	Seams    Seams
	Focus    *Focus // narrows what the seed draws; nil: nothing is narrowed
}

// Defaults of Options.
const (
	DefaultFor   = 60 * time.Second
	defaultLines = 60

	unreachableAfter = 6 * time.Second
	afterFaults      = 8 * time.Second // clients go on for so long once all faults are over
)

// Result is how a run ended.
type Result struct {
	Seed      uint64
	Kind      string
	Plan      string
	Violation *Violation // the first one; nil: there was none
	End       string     // one of EndSurvived and its like
	Stopped   string     // who stopped for good, and why; empty: nobody did
	Lines     []world.Line
	Simulated time.Duration
	Decisions int
	Admitted  int
	Commits   int
	Revisions int64
	Faults    map[string]int // that were done, by name
	Reasons   map[string]int // of decisions
	Checked   map[int]int    // by invariant: how often it was judged
	Notes     map[string]int // what else was seen
	Periods   int            // of which every permit was spent
	Stats     world.Stats
}

// fleet is one run on its way.
type fleet struct {
	o    Options
	plan *plan
	w    *world.World
	net  *network.Net
	etcd *etcdtwin.Cluster

	truth    *ownertwin.Truth
	replicas []*replica
	regions  []*region
	clients  []*client
	operator *operator
	check    *checks
	faults   *faults
	keys     *keyring // nil: there are none
	moves    *handovers
	acts     *acts // nil: there are none

	admin     string            // the first admin token
	anew      map[string]int64  // what was spent before, of each budget that was declared anew in an etcd that was empty
	lostWhole bool              // etcd was lost with all that it held
	goOn      *coordinator.GoOn // with which replicas start
	barred    bool              // the regions' tokens are those of an etcd that is gone
	quiet     bool              // clients stop
	healed    bool
	gaveUp    string // who stopped for good, in a run that loses history
	decisions int
	admitted  int
	reasons   map[allocation.Reason]int
	notes     map[string]int
}

// replica is one coordinator.
type replica struct {
	fleet   *fleet
	process *world.Process
	service *coordinator.Service // of the present life
	handler http.Handler
	wrap    func(replica string, serve Sync) Sync // see Seams

	zoneData int // the version that its machine has
}

// region is one region: its database and its nodes.
type region struct {
	regionPlan
	fleet      *fleet
	db         *ownertwin.Database
	left       []*ownertwin.Database // that it was handed over from
	endpoint   *ownertwin.Endpoint   // where nodes that start connect to
	nodes      []*node
	deployment string
	started    bool
}

// node is one regional process.
type node struct {
	process  *world.Process
	region   *region
	endpoint *ownertwin.Endpoint // where it connects to
	current  *regional.Node      // of the present life; nil: it has none
	memory   memory
}

// nodeRuntime is a process as a node's runtime: the two packages name the same signal differently.
type nodeRuntime struct{ *world.Process }

func (r nodeRuntime) NewSignal() regional.Signal { return r.Process.NewSignal() }

func newFleet(o Options) *fleet {
	if o.For <= 0 {
		o.For = DefaultFor
	}
	if o.Lines <= 0 {
		o.Lines = defaultLines
	}
	if o.Kind == "" {
		o.Kind = KindFaults
	}
	if !ValidKind(o.Kind) {
		panic("fleet: no kind of run is called " + o.Kind)
	}
	w := world.New(world.Options{Seed: o.Seed, Trace: o.Trace, Ring: max(o.Lines, 512), Switches: o.Switches})
	p := newPlan(w.Random("plan"), w.Random("plan-more"), w.Now())
	p.drawHandovers(w.Random("plan-handovers"))
	p.drawGone(w.Random("plan-gone"))
	p.faults.drawTogether(w.Random("plan-together"))
	p.drawActs(w.Random("plan-acts"))
	p.apart()
	p.drawMovedBack(w.Random("plan-moved-back"))
	p.drawLeaving(w.Random("plan-leaving"))
	o.Focus.narrow(p)
	p.unname()
	return assemble(o, w, p)
}

// assemble makes the processes of a plan.
func assemble(o Options, w *world.World, p *plan) *fleet {
	f := &fleet{
		o: o, w: w, net: network.New(w), truth: ownertwin.NewTruth(), plan: p,
		reasons: map[allocation.Reason]int{}, notes: map[string]int{}, anew: map[string]int64{},
	}
	f.etcd = etcdtwin.New(f.net, w, "etcd", 3)
	f.check = newChecks(f)
	for i := range f.plan.coordinators {
		f.addReplica(fmt.Sprint("coordinator-", i), f.plan.zones.of(i))
		if i > 0 && f.plan.far > 0 {
			f.net.Far(f.replicas[i].process.Name(), f.etcd.Server().Name(), f.plan.far)
		}
	}
	for _, r := range f.plan.regions {
		f.addRegion(r)
	}
	f.operator = newOperator(f)
	f.faults = newFaults(f)
	f.keys = newKeyring(f)
	f.moves = newHandovers(f)
	f.acts = newActs(f)
	return f
}

func (f *fleet) addReplica(name string, zoneData int) {
	r := &replica{fleet: f, process: f.w.Process(name), wrap: f.o.Seams.Sync, zoneData: zoneData}
	store := coordinator.Store(f.etcd.Store(r.process))
	if wrap := f.o.Seams.Store; wrap != nil {
		store = wrap(name, store)
	}
	f.replicas = append(f.replicas, r)
	state := &stateFile{}
	r.process.OnEnd(func() { r.service, r.handler = nil, nil })
	f.start(r.process, func(ctx context.Context) {
		s := coordinator.New(coordinator.Config{
			Store: store, Memory: state, GoOn: f.goOn, Runtime: r.process, Random: r.process, ReportUnreachableAfter: unreachableAfter,
			ClosingRetention: f.plan.keepClosings, Zones: r.zones, OnFirstAdminToken: func(token string) { f.admin = token },
		})
		r.service, r.handler = s, s.Handler()
		if err := s.Run(ctx); err != nil && ctx.Err() == nil {
			f.w.Trace("ended", err.Error())
		}
	})
}

// sync is how a region's call arrives at a replica.
func (r *replica) sync(ctx context.Context, call allocation.SyncCall) (allocation.SyncAnswer, error) {
	if r.service == nil || r.fleet.barred {
		return allocation.SyncAnswer{}, errors.New("starting, or a token that is not known")
	}
	serve := Sync(r.service.Sync)
	if r.wrap != nil {
		serve = r.wrap(r.process.Name(), serve)
	}
	return serve(ctx, call)
}

func (f *fleet) addRegion(p regionPlan) {
	r := &region{regionPlan: p, fleet: f}
	f.regions = append(f.regions, r)
	r.db = ownertwin.New(f.net, f.w, f.truth, p.name+"/pg", p.name)
	r.db.Breaks = f.o.Seams.Breaks
	r.endpoint = ownertwin.NewEndpoint(r.db)
	for i := range p.nodes {
		n := &node{process: f.w.Process(fmt.Sprint(p.name, "/node-", i)), region: r, endpoint: r.endpoint}
		n.process.OnEnd(func() { n.current = nil })
		r.nodes = append(r.nodes, n)
	}
	for i := range f.plan.clients {
		f.clients = append(f.clients, newClient(f, r, i))
	}
}

// run starts the region's nodes and clients.
func (r *region) run() {
	if r.started {
		return
	}
	r.started = true
	for _, n := range r.nodes {
		r.fleet.start(n.process, n.main)
	}
	for _, c := range r.fleet.clients {
		if c.region == r {
			c.process.Start(c.run)
		}
	}
}

func (n *node) main(ctx context.Context) {
	f, r := n.region.fleet, n.region
	name := n.process.Name()
	var replicas []network.Replica
	for _, c := range f.replicas {
		replicas = append(replicas, network.Replica{Process: c.process, Sync: c.sync})
	}
	balanced := network.NewCoordinator(f.net, n.process, replicas...)
	balanced.Balanced = f.plan.balanced
	way := regional.Coordinator(balanced)
	if wrap := f.o.Seams.Coordinator; wrap != nil {
		way = wrap(name, way)
	}
	owner := regional.Owner(ownertwin.NewOwner(n.endpoint, n.process, r.name))
	if wrap := f.o.Seams.Owner; wrap != nil {
		owner = wrap(name, owner)
	}
	n.current = regional.NewNode(regional.Config{
		Region: r.name, Name: name, Deployment: r.deployment, Coordinator: way, Memory: &n.memory, CloseGrace: f.plan.closeGrace,
		Retention: f.plan.retention, Lanes: f.plan.lanes, Runtime: nodeRuntime{n.process},
	}, owner)
	if err := n.current.Run(ctx); err != nil && ctx.Err() == nil {
		f.w.Trace("ended", err.Error())
	}
}

// start runs a process and has it started again, after a while, whenever it ends.
func (f *fleet) start(p *world.Process, main func(ctx context.Context)) {
	r := f.w.Random("restart " + p.Name())
	again := func() {
		if !p.Up() {
			p.Start(main)
		}
	}
	p.OnEnd(func() {
		f.w.After(restartAfter(r), again)
	})
	p.Start(main)
}

func restartAfter(r *rand.Rand) time.Duration {
	return oneOf(r, 0, 100*time.Millisecond, time.Second, 4*time.Second) + time.Duration(r.IntN(1000))*time.Millisecond
}

// Run makes the run of a seed. An error is one of the simulator itself; what a checker found is in the result.
func Run(ctx context.Context, o Options) (*Result, error) {
	f := newFleet(o)
	defer f.w.Close()
	f.w.Go("script", f.script)
	err := f.w.Run(f.o.For + 10*time.Minute)
	result := f.result()
	var v *Violation
	switch {
	case errors.As(err, &v):
		result.Violation = v
		if v.Invariant != 0 {
			result.End = EndBroke
		}
	case err != nil:
		result.Violation = &Violation{Detail: err.Error(), At: f.w.Elapsed()}
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !f.healed:
		result.Violation = &Violation{Detail: "the run did not come to its end", At: f.w.Elapsed()}
	case f.check.twice.violation != nil:
		result.Violation, result.End = f.check.twice.violation, EndBroke
		f.notes[noteTwice] += int(f.check.twice.most)
	}
	return result, nil
}

func (f *fleet) result() *Result {
	lines := f.w.Lines()
	r := &Result{
		Seed: f.o.Seed, Kind: f.o.Kind, Plan: f.plan.String(), Lines: lines[max(0, len(lines)-f.o.Lines):], Simulated: f.w.Elapsed(),
		Decisions: f.decisions, Admitted: f.admitted, Commits: len(f.truth.Commits()), Revisions: f.etcd.Revision(), Faults: f.faults.done,
		Reasons: map[string]int{}, Checked: f.check.judged, Notes: f.notes, Stats: f.w.Stats(),
	}
	for reason, n := range f.reasons {
		r.Reasons[string(reason)] = n
	}
	r.Periods, r.Stopped, r.End = f.check.exhausted(), f.gaveUp, EndStuck
	switch {
	case f.gaveUp != "":
		r.End = EndStopped
	case f.healed:
		r.End = EndSurvived
	}
	return r
}

// script is the run from its beginning to its end.
func (f *fleet) script() {
	out := f.w.Outside()
	ctx := out.Context()
	for f.admin == "" {
		out.Sleep(ctx, 50*time.Millisecond)
	}
	f.operator.begin(ctx)
	f.keys.begin(ctx)
	out.Sleep(ctx, time.Second)
	f.w.Go("faults", f.faults.run)
	f.w.Go("operator", f.operator.run)
	if f.keys != nil {
		f.w.Go("keys", f.keys.run)
	}
	if f.moves != nil {
		f.w.Go("handovers", f.moves.run)
	}
	if f.acts != nil {
		f.w.Go("acts", f.acts.run)
	}
	out.Sleep(ctx, f.o.For)
	f.faults.heal()
	out.Sleep(ctx, afterFaults)
	f.quiet = true
	if f.faults.loses != nil {
		if f.gaveUp = f.stopped(); f.gaveUp != "" {
			f.healed = true
			f.w.End()
			return
		}
	}
	f.converge()
	f.w.End()
}
