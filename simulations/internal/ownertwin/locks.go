package ownertwin

import (
	"errors"
	"fmt"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/world"
)

// lockKey names what can be locked: a row by its key, or the switch.
type lockKey struct {
	kind    lockKind
	a, b, c string
	n       int64
}

type lockKind uint8

const (
	lockSwitch lockKind = iota
	lockShare
	lockUsage
	lockID // n: the table
	lockOwner
	lockShard // n
	lockWriter
	lockWriters // that there are any: shared by all who replace a mark or make a writer
)

func (k lockKind) String() string {
	return [...]string{"switch", "share", "usage", "id", "owner", "shard", "writer", "writers"}[k]
}

func shareLock(r allocation.ShareRef) lockKey {
	return lockKey{kind: lockShare, a: r.Budget, n: int64(r.Term)}
}

func usageLock(k allocation.UsageKey) lockKey {
	return lockKey{kind: lockUsage, a: k.Budget, b: k.Instance, c: string(k.Class), n: int64(k.Period)}
}

func idLock(table int, k allocation.IDKey) lockKey {
	return lockKey{kind: lockID, a: k.Credential, b: k.Tenant, c: k.ID, n: int64(table)}
}

// lock is one lock that somebody holds or waits for.
type lock struct {
	holders []*transaction // several only if all share it
	shared  bool
	queue   []*request
}

type request struct {
	tx      *transaction
	shared  bool
	granted bool
	wake    world.Wake
}

var errLockTimeout = errors.New("canceling statement due to lock timeout")

// take waits for a lock, in order, at most as long as the lock timeout.
func (x *transaction) take(key lockKey, shared bool) error {
	if x.held[key] {
		return nil
	}
	db := x.db
	l := db.locks[key]
	if l == nil {
		l = &lock{}
		db.locks[key] = l
	}
	if len(l.queue) == 0 && (len(l.holders) == 0 || shared && l.shared) {
		l.grant(x, key, shared)
		return nil
	}
	r := &request{tx: x, shared: shared}
	l.queue = append(l.queue, r)
	db.world.Trace("pg.wait", key.kind.String()+" "+key.a+" "+key.c)
	bounded, cancel := db.server.WithTimeout(db.server.Context(), db.LockTimeout)
	defer cancel()
	_ = db.world.Await(bounded, "a "+key.kind.String()+" lock", func(wake world.Wake) { r.wake = wake })
	switch {
	case x.ended:
		return x.why
	case r.granted:
		return nil
	}
	for i, q := range l.queue {
		if q == r {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			break
		}
	}
	l.next(key)
	return fmt.Errorf("%w: %w", regional.ErrRaced, errLockTimeout)
}

func (l *lock) grant(x *transaction, key lockKey, shared bool) {
	l.holders, l.shared = append(l.holders, x), shared
	x.held[key] = true
	x.order = append(x.order, key)
}

// next grants the lock to those whose turn it is.
func (l *lock) next(key lockKey) {
	for len(l.queue) > 0 {
		r := l.queue[0]
		if len(l.holders) > 0 && !(r.shared && l.shared) {
			return
		}
		l.queue = l.queue[1:]
		if !r.tx.ended {
			l.grant(r.tx, key, r.shared)
			r.granted = true
		}
		if r.wake != nil {
			r.wake()
		}
	}
}

// releaseAll frees all locks of a transaction, in the order in which it took them.
func (x *transaction) releaseAll() {
	for _, key := range x.order {
		l := x.db.locks[key]
		if l == nil {
			continue // the database has crashed since
		}
		for i, h := range l.holders {
			if h == x {
				l.holders = append(l.holders[:i], l.holders[i+1:]...)
				break
			}
		}
		if l.next(key); len(l.holders) == 0 && len(l.queue) == 0 {
			delete(x.db.locks, key)
		}
	}
	x.order, x.held = nil, map[lockKey]bool{}
}
