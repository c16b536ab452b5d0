package protocol

import (
	"slices"

	"tranche/allocation"
)

// Outcome is what became of requests that were offered together.
type Outcome struct {
	Admitted, Units int64 // requests, and their units
	Period          allocation.Instant
	Refused         []Refusal
}

// Refusal is requests that were refused alike.
type Refusal struct {
	Reason allocation.Reason
	Retry  int64 // seconds; 0: no advice
	N      int64
	Each   int64   // what each costs, where Costs is nil
	Costs  []int64 // of each, else
}

// Offer decides n requests for one budget that cost the same. It comes to what n calls of Decide would, in a few: as many
// as fit are admitted together, since what one admission takes from a share is only its cost.
func (o *Owner) Offer(labels allocation.Labels, unit string, n, cost int64) Outcome {
	var out Outcome
	fits := n
	if cost > 0 {
		fits = min(n, o.left(labels, unit)/cost)
	}
	if fits > 0 {
		if d := o.Decide(labels, map[string]int64{unit: fits * cost}); d.Admitted() {
			out = Outcome{Admitted: fits, Units: fits * cost, Period: d.Budgets[0].Period}
		}
	}
	if rest := n - out.Admitted; rest > 0 {
		d := o.decide(allocation.Check, labels, map[string]int64{unit: cost})
		out.Refused = append(out.Refused, Refusal{Reason: d.Reason, Retry: d.Retry, N: rest, Each: cost})
	}
	return out
}

// OfferEach decides requests for one budget, in their order. Those that fit are charged together; the reason of the others
// is that of the moment after it.
func (o *Owner) OfferEach(labels allocation.Labels, unit string, costs []int64) Outcome {
	var out Outcome
	var refused []int64
	left, fits := o.left(labels, unit), int64(0)
	for _, c := range costs {
		if c <= left-fits {
			fits += c
			out.Admitted++
		} else {
			refused = append(refused, c)
		}
	}
	if out.Admitted > 0 {
		d := o.Decide(labels, map[string]int64{unit: fits})
		if !d.Admitted() { // a limit of 0 refuses also what costs nothing
			out.Admitted, refused = 0, costs
		} else {
			out.Units, out.Period = fits, d.Budgets[0].Period
		}
	}
	out.Refused = o.reasons(labels, unit, refused)
	return out
}

// left is how many units the budget that the labels name can still spend here.
func (o *Owner) left(labels allocation.Labels, unit string) int64 {
	d := o.decide(allocation.Check, labels, map[string]int64{unit: 0})
	if len(d.Budgets) == 0 {
		return 0
	}
	return d.Budgets[0].Remaining
}

// reasons says why each was refused. A higher cost is never refused for a milder reason, so where the least and the most
// are refused alike, all are.
func (o *Owner) reasons(labels allocation.Labels, unit string, costs []int64) []Refusal {
	if len(costs) == 0 {
		return nil
	}
	of := func(cost int64) Refusal {
		d := o.decide(allocation.Check, labels, map[string]int64{unit: cost})
		return Refusal{Reason: d.Reason, Retry: d.Retry, Costs: []int64{cost}, N: 1}
	}
	least := of(slices.Min(costs))
	if of(slices.Max(costs)).Reason == least.Reason {
		least.Costs, least.N = slices.Clone(costs), int64(len(costs))
		return []Refusal{least}
	}
	var all []Refusal
	for _, c := range costs {
		r := of(c)
		i := slices.IndexFunc(all, func(have Refusal) bool { return have.Reason == r.Reason })
		if i < 0 {
			all = append(all, r)
			continue
		}
		all[i].Costs, all[i].N = append(all[i].Costs, c), all[i].N+1
	}
	return all
}

// Standing is what this owner truly holds of a budget's running period: granted and not returned, and what of it it may
// still spend.
func (o *Owner) Standing(budget string) (held, spendable int64) {
	now := o.w.instant()
	for _, sh := range o.order {
		if sh.Budget != budget || sh.Template {
			continue
		}
		if i, ok := sh.Periods.Find(now); ok {
			return o.standing(sh, sh.Periods.At(i).Start)
		}
	}
	return 0, 0
}

func (o *Owner) standing(sh *share, period allocation.Instant) (held, spendable int64) {
	key := allocation.UsageKey{Budget: sh.Budget, Period: period, Class: allocation.General}
	u := o.locked.Usage[key]
	if u == nil {
		made, ok := sh.Usage(key)
		if !ok {
			return 0, 0
		}
		u = &made
	}
	b, _ := o.locked.Catalogue.Budget(sh.Budget)
	return u.Granted - u.Returned, u.Spendable(b.Budget.LimitOrZero())
}
