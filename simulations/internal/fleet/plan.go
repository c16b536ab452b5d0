package fleet

import (
	"fmt"
	"math/rand/v2"
	"time"

	"tranche/allocation"
)

// plan is what the seed makes of a run.
type plan struct {
	coordinators int
	balanced     bool          // each call of a region goes to the next one
	far          time.Duration // how far all coordinators but the first are from etcd; 0: as near as that one
	regions      []regionPlan
	budgets      []budgetPlan
	clients      int           // in each region
	think        time.Duration // a client's longest pause between two requests
	operate      time.Duration // the operator's longest pause; 0: nothing is changed
	handovers    time.Duration // the longest pause between two; 0: there are none
	gone         time.Duration // when nothing is left of etcd; 0: never
	closeGrace   allocation.Duration
	retention    allocation.Duration
	keepClosings time.Duration
	lanes        int
	faults       faultPlan
	zones        zonesPlan
	raises       bool          // the operator makes overrides
	acts         time.Duration // the longest pause between two acts on what is stranded; 0: there are none
	leaves       bool          // the person of these acts removes the last region; see leave.go
}

type regionPlan struct {
	name  string
	nodes int
	late  bool // its nodes start while the run goes on
}

// budgetPlan is a budget as the operator first declares it.
type budgetPlan struct {
	allocation.Budget
	steady bool // the operator leaves it alone: its history goes through the linearizability check
}

// The tenants that budgets and requests name.
const (
	tenantSteady   = "steady"
	tenantChanging = "changing"
	tenantOnce     = "once"
	tenantTemplate = "template"
	tenantPlaced   = "placed"
)

var regionNames = []string{"ap", "eu", "sa", "us"}

// unlikely is a probability between 0 and most, and in half of the runs 0.
func unlikely(r *rand.Rand, most float64) float64 {
	if r.IntN(2) == 0 {
		return 0
	}
	return r.Float64() * most
}

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// newPlan draws a plan. What came later is drawn from a stream of its own.
func newPlan(r, more *rand.Rand, start time.Time) *plan {
	p := &plan{
		coordinators: 1 + r.IntN(3), clients: 1 + r.IntN(2), think: oneOf[time.Duration](r, 200, 400, 800) * time.Millisecond,
		closeGrace: oneOf[allocation.Duration](r, 1, 3, 8), retention: oneOf[allocation.Duration](r, 60, 120, allocation.Day),
		keepClosings: oneOf(r, 20*time.Second, time.Hour), lanes: 1 + r.IntN(2), faults: newFaultPlan(r),
	}
	if r.IntN(5) > 0 {
		p.operate = oneOf[time.Duration](r, 3, 6, 12) * time.Second
	}
	many := 2 + r.IntN(3)
	for i := range many {
		p.regions = append(p.regions, regionPlan{name: regionNames[i], nodes: 1 + r.IntN(2), late: i > 1 && r.IntN(3) == 0})
	}
	p.drawBudgets(r, start)
	p.drawDemand(r, 3)
	p.zones = newZonesPlan(more, p.coordinators, start)
	p.drawZoned(more)
	p.drawPlaces(more)
	p.faults.drawMore(more)
	p.drawWatched(more)
	p.faults.drawLosses(more)
	if more.IntN(4) == 0 {
		p.addPoliced(more)
	}
	p.raises = more.IntN(3) == 0
	if kept := rand.New(rand.NewPCG(uint64(*p.budgets[0].Limit), uint64(p.think))); kept.IntN(4) == 0 {
		p.drawKept(kept, 2)
	}
	return p
}

