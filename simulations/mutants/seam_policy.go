package mutants

import (
	"context"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

// degradedIsFree gives back, before the commit, what was charged for a degraded admission: it takes another route.
func degradedIsFree() ownerSeam {
	return ownerSeam{commit: func(ctx context.Context, _ regional.Writer, b regional.Batch, writes regional.Writes) error {
		for i, a := range writes.Inserted {
			if a.Ladder == nil {
				continue
			}
			free := *a
			free.Lines = slices.Clone(a.Lines)
			for j := range free.Lines {
				l := &free.Lines[j]
				for _, u := range writes.Usage {
					if u.UsageKey == l.UsageKey {
						u.Spent, u.Reserved = u.Spent-l.Spent, u.Reserved-l.Held
					}
				}
				l.Spent, l.Held = 0, 0
			}
			writes.Inserted[i] = &free
		}
		return b.Commit(ctx, writes)
	}}
}

// floorUnseen shows rows without what is protected in them.
func floorUnseen() ownerSeam {
	return ownerSeam{seen: func(_ regional.Want, seen *regional.Seen) {
		for _, u := range seen.Usage {
			u.Protected = 0
		}
	}}
}

// staleInStrict lets every budget admit on evidence of any age.
func staleInStrict() ownerSeam {
	return redeclared(func(b *allocation.Budget) {
		if b.MaxEvidenceAge > 0 {
			b.OnStaleEvidence = allocation.OnStaleAdmit
		}
	})
}
