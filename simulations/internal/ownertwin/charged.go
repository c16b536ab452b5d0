package ownertwin

import (
	"context"
	"fmt"
	"math"

	"tranche/allocation"
	"tranche/regional"
)

// Charged implements regional.Owner.
func (o *Owner) Charged(ctx context.Context, q regional.ChargedQuery) (regional.Charged, error) {
	c, err := read(ctx, o, "charged", func(db *Database, t *tables) (c regional.Charged, _ error) {
		c.Now, c.Kept = db.Clock().Micros(), math.MaxInt64
		for _, table := range t.idTables {
			if table.state != "empty" {
				c.Kept = min(c.Kept, table.openedAt)
			}
		}
		c.Lines, c.More = regional.SumCharged(q, func(yield func(*allocation.Admission) bool) {
			for i := range t.ids {
				for _, a := range t.ids[i] {
					if !yield(a) {
						return
					}
				}
			}
		})
		return c, nil
	})
	if err != nil {
		return regional.Charged{}, fmt.Errorf("sum up what was charged: %w", err)
	}
	return c, nil
}
