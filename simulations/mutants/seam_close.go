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
					c.StatedThrough, c.StatedUnder = c.ClosedBefore, c.History
					return true
				})
			}
		}
		return s.Commit(ctx, t)
	}}
}
