package fleet

import (
	"math/rand/v2"

	"tranche/allocation"
)

// drawDemand gives one in so many of the single budgets policy demand. It draws last, so that the rest of a seed's world
// does not rest on it.
func (p *plan) drawDemand(r *rand.Rand, oneIn int) {
	for i := range p.budgets {
		b := &p.budgets[i]
		if b.IsTemplate() || b.Allocation.Policy == allocation.PolicyDemand || r.IntN(oneIn) > 0 {
			continue
		}
		policy := allocation.Policy{Policy: allocation.PolicyDemand, LeastRunway: oneOf[allocation.Duration](r, 0, 0, 5)}
		some := func() string { return p.regions[r.IntN(len(p.regions))].name }
		if r.IntN(3) == 0 {
			policy.Min = map[string]int64{some(): 1 + *b.Limit/10}
		}
		if r.IntN(3) == 0 {
			policy.Max = map[string]int64{some(): 1 + *b.Limit/2}
		}
		b.Allocation, b.WaitForShare = policy, oneOf[allocation.Duration](r, 0, 1, 1)
	}
}

// among is a region's parts without the regions that are left out.
func (p *plan) among(parts map[string]int64) map[string]int64 {
	kept := map[string]int64{}
	for _, r := range p.regions {
		if n, named := parts[r.name]; named {
			kept[r.name] = n
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
