package fleet

import (
	"math/rand/v2"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// tenantPoliced is the tenant of budgets that refuse batch work first, and that admit on young evidence only.
const tenantPoliced = "policed"

// addPoliced adds a budget with a floor and a ladder, one beside it without, and one that is strict about its evidence.
func (p *plan) addPoliced(r *rand.Rand) {
	add := func(name string, limit int64, change func(*allocation.Budget)) {
		b := allocation.Budget{
			Name: "policed/" + name, Unit: "requests", Limit: &limit, Match: map[string]string{"tenant": tenantPoliced}, Allocation: p.even(),
			Window:             allocation.Window{Every: allocation.Duration(oneOf(r, 10, 15, 30))},
			LongestReservation: allocation.Duration(2 + r.IntN(15)), OnLapse: oneOf(r, allocation.OnLapseSpend, allocation.OnLapseRelease), RunsAloneFor: 60,
		}
		change(&b)
		p.budgets = append(p.budgets, budgetPlan{Budget: b, steady: true})
	}
	limit := int64(12 + r.IntN(30))
	add("floor", limit, func(b *allocation.Budget) {
		b.Protected = 1 + r.Int64N(limit/2)
		b.Ladder = &allocation.Ladder{
			Interactive: &allocation.Rungs{DegradeAt: 20, Route: "small"},
			Batch:       &allocation.Rungs{DegradeAt: 10, Route: "small", DeferAt: 80},
		}
	})
	add("beside", int64(200+r.IntN(100)), func(*allocation.Budget) {})
	add("strict", int64(200+r.IntN(100)), func(b *allocation.Budget) {
		b.MaxEvidenceAge, b.OnStaleEvidence = allocation.Duration(oneOf(r, 3, 5, 8)), allocation.OnStaleRefuse
	})
}

// judgeFloors judges that what is protected is spent by essential traffic only: no admission of another priority leaves less
// free in a row than its floor, but for what essential traffic took in the same commit.
func (c *checks) judgeFloors(r *region, x *ownertwin.Commit) {
	others, essential := map[allocation.UsageKey]string{}, map[allocation.UsageKey]int64{}
	for _, a := range x.Inserted {
		for _, l := range a.Lines {
			switch n := l.Held + l.Spent; {
			case n == 0:
			case a.First.Priority == allocation.Essential:
				essential[l.UsageKey] += n
			default:
				others[l.UsageKey] = a.ID
			}
		}
	}
	for _, a := range x.Updated {
		if a.First.Priority != allocation.Essential {
			continue
		}
		for _, l := range a.Lines {
			essential[l.UsageKey] += l.Held + l.Spent // at most so much more than before
		}
	}
	for _, u := range x.Usage {
		id, some := others[u.After.UsageKey]
		free := u.After.Granted - u.After.Returned - u.After.Spent - u.After.Reserved
		c.must(!some || free+essential[u.After.UsageKey] >= u.After.Protected, 11,
			"%s admits %s, which is not essential, and of %s, period %s, %d are free of %d that are protected",
			r.name, id, u.After.Budget, u.After.Period, free, u.After.Protected)
	}
}
