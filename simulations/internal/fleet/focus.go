package fleet

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"tranche/allocation"
)

// Focus narrows what the seed draws, for a hunt of something that only shows under certain faults. What is zero stays as it
// was drawn.
type Focus struct {
	Faults       map[string]int // by name: how likely each is beside the others; none of the rest happens
	Every        time.Duration  // the longest pause between two faults
	Lose         float64        // of each link, at most; below 0: nothing is lost, late or repeated
	Repeat       float64
	Late         float64
	LateMost     time.Duration
	AtCommit     float64       // the chance that a process crashes around a commit of its own; below 0: none does
	Jump         time.Duration // of a clock, at most
	Clocks       string        // whose jump: right, nodes, databases, coordinators
	Drift        int64         // parts per million, at most; below 0: none
	Replica      bool          // databases have a synchronous replica
	Coordinators int
	Balanced     bool          // each call of a region goes to the next coordinator
	Far          time.Duration // of all coordinators but the first from etcd
	Regions      int           // at most
	Nodes        int           // of each region
	Clients      int           // of each region
	Think        time.Duration
	Operate      time.Duration // below 0: the operator changes nothing
	Handovers    time.Duration // below 0: there are none
	Retention    allocation.Duration
	Grace        allocation.Duration
	Limit        int64         // of each budget, at most
	Demand       bool          // all budgets that can be have policy demand
	Kept         bool          // all budgets that can keep a part for a region that begins anew
	Watched      bool          // some budgets are in shadow, or only count
	Policed      bool          // some budgets have a floor, a ladder, or a greatest age of evidence
	Keys         bool          // callers have keys
	Raise        bool          // the operator makes overrides
	Acts         time.Duration // on what is stranded; below 0: there are none
	Leave        bool          // a region is removed, and comes back
}

// goneAt is when nothing is left of etcd in a run of a focus that says so.
const goneAt = 6 * time.Second

var clockKinds = map[string]clockKind{"right": clocksRight, "nodes": clocksOfNodes, "databases": clocksOfDatabases, "coordinators": clocksOfCoordinators, "all": clocksOfAll}

// narrow applies a focus to a plan.
func (x *Focus) narrow(p *plan) {
	if x == nil {
		return
	}
	x.narrowFaults(&p.faults)
	if x.Faults != nil {
		p.gone = time.Duration(x.Faults[kindEtcdEmpty]) * goneAt
	}
	set(&p.coordinators, x.Coordinators)
	set(&p.far, x.Far)
	p.balanced = x.Balanced
	set(&p.clients, x.Clients)
	set(&p.think, x.Think)
	set(&p.retention, x.Retention)
	set(&p.closeGrace, x.Grace)
	if set(&p.operate, x.Operate); x.Operate < 0 {
		p.operate = 0
	}
	if set(&p.handovers, x.Handovers); x.Handovers < 0 {
		p.handovers = 0
	}
	if set(&p.acts, x.Acts); x.Acts < 0 {
		p.acts = 0
	}
	p.leaves = (p.leaves || x.Leave) && p.acts > 0
	for i := range p.regions {
		set(&p.regions[i].nodes, x.Nodes)
	}
	if x.Regions > 0 && x.Regions < len(p.regions) {
		p.keepRegions(x.Regions)
	}
	p.raises = p.raises || x.Raise
	if x.Demand {
		p.drawDemand(rand.New(rand.NewPCG(uint64(*p.budgets[0].Limit), 1)), 1)
	}
	if x.Kept {
		p.drawKept(rand.New(rand.NewPCG(uint64(*p.budgets[0].Limit), 4)), 1)
	}
	if x.Watched && !slices.Contains(p.tenants(), tenantWatched) {
		p.addWatched(rand.New(rand.NewPCG(uint64(*p.budgets[0].Limit), 2)))
	}
	if x.Policed && !slices.Contains(p.tenants(), tenantPoliced) {
		p.addPoliced(rand.New(rand.NewPCG(uint64(*p.budgets[0].Limit), 3)))
	}
	for i := range p.budgets {
		if b := &p.budgets[i]; x.Limit > 0 && *b.Limit > x.Limit {
			limit := x.Limit
			b.Limit = &limit
			for _, region := range slices.Sorted(maps.Keys(b.Allocation.Min)) {
				b.Allocation.Min[region] = min(b.Allocation.Min[region], limit)
			}
			b.Protected, b.OpeningSpent = min(b.Protected, limit), min(b.OpeningSpent, limit)
		}
	}
}

func (x *Focus) narrowFaults(p *faultPlan) {
	if x.Faults != nil {
		for i, f := range allFaults {
			p.weights[i] = x.Faults[f.name]
		}
	}
	set(&p.every, x.Every)
	if set(&p.lose, x.Lose); x.Lose < 0 {
		p.lose, p.late, p.repeat = 0, 0, 0
	}
	set(&p.repeat, x.Repeat)
	set(&p.late, x.Late)
	set(&p.lateMost, x.LateMost)
	if set(&p.atCommit, x.AtCommit); x.AtCommit < 0 {
		p.atCommit = 0
	}
	set(&p.jump, x.Jump)
	if kind, named := clockKinds[x.Clocks]; named {
		p.clocks = kind
	}
	if set(&p.drift, x.Drift); x.Drift < 0 {
		p.drift = 0
	}
	p.replica = p.replica || x.Replica
}

func set[T ~int | ~int64 | ~float64](at *T, to T) {
	if to > 0 {
		*at = to
	}
}

// keepRegions leaves out all regions but the first ones, also in the budgets.
func (p *plan) keepRegions(n int) {
	p.regions = slices.Clone(p.regions[:n])
	for i := range p.regions {
		p.regions[i].late = false
	}
	for i := range p.budgets {
		policy := &p.budgets[i].Allocation
		if policy.Policy == allocation.PolicyHome && policy.HashOf == "" && policy.RegionFrom == "" {
			policy.Region = p.regions[0].name
		}
		if policy.Policy == allocation.PolicyDemand {
			policy.Min, policy.Max = p.among(policy.Min), p.among(policy.Max)
		}
		if policy.Policy != allocation.PolicyFixed {
			continue
		}
		weights := map[string]int64{}
		for j, r := range p.regions {
			weights[r.name] = policy.Weights[r.name]
			if j == 0 {
				weights[r.name]++
			}
		}
		policy.Weights = weights
	}
}