// drawBudgets makes limits small, so that they are touched all the time.
func (p *plan) drawBudgets(r *rand.Rand, start time.Time) {
	weights := func() allocation.Policy {
		w := map[string]int64{}
		for _, region := range p.regions {
			w[region.name] = int64(r.IntN(4))
		}
		w[p.regions[r.IntN(len(p.regions))].name] += 2
		return allocation.Policy{Policy: allocation.PolicyFixed, Weights: w}
	}
	home := func() allocation.Policy {
		return allocation.Policy{Policy: allocation.PolicyHome, Region: p.regions[r.IntN(len(p.regions))].name}
	}
	add := func(steady bool, b allocation.Budget, limit int64, tenant string) {
		b.Limit, b.Match = &limit, map[string]string{"tenant": tenant}
		b.LongestReservation = allocation.Duration(2 + r.IntN(15))
		b.OnLapse = oneOf(r, allocation.OnLapseSpend, allocation.OnLapseRelease)
		b.RunsAloneFor = allocation.Duration(oneOf(r, 30, 60, 120))
		p.budgets = append(p.budgets, budgetPlan{Budget: b, steady: steady})
	}
	every := func(seconds ...int) allocation.Window {
		return allocation.Window{Every: allocation.Duration(oneOf(r, seconds...))}
	}
	add(true, allocation.Budget{Name: "steady", Unit: "requests", Window: every(10, 15, 20, 30), Allocation: weights()}, int64(5+r.IntN(40)), tenantSteady)
	add(false, allocation.Budget{Name: "changing/short", Unit: "requests", Window: every(5, 6, 10, 12), Allocation: weights()}, int64(3+r.IntN(25)), tenantChanging)
	if r.IntN(3) > 0 {
		add(false, allocation.Budget{Name: "changing/long", Unit: "tokens", Window: every(30, 60), Allocation: weights()}, int64(20+r.IntN(200)), tenantChanging)
	}
	once := allocation.Window{Once: &allocation.Once{From: allocation.At(start) - 5}}
	if r.IntN(2) == 0 {
		once.Once.Until = allocation.At(start) + 30 + allocation.Instant(r.IntN(120))
	}
	add(false, allocation.Budget{Name: "once", Unit: "tokens", Window: once, Allocation: oneOf(r, weights, weights, home)()}, int64(50+r.IntN(500)), tenantOnce)
	if r.IntN(2) == 0 {
		add(false, allocation.Budget{Name: "home", Unit: "requests", Window: every(10, 20, 60), Allocation: home()}, int64(3+r.IntN(30)), tenantOnce)
	}
	if r.IntN(2) == 0 {
		policy := oneOf(r, home(), allocation.Policy{Policy: allocation.PolicyHome, HashOf: "user"}, p.even())
		add(false, allocation.Budget{
			Name: "per/{user}", Unit: "requests", Window: every(10, 15, 30), Allocation: policy, MaxInstances: int64(2 + r.IntN(4)),
		}, int64(len(p.regions)*(1+r.IntN(4))), tenantTemplate)
	}
	if b := &p.budgets[1]; r.IntN(3) == 0 { // the short one
		b.MaxEvidenceAge = allocation.Duration(oneOf(r, 3, 8, 20))
		b.OnStaleEvidence = oneOf(r, allocation.OnStaleRefuse, allocation.OnStaleAdmit)
	}
	if r.IntN(3) == 0 {
		day := allocation.Window{Calendar: oneOf(r, "day", "week"), Zone: oneOf(r, "UTC", "Asia/Kolkata")}
		add(false, allocation.Budget{Name: "changing/calendar", Unit: "requests", Window: day, Allocation: weights()}, int64(50+r.IntN(200)), tenantChanging)
	}
}

// tenants are those that clients ask for, the more often the more often they stand here.
func (p *plan) tenants() []string {
	all := []string{tenantSteady, tenantSteady, tenantChanging, tenantChanging, tenantOnce, tenantTemplate}
	for _, b := range p.budgets {
		switch tenant := b.Match["tenant"]; {
		case tenant == tenantPlaced, b.Name == "watched/shadow", b.Name == "policed/floor":
			all = append(all, tenant)
		}
	}
	return all
}

func (p *plan) even() allocation.Policy {
	w := map[string]int64{}
	for _, region := range p.regions {
		w[region.name] = 1
	}
	return allocation.Policy{Policy: allocation.PolicyFixed, Weights: w}
}

// String says in one line what the run is, for reports.
func (p *plan) String() string {
	nodes := ""
	for _, r := range p.regions {
		nodes += fmt.Sprintf(" %s:%d", r.name, r.nodes)
		if r.late {
			nodes += "(late)"
		}
	}
	if p.handovers > 0 {
		nodes += " (handed over)"
	}
	if p.gone > 0 {
		nodes += fmt.Sprintf(" (etcd gone at %s)", p.gone.Round(time.Second))
	}
	return fmt.Sprintf("%d coordinators, regions%s, %d budgets, %s", p.coordinators, nodes, len(p.budgets), p.faults.String())
}
