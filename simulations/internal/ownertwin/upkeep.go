package ownertwin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/regional"
)

// Bounds of one Tidy, as in regional/postgres.
const tidyShares = 200

// Load implements regional.Owner.
func (o *Owner) Load(ctx context.Context, after int64) (regional.Loaded, error) {
	l, err := read(ctx, o, "load", func(db *Database, t *tables) (regional.Loaded, error) {
		l := t.loaded(after)
		l.Lineage = db.lineage()
		l.Home, l.Elsewhere = db.home, slices.Clone(t.owner.elsewhere)
		l.OpenReservations, l.OldestReservation = t.openReservations()
		return l, nil
	})
	if err != nil {
		return regional.Loaded{}, fmt.Errorf("load the owner: %w", err)
	}
	o.home = l.Home
	return l, nil
}

// Turn implements regional.Owner.
func (o *Owner) Turn(ctx context.Context, node string, lasts time.Duration) (bool, error) {
	mine, err := read(ctx, o, "turn", func(db *Database, t *tables) (bool, error) {
		now := db.Clock().Micros()
		if t.turnNode != "" && t.turnNode != node && t.turnUntil > now {
			return false, nil
		}
		// One statement that commits itself; that a crash may lose it does not matter.
		t.turnNode, t.turnUntil = node, now+lasts.Microseconds()
		return true, nil
	})
	if err != nil {
		return false, fmt.Errorf("take a turn: %w", err)
	}
	return mine, nil
}

// Fullest implements regional.Owner.
func (o *Owner) Fullest(ctx context.Context, limit int) ([]allocation.Usage, error) {
	list, err := read(ctx, o, "fullest", func(db *Database, t *tables) ([]allocation.Usage, error) {
		list := t.running(allocation.Instant(db.Clock().Micros() / 1_000_000))
		part := func(u allocation.Usage) float64 {
			return float64(u.Spent+u.Reserved) / float64(max(u.Granted-u.Returned, 1))
		}
		slices.SortFunc(list, func(a, b allocation.Usage) int {
			switch {
			case part(a) > part(b):
				return -1
			case part(a) < part(b):
				return 1
			}
			return a.Compare(b.UsageKey)
		})
		return list[:min(len(list), limit)], nil
	})
	if err != nil {
		return nil, fmt.Errorf("list the fullest budgets: %w", err)
	}
	return list, nil
}

// reserved is the open reservations that are wanted, in the order of their keys.
func (t *tables) reserved(wanted func(a *allocation.Admission) bool) []*allocation.Admission {
	var list []*allocation.Admission
	for key := range t.open {
		if a, _ := t.find(key); a != nil && wanted(a) {
			list = append(list, a)
		}
	}
	slices.SortFunc(list, func(a, b *allocation.Admission) int { return a.Compare(b.IDKey) })
	return list
}

