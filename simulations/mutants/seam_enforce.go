package mutants

import (
	"slices"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/fleet"
)

// redeclared changes the budgets as a node hears of them.
func redeclared(change func(b *allocation.Budget)) ownerSeam {
	return ownerSeam{loaded: func(l *regional.Loaded) {
		l.Budgets = slices.Clone(l.Budgets) // the database keeps its own
		for i := range l.Budgets {
			change(&l.Budgets[i].Budget)
		}
	}}
}

// shadowCharges counts in shadow as a meter does: also what would have been refused, as far as it fits.
func shadowCharges() ownerSeam {
	return redeclared(func(b *allocation.Budget) {
		if b.Enforcement == allocation.Shadow {
			b.Enforcement, b.EnforceFor = allocation.Meter, nil
		}
	})
}

// watchedRefuses enforces a budget although it is declared in another mode.
func watchedRefuses(mode string) func() ownerSeam {
	return func() ownerSeam {
		return redeclared(func(b *allocation.Budget) {
			if b.Enforcement == mode && b.EnforceFor == nil {
				b.Enforcement = allocation.Enforce
			}
		})
	}
}

// enforceForFlips lets every other node enforce for all ids where a part of them is declared.
func enforceForFlips() fleet.Seams {
	nodes := 0
	return fleet.Seams{Owner: func(_ string, o regional.Owner) regional.Owner {
		nodes++
		all := nodes%2 == 0
		s := redeclared(func(b *allocation.Budget) {
			if f := b.EnforceFor; f != nil && all {
				b.EnforceFor = &allocation.EnforceFor{Percent: 100, Match: f.Match}
			}
		})
		s.Owner = o
		return &s
	}}
}
