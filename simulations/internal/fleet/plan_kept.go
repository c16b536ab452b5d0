package fleet

import (
	"math/rand/v2"

	"tranche/allocation"
)

// drawKept has one in so many of the single budgets of policy fixed keep a part for a region that begins anew. It draws
// from a stream of its own, so that the rest of a seed's world does not rest on it.
func (p *plan) drawKept(r *rand.Rand, oneIn int) {
	for i := range p.budgets {
		if b := &p.budgets[i]; !b.IsTemplate() && b.Allocation.Policy == allocation.PolicyFixed && r.IntN(oneIn) == 0 {
			b.Allocation.KeepPercent = oneOf[int64](r, 5, 20, 40)
		}
	}
}
