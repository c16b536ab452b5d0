package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// Drive is one period of a budget under a steady load, in a world in which nothing fails but what it cuts off: how much of
// the limit is used, and what that costs.
type Drive struct {
	Seed      uint64
	Budget    allocation.Budget // of one-minute periods, or another length of {every}
	Regions   []string
	Offered   []int // requests that arrive in each region over the period
	Labels    func(region, n int) allocation.Labels
	Cut       []bool        // regions that lose the coordinator
	CutAt     time.Duration // after the period's start
	RoundTrip time.Duration // between a region and the coordinator
	Deadline  time.Duration // of each request; 0: 1 s
}

// Driven is what came of a Drive.
type Driven struct {
	Limit        int64
	Offered      int
	Admitted     []int   // by region
	Spent        int64   // in the databases, over all regions
	Held         []int64 // granted less returned at the end, by region
	Unallocated  int64
	LedgerWrites int // of this budget, in the period
	Writes       int // revisions of the store, in the period
	Reasons      map[allocation.Reason]int
	Homes        map[string]string // where a request was sent to that came elsewhere, by instance
	By           map[string]int    // admissions by instance
	Waited       int               // answers that took more than 50 ms
	Stranded     map[string]int64  // exposed at the period's end as the coordinator reports it, by region
}

// drive is one on its way.
type drive struct {
	*fleet
	o       Drive
	process []*client
	out     Driven
	period  allocation.Period
}

// RunDrive makes the run. An error is a broken invariant, or that the run did not come to its end.
func RunDrive(ctx context.Context, o Drive) (Driven, error) {
	w := world.New(world.Options{Seed: o.Seed, Ring: 512})
	p := &plan{
		coordinators: 2, closeGrace: 3, retention: allocation.Day, keepClosings: time.Hour, lanes: 2,
		faults: faultPlan{weights: make([]int, len(allFaults)), every: time.Hour},
	}
	for _, name := range o.Regions {
		p.regions = append(p.regions, regionPlan{name: name, nodes: 2})
	}
	p.budgets = []budgetPlan{{Budget: o.Budget}}
	d := &drive{fleet: assemble(Options{Seed: o.Seed, For: time.Hour, Kind: KindCalm}, w, p), o: o}
	defer w.Close()
	d.out = Driven{Limit: *o.Budget.Limit, Reasons: map[allocation.Reason]int{}, Homes: map[string]string{}, By: map[string]int{}}
	d.out.Admitted = make([]int, len(o.Regions))
	for i, r := range d.regions {
		d.process = append(d.process, newClient(d.fleet, r, i))
		d.process[i].process.Serve()
	}
	before := d.etcd.OnCommit
	d.etcd.OnCommit = func(who string, revision int64, events []coordinator.Event) {
		before(who, revision, events)
		d.count(events)
	}
	d.distance()
	w.Go("script", d.script)
	err := w.Run(time.Hour)
	switch {
	case err != nil:
		return d.out, err
	case ctx.Err() != nil:
		return d.out, ctx.Err()
	case !d.healed:
		return d.out, errors.New("the run did not come to its end")
	}
	return d.out, nil
}

// distance puts half of a round trip between each node and each replica.
func (d *drive) distance() {
	for _, r := range d.regions {
		for _, n := range r.nodes {
			for _, c := range d.replicas {
				for _, link := range []*network.Conditions{d.net.Link(n.process.Name(), c.process.Name()), d.net.Link(c.process.Name(), n.process.Name())} {
					link.Least, link.Most = d.o.RoundTrip/2, d.o.RoundTrip/2+time.Millisecond
				}
			}
		}
	}
}

func (d *drive) count(events []coordinator.Event) {
	now := allocation.At(d.w.Now())
	if d.period.End == 0 || now < d.period.Start || now >= d.period.End {
		return
	}
	d.out.Writes++
	for _, e := range events {
		if strings.HasPrefix(e.Key, coordinator.Root+"ledgers/") {
			d.out.LedgerWrites++
			return
		}
	}
}