// Lapsed implements regional.Owner.
func (o *Owner) Lapsed(ctx context.Context, limit int) ([]allocation.IDKey, error) {
	list, err := read(ctx, o, "lapsed", func(db *Database, t *tables) ([]allocation.IDKey, error) {
		now := db.Clock().Micros()
		over := t.reserved(func(a *allocation.Admission) bool { return a.ExpiresAt <= now })
		slices.SortStableFunc(over, func(a, b *allocation.Admission) int { return int(min(1, max(-1, a.ExpiresAt-b.ExpiresAt))) })
		var keys []allocation.IDKey
		for _, a := range over[:min(len(over), limit)] {
			keys = append(keys, a.IDKey)
		}
		return keys, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list lapsed reservations: %w", err)
	}
	return list, nil
}

// Reservations implements regional.Owner.
func (o *Owner) Reservations(ctx context.Context, after allocation.IDKey, limit int) ([]allocation.Admission, error) {
	list, err := read(ctx, o, "reservations", func(_ *Database, t *tables) (list []allocation.Admission, _ error) {
		open := t.reserved(func(a *allocation.Admission) bool { return a.Compare(after) > 0 })
		for _, a := range open[:min(len(open), limit)] {
			list = append(list, *copyAdmission(a))
		}
		return list, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list reservations: %w", err)
	}
	return list, nil
}

// Export implements regional.Owner.
func (o *Owner) Export(ctx context.Context, after string, limit int) (regional.Account, error) {
	a, err := read(ctx, o, "export", func(db *Database, t *tables) (regional.Account, error) {
		return t.account(db.Clock().Micros(), after, limit), nil
	})
	if err != nil {
		return regional.Account{}, fmt.Errorf("export the account: %w", err)
	}
	return a, nil
}

func (t *tables) account(now int64, after string, limit int) regional.Account {
	a := regional.Account{Region: t.owner.region, Incarnation: t.owner.incarnation, Now: now}
	var budgets []string
	for ref := range t.shares {
		budgets = append(budgets, ref.Budget)
	}
	for ref := range t.ofShare {
		budgets = append(budgets, ref.Budget)
	}
	slices.Sort(budgets)
	budgets = slices.DeleteFunc(slices.Compact(budgets), func(b string) bool { return b <= after })
	if len(budgets) > limit {
		a.More, budgets = true, budgets[:limit]
	}
	listed := map[string]bool{}
	for _, b := range budgets {
		listed[b] = true
		for _, ref := range t.byShard[allocation.ShardOf(b)] {
			if ref.Budget == b {
				a.Shares = append(a.Shares, t.shares[ref].Share)
			}
		}
	}
	for ref, keys := range t.ofShare {
		for _, k := range keys {
			if listed[ref.Budget] {
				a.Usage = append(a.Usage, t.usage[k])
			}
		}
	}
	slices.SortFunc(a.Usage, func(a, b allocation.Usage) int { return a.Compare(b.UsageKey) })
	return a
}

// Export is the whole account as the database truly holds it, for checkers: no call, no delay.
func (db *Database) Export() regional.Account {
	return db.tables.account(db.Clock().Micros(), "", math.MaxInt)
}

// Close implements regional.Owner.
func (o *Owner) Close(ctx context.Context, rw regional.Writer, upTo allocation.Instant, grace allocation.Duration) (allocation.Instant, error) {
	reach := func(db *Database) allocation.Instant {
		if db.Breaks.CloseByCaller {
			return upTo
		}
		return min(upTo, allocation.Instant(floorSeconds(db.Clock().Micros())-int64(grace)))
	}
	type standing struct {
		closed allocation.Instant
		higher bool
	}
	now, err := read(ctx, o, "closed", func(db *Database, t *tables) (standing, error) {
		return standing{t.owner.closedBefore, reach(db) > t.owner.closedBefore}, nil
	})
	if err == nil && now.higher {
		err = o.write(ctx, rw, "close", switchExclusive, func(x *transaction) (bool, error) {
			if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
				return false, err
			}
			raised := max(x.db.tables.owner.closedBefore, reach(x.db))
			now.closed = raised
			x.change(putOwner(func(r *ownerRow) { r.closedBefore = raised }))
			return true, nil
		})
	}
	if err != nil {
		return 0, fmt.Errorf("close periods: %w", err)
	}
	return now.closed, nil
}

func floorSeconds(micros int64) int64 {
	s := micros / 1_000_000
	if micros%1_000_000 < 0 {
		s--
	}
	return s
}

type idTablesNow struct {
	tables [idTables]idTable
	now    int64
}

func (o *Owner) idTables(ctx context.Context) (idTablesNow, error) {
	return read(ctx, o, "tables", func(db *Database, t *tables) (idTablesNow, error) {
		return idTablesNow{t.idTables, db.Clock().Micros()}, nil
	})
}

// Tidy implements regional.Owner.
func (o *Owner) Tidy(ctx context.Context, rw regional.Writer, retention allocation.Duration, monotonic func(table int) allocation.Duration) (string, error) {
	var did []string
	said := func() string { return strings.Join(did, "; ") }
	kept := int64(retention) * 1_000_000
	seen, err := o.idTables(ctx)
	if err != nil {
		return "", fmt.Errorf("tidy: %w", err)
	}
	for place, t := range seen.tables {
		if t.state != "closed" || int64(monotonic(int(t.serial)))*1_000_000 < kept || seen.now-t.closedAt < kept {
			continue
		}
		emptied, err := o.empty(ctx, rw, place, t.serial)
		if err != nil {
			return said(), fmt.Errorf("empty id table %d: %w", place, err)
		}
		if emptied {
			did = append(did, fmt.Sprintf("emptied id table %d", place))
		}
	}
	switched, err := o.switchTables(ctx, rw, kept/2)
	if err != nil {
		return said(), fmt.Errorf("switch id tables: %w", err)
	}
	if switched != "" {
		did = append(did, switched)
	}
	forgotten, err := o.forget(ctx, rw, retention)
	if forgotten > 0 {
		did = append(did, fmt.Sprintf("forgot %d closed terms", forgotten))
	}
	if err != nil {
		return said(), fmt.Errorf("forget closed terms: %w", err)
	}
	return said(), nil
}

// empty truncates a closed table in which nothing is reserved.
func (o *Owner) empty(ctx context.Context, rw regional.Writer, place int, serial int64) (emptied bool, err error) {
	err = o.write(ctx, rw, "empty", switchExclusive, func(x *transaction) (bool, error) {
		t := x.db.tables
		for _, a := range t.ids[place] {
			if a.State == allocation.StateReserved {
				return false, nil
			}
		}
		if emptied = t.idTables[place].state == "closed" && t.idTables[place].serial == serial; !emptied {
			return false, nil
		}
		x.change(func(t *tables) {
			t.ids[place] = map[allocation.IDKey]*allocation.Admission{}
			t.idTables[place].state = "empty"
		})
		return true, nil
	})
	return emptied && err == nil, err
}

// switchTables closes the open table, once it is old enough and the next one is empty, and opens that.
func (o *Owner) switchTables(ctx context.Context, rw regional.Writer, age int64) (did string, err error) {
	seen, err := o.idTables(ctx)
	if err != nil {
		return "", err
	}
	open := (&tables{idTables: seen.tables}).openTable()
	next := (open + 1) % idTables
	if seen.now-seen.tables[open].openedAt < age || seen.tables[next].state != "empty" {
		return "", nil
	}
	err = o.write(ctx, rw, "switch", switchExclusive, func(x *transaction) (bool, error) {
		t, now := x.db.tables, x.db.Clock().Micros()
		if t.idTables[open].state != "open" || t.idTables[next].state != "empty" {
			return false, nil // another node did it
		}
		did = fmt.Sprintf("switched from id table %d to %d", open, next)
		x.change(func(t *tables) {
			serial := int64(0)
			for _, table := range t.idTables {
				serial = max(serial, table.serial+1)
			}
			t.idTables[open].state, t.idTables[open].closedAt = "closed", now
			t.idTables[next] = idTable{serial: serial, state: "open", openedAt: now}
		})
		return true, nil
	})
	return did, err
}

// forget removes usage and shares of terms that nothing speaks of any more.
func (o *Owner) forget(ctx context.Context, rw regional.Writer, retention allocation.Duration) (int, error) {
	refs, err := read(ctx, o, "forgettable", func(db *Database, t *tables) (refs []allocation.ShareRef, _ error) {
		before := allocation.Instant(db.Clock().Micros()/1_000_000 - int64(retention))
		for _, table := range t.idTables {
			if table.state != "empty" {
				before = min(before, allocation.Instant(table.openedAt/1_000_000))
			}
		}
		for ref, s := range t.shares {
			if s.gone && s.Periods.End() <= before && t.settled(ref, db.home.System) {
				refs = append(refs, ref)
			}
		}
		slices.SortFunc(refs, compareRefs)
		return refs[:min(len(refs), tidyShares)], nil
	})
	if err != nil {
		return 0, err
	}
	for i, ref := range refs {
		if err := o.forgetShare(ctx, rw, ref); err != nil {
			return i, fmt.Errorf("%s, term of %s: %w", ref.Budget, ref.Term, err)
		}
	}
	return len(refs), nil
}

// settled says whether nothing of a share is reserved, and all of it was stated in a statement that is acknowledged.
func (t *tables) settled(ref allocation.ShareRef, system string) bool {
	shard := allocation.ShardOf(ref.Budget)
	stated := slices.ContainsFunc(t.statements[shard], func(s statementRow) bool {
		return s.number == t.shards[shard].acked && s.system == system && t.touched[ref] <= s.at
	})
	return stated && !slices.ContainsFunc(t.ofShare[ref], func(k allocation.UsageKey) bool { return t.usage[k].Reserved > 0 })
}

func (o *Owner) forgetShare(ctx context.Context, rw regional.Writer, ref allocation.ShareRef) error {
	return o.write(ctx, rw, "forget", switchShared, func(x *transaction) (bool, error) {
		if err := x.take(shareLock(ref), false); err != nil {
			return false, err
		}
		if !x.db.tables.shares[ref].gone {
			return false, nil
		}
		left := 0
		for _, k := range slices.Clone(x.db.tables.ofShare[ref]) {
			if err := x.take(usageLock(k), false); err != nil {
				return false, err
			}
			if u, there := x.db.tables.usage[k]; there && u.Reserved == 0 {
				x.change(deleteUsage(u))
			} else if there {
				left++
			}
		}
		if left == 0 {
			x.change(deleteShare(ref))
		}
		return true, nil
	})
}
