package mutants

import (
	"context"
	"strings"

	"tranche/coordinator"
)

// closeByContact takes it for granted that an owner which has closed a period has stated it: what a contact says to be
// closed, it says to be stated.
func closeByContact() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			if strings.HasPrefix(t.Puts[i].Key, contactsAt) {
				edit(&t.Puts[i], func(c *coordinator.Contact) bool {
					c.StatedThrough = c.ClosedBefore
					return true
				})
			}
		}
		return s.Commit(ctx, t)
	}}
}

// forgetLate passes over what an owner states of a term that is closed.
func forgetLate() storeSeam {
	return storeSeam{commit: func(ctx context.Context, s coordinator.Store, t coordinator.Txn) (coordinator.TxnResult, error) {
		for i := range t.Puts {
			if strings.HasPrefix(t.Puts[i].Key, closingsAt) {
				edit(&t.Puts[i], func(c *coordinator.Closing) bool {
					for j := range c.Regions {
						c.Regions[j].Late = nil
					}
					return true
				})
			}
		}
		return s.Commit(ctx, t)
	}}
}
