package ownertwin

import (
	"context"
	"fmt"

	"tranche/allocation"
	"tranche/regional"
)

// HandOver implements regional.Owner.
func (o *Owner) HandOver(ctx context.Context, step regional.HandoverStep, asked regional.Handover, recorded allocation.Home) (next regional.Handover, err error) {
	var stands regional.Handover
	x, err := o.start(ctx, "hand over", switchExclusive, func(x *transaction) error {
		if err := o.belongs(x.db.tables); err != nil {
			return err
		}
		if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
			return err
		}
		row := x.db.tables.owner
		stands = row.handover
		if next, err = stands.Next(step, asked, recorded, x.db.home); err != nil {
			return err
		}
		if step != regional.HandoverResume && (row.lost || row.incarnation == "") {
			return fmt.Errorf("%w: there is nothing to hand over", regional.ErrHistoryLost)
		}
		return nil
	})
	switch {
	case err == nil && next == stands:
		o.abandon(x)
	case err == nil:
		err = o.commitWithout(ctx, x, func() error {
			if err := x.take(lockKey{kind: lockWriters}, false); err != nil {
				return err
			}
			x.change(putOwner(func(r *ownerRow) { r.handover = next }))
			return nil
		})
	}
	if err != nil {
		return next, fmt.Errorf("hand the owner over: %w", err)
	}
	return next, nil
}

// notHandedOver fails for an owner that is being handed over. It takes the lock that HandOver waits for, so that the
// transaction has ended when a stop is committed.
func (x *transaction) notHandedOver() error {
	if err := x.take(lockKey{kind: lockWriters}, true); err != nil {
		return err
	}
	if h := x.db.stop(); h.ID != "" {
		return fmt.Errorf("%w: %s", regional.ErrHandedOver, h.ID)
	}
	return nil
}

// stop is the handover that keeps everybody from writing here; none in a mutant that does not know it.
func (db *Database) stop() regional.Handover {
	h := db.tables.owner.handover
	if db.Breaks.HandedGoesOn && h.To != (allocation.Home{}) {
		return regional.Handover{}
	}
	return h
}
