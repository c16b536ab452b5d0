package ownertwin

import (
	"slices"

	"tranche/allocation"
)

// What a database holds now, for checkers: no call, no delay, no fault.

// Name is the database's name.
func (db *Database) Name() string { return db.name }

// Incarnation is the owner's incarnation; empty: it has none yet.
func (db *Database) Incarnation() string { return db.tables.owner.incarnation }

// ClosedBefore is the instant before which the owner has closed all periods.
func (db *Database) ClosedBefore() allocation.Instant { return db.tables.owner.closedBefore }

// Stopped is why the owner admits nothing, or empty.
func (db *Database) Stopped() (allocation.Reason, string) {
	return db.tables.owner.stopped, db.tables.owner.detail
}

// Changes is the owner's change number.
func (db *Database) Changes() int64 { return db.tables.owner.changes }

// Config is the coordinator's configuration number that the owner has stored.
func (db *Database) Config() int64 { return db.tables.owner.config }

// Usage is one usage row.
func (db *Database) Usage(k allocation.UsageKey) (allocation.Usage, bool) {
	u, ok := db.tables.usage[k]
	return u, ok
}

// Share is one share that the owner holds.
func (db *Database) Share(ref allocation.ShareRef) (allocation.Share, bool) {
	s, ok := db.tables.shares[ref]
	return s.Share, ok && !s.gone
}

// Shares are all that are not gone, in order.
func (db *Database) Shares() (list []allocation.Share) {
	for _, s := range db.tables.shares {
		if !s.gone {
			list = append(list, s.Share)
		}
	}
	slices.SortFunc(list, func(a, b allocation.Share) int {
		return compareRefs(allocation.ShareRef{Budget: a.Budget, Term: a.Term()}, allocation.ShareRef{Budget: b.Budget, Term: b.Term()})
	})
	return list
}

// Row is the usage row of a key, or the one that would be made from its share.
func (db *Database) Row(ref allocation.ShareRef, k allocation.UsageKey) (allocation.Usage, bool) {
	if u, ok := db.tables.usage[k]; ok {
		return u, true
	}
	s, ok := db.Share(ref)
	if !ok {
		return allocation.Usage{}, false
	}
	return s.Usage(k)
}

// Admission is what the owner remembers of an id, or nil; not to be changed.
func (db *Database) Admission(key allocation.IDKey) *allocation.Admission {
	a, _ := db.tables.find(key)
	return a
}

// Replicated says whether a failover to the synchronous replica, if there is one, would keep a commit.
func (db *Database) Replicated(c *Commit) bool {
	if !db.SyncReplica {
		return true
	}
	for _, e := range slices.Backward(slices.Concat(db.log, db.flushed)) {
		if e.commit == c {
			return e.replica
		}
	}
	return true // it is long ago
}

// Reservations are the open ones, by key; not to be changed.
func (db *Database) Reservations() []*allocation.Admission {
	return db.tables.reserved(func(*allocation.Admission) bool { return true })
}

// Catalogue is the budgets and terms as the owner has stored them.
func (db *Database) Catalogue() *allocation.Catalogue {
	l := db.tables.loaded(0)
	return allocation.NewCatalogue(l.Region).With(l.Changes, l.Budgets, l.Terms, l.Gone).WithDocuments(l.Documents)
}

// Keys are the keys of the usage rows of a share, sorted.
func (db *Database) Keys(ref allocation.ShareRef) []allocation.UsageKey {
	return slices.Clone(db.tables.ofShare[ref])
}

// Budgets are those that the owner has stored.
func (db *Database) Budgets() []allocation.ConfiguredBudget {
	return db.tables.loaded(0).Budgets
}