// script waits for a whole period, loads it, and looks at what came of it.
func (d *drive) script() {
	out := d.w.Outside()
	ctx := out.Context()
	for d.admin == "" {
		out.Sleep(ctx, 50*time.Millisecond)
	}
	d.operator.begin(ctx)
	out.Sleep(ctx, 3*time.Second)
	period, ok := d.o.Budget.Window.PeriodAt(allocation.At(d.w.Now()))
	if !ok {
		d.w.Fail(errors.New("the window has no period"))
		return
	}
	next, _ := d.o.Budget.Window.PeriodAt(period.End)
	d.period = next
	start := time.Unix(int64(next.Start), 0)
	out.Sleep(ctx, start.Sub(d.w.Now()))
	length := time.Duration(next.End-next.Start) * time.Second
	for i := range d.regions {
		d.w.Go("load", func() { d.load(ctx, i, start, length-time.Second) })
	}
	if len(d.o.Cut) > 0 {
		out.Sleep(ctx, d.o.CutAt)
		for i, cut := range d.o.Cut {
			for _, n := range d.regions[i].nodes {
				for _, c := range d.replicas {
					d.net.Cut(n.process.Name(), c.process.Name(), cut)
				}
			}
		}
	}
	out.Sleep(ctx, start.Add(length).Sub(d.w.Now())-100*time.Millisecond)
	d.look()
	d.stranded(ctx)
	out.Sleep(ctx, 2*time.Second)
	d.healed = true
	d.w.End()
}

// load sends a region's requests, spread over the time at random.
func (d *drive) load(ctx context.Context, region int, start time.Time, length time.Duration) {
	out, n := d.w.Outside(), d.o.Offered[region]
	c := d.process[region]
	for i := range n {
		each := length / time.Duration(n)
		at := start.Add(each*time.Duration(i) + time.Duration(c.random.Int64N(int64(each)+1)))
		out.Sleep(ctx, at.Sub(d.w.Now()))
		c.process.Go("request", func() { d.ask(ctx, region, i) })
	}
}

// ask sends one request, once.
func (d *drive) ask(ctx context.Context, region, i int) {
	c := d.process[region]
	labels := allocation.Labels{"tenant": tenantSteady}
	if d.o.Labels != nil {
		labels = d.o.Labels(region, i)
	}
	c.made++
	cl := &claim{
		region: c.region, sent: map[string]bool{}, key: allocation.IDKey{Credential: credential, Tenant: labels["tenant"], ID: fmt.Sprint(c.process.Name(), "-", c.made)},
		op: allocation.Spend, made: d.w.Elapsed(), labels: labels, costs: map[string]int64{d.o.Budget.Unit: 1},
	}
	d.check.claims[claimKey{c.region.name, cl.key}] = cl
	d.out.Offered++
	began := d.w.Elapsed()
	answers, answered := c.ask(ctx, []*claim{cl}, allocation.Spend)
	if !answered {
		d.out.Reasons["no_answer"]++
		return
	}
	a := answers[0]
	d.out.Reasons[a.Reason]++
	if d.w.Elapsed()-began > 50*time.Millisecond {
		d.out.Waited++
	}
	instance := labels["caller"]
	switch {
	case a.Reason == allocation.NotHome:
		d.out.Homes[instance] = a.Home
	case a.Admitted() && len(a.Budgets) > 0 && a.Budgets[0].Period == d.period.Start:
		d.out.Admitted[region]++
		d.out.By[instance]++
	}
}

// look reads what the databases and the ledger say at the period's end.
func (d *drive) look() {
	for _, t := range d.truth.Totals() {
		if t.Period == d.period.Start {
			d.out.Spent += t.Spent
		}
	}
	d.out.Held = make([]int64, len(d.regions))
	for _, l := range d.check.ledgers {
		i, ok := l.doc.Periods.Index(d.period.Start)
		if !ok {
			continue
		}
		d.out.Unallocated = l.doc.Unallocated(i)
		for _, a := range l.doc.EntryAt(i).Allocations {
			for k, r := range d.regions {
				if r.name == a.Region {
					d.out.Held[k] += a.Held()
				}
			}
		}
	}
}

// stranded asks the coordinator what it reports.
func (d *drive) stranded(ctx context.Context) {
	d.out.Stranded = map[string]int64{}
	var report struct {
		Lines []struct {
			Region  string `json:"region"`
			Exposed int64  `json:"exposed"`
			Unseen  int64  `json:"unseen"`
		} `json:"lines"`
	}
	if err := json.Unmarshal(d.operator.until(ctx, "GET", "/v1/stranded", nil).body, &report); err != nil {
		d.w.Fail(fmt.Errorf("read the stranded report: %w", err))
		return
	}
	for _, l := range report.Lines {
		d.out.Stranded[l.Region] += min(l.Exposed+l.Unseen, allocation.MaxUnits)
	}
}
