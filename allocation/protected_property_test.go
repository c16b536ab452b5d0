package allocation

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// protectedWorld is a world whose limit and floor never change, with what each owner's other traffic holds or has spent.
type protectedWorld struct {
	*world
	limit, protected int64
	others           map[string]int64 // by region and period
}

func newProtectedWorld(t *rapid.T) *protectedWorld {
	p := &protectedWorld{others: map[string]int64{}}
	p.limit = rapid.SampledFrom([]int64{1, 10, 25, 100, MaxUnits}).Draw(t, "limit")
	p.protected = rapid.Int64Range(0, p.limit).Draw(t, "protected")
	b := testBudget("a", "requests", p.limit)
	b.Protected = p.protected
	w := &world{budget: b}
	periods := Periods{First: 6000, Step: 60, Count: 2}
	for _, h := range []Holder{{"here", "one"}, {"there", "two"}} {
		l := newOwner()
		l.Catalogue = NewCatalogue(h.Region)
		w.owners = append(w.owners, &worldOwner{Holder: h, Locked: l})
		w.members.Holders = append(w.members.Holders, h)
		w.members.Regions = append(w.members.Regions, h.Region)
	}
	w.ledger = OpenLedger(b, 1, periods, w.members, genOf(1))
	w.highest = []int64{p.limit, p.limit}
	for _, o := range w.owners {
		o.learn(b)
		w.deliverGrant(t, grantSent{o, w.ledger.GrantTo(o.Holder)})
	}
	p.world = w
	return p
}

// spend is one request of some priority.
func (p *protectedWorld) spend(t *rapid.T) {
	o := p.owner(t)
	o.Now = int64(rapid.SampledFrom([]Instant{6000, 6061}).Draw(t, "now")) * 1_000_000
	priority := rapid.SampledFrom(append(Priorities(), "", "urgent")).Draw(t, "priority")
	op := rapid.SampledFrom([]Op{Spend, Reserve}).Draw(t, "op")
	o.nextID++
	r := request(op, fmt.Sprint(o.nextID), requests(rapid.SampledFrom([]int64{1, 1, 2, 5, 20, p.limit / 2, p.limit}).Draw(t, "cost")))
	r.Priority = priority
	p.put(t, o, r)
}

// speak settles, extends or releases an admission: with a cost that may be above what it held.
func (p *protectedWorld) speak(t *rapid.T) {
	o := p.owner(t)
	op := rapid.SampledFrom([]Op{Settle, Extend, Release}).Draw(t, "op")
	id := fmt.Sprint(rapid.IntRange(1, o.nextID+1).Draw(t, "id"))
	p.put(t, o, request(op, id, requests(rapid.SampledFrom([]int64{0, 1, 5, 20, p.limit}).Draw(t, "cost"))))
}

func (p *protectedWorld) put(t *rapid.T, o *worldOwner, r Request) {
	plan := o.Catalogue.Plan(r, o.now())
	o.None = map[UsageKey]bool{}
	for _, k := range plan.Keys() {
		if o.Usage[k] != nil {
			continue
		}
		if u, ok := o.share.Usage(k); ok {
			o.Usage[k] = &u
		} else {
			o.None[k] = true
		}
	}
	o.Decide(plan)
	for i := range p.ledger.Periods.Len() {
		start := p.ledger.Periods.At(i).Start
		var sum int64
		for _, a := range o.IDs {
			if a.First.Priority == Essential {
				continue
			}
			for _, l := range a.Lines {
				if l.Period == start {
					sum += l.Held + l.Spent
				}
			}
		}
		p.others[fmt.Sprint(o.Region, i)] = sum
	}
}

// check: whatever moved between the regions, all but essential traffic leaves the floor alone.
func (p *protectedWorld) check(t *rapid.T) {
	p.world.check(t)
	for i := range p.ledger.Periods.Len() {
		if n := p.others[fmt.Sprint("here", i)] + p.others[fmt.Sprint("there", i)]; n > p.limit-p.protected {
			t.Fatalf("period %d: traffic that is not essential has %d of %d, of which %d are protected", i, n, p.limit, p.protected)
		}
	}
}

// Batch and interactive traffic never touches what is protected, through any rebalance, drain, return, lost message, settle above
// its estimate and extension. If this fails a flood of batch work takes from essential traffic what it was promised.
func TestProtectedIsLeftToEssential(t *testing.T) {
	for range 10 {
		rapid.Check(t, func(t *rapid.T) {
			p := newProtectedWorld(t)
			policies := func(t *rapid.T) {
				p.budget.Allocation = rapid.SampledFrom([]Policy{
					{Policy: PolicyHome, Region: "here"},
					{Policy: PolicyHome, Region: "there"},
					{Policy: PolicyFixed, Weights: map[string]int64{"here": 1, "there": 1}},
					{Policy: PolicyFixed, Weights: map[string]int64{"here": 5, "there": 1}},
					{Policy: PolicyFixed, Weights: map[string]int64{"here": 0, "there": 1}},
				}).Draw(t, "policy")
				p.follow(t)
			}
			for range rapid.IntRange(20, 120).Draw(t, "steps") {
				anyOf(t, p.spend, p.spend, p.spend, p.spend, p.speak, p.speak, p.sendGrant, p.apply, p.apply, p.state, p.count,
					p.move, p.drain, policies, p.lose)(t)
				p.check(t)
			}
		})
	}
}
