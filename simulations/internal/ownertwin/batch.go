package ownertwin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

// batch is a transaction between its two round trips.
type batch struct {
	owner  *Owner
	writer *writer
	x      *transaction
	seen   regional.Seen
	open   int // the table of ids that is open
}

var _ regional.Batch = (*batch)(nil)

func checkWant(want regional.Want) error {
	if len(want.Usage) > regional.MaxBatchKeys || len(want.IDs) > regional.MaxBatchRequests || len(want.OfIDs) > regional.MaxBatchRequests {
		return fmt.Errorf("a batch of %d usage rows and %d ids is more than %d and %d",
			len(want.Usage), len(want.IDs), regional.MaxBatchKeys, regional.MaxBatchRequests)
	}
	return nil
}

func newSeen() regional.Seen {
	return regional.Seen{
		Usage: map[allocation.UsageKey]*allocation.Usage{}, Full: map[allocation.UsageKey]bool{}, IDs: map[allocation.IDKey]*allocation.Admission{},
	}
}

// Begin implements regional.Owner.
func (o *Owner) Begin(ctx context.Context, rw regional.Writer, want regional.Want) (regional.Batch, error) {
	if err := checkWant(want); err != nil {
		return nil, err
	}
	w, err := o.take(ctx, rw)
	if err != nil {
		return nil, err
	}
	b := &batch{owner: o, writer: w}
	x, err := o.start(ctx, "batch", switchShared, func(x *transaction) error {
		b.seen = newSeen()
		return b.lockAndRead(x, want)
	})
	if err != nil {
		w.slot.Give()
		return nil, fmt.Errorf("begin a batch: %w", err)
	}
	b.x = x
	b.seen.Home = o.home
	checkBehind(&b.seen)
	return b, nil
}

// lockAndRead is the statements of the first round trip, in their order.
func (b *batch) lockAndRead(x *transaction, want regional.Want) error {
	if err := b.owner.belongs(x.db.tables); err != nil {
		return err
	}
	if x.db.Breaks.LookUpFirst {
		b.lookUp(x, want.IDs)
	}
	if err := b.makeMissing(x, want.Usage); err != nil {
		return err
	}
	if err := b.lockUsage(x, want); err != nil {
		return err
	}
	if err := x.statement(); err != nil {
		return err
	}
	if !x.db.Breaks.LookUpFirst {
		b.lookUp(x, want.IDs)
	}
	if err := x.statement(); err != nil {
		return err
	}
	b.seen.Loaded = x.db.tables.loaded(want.Changes)
	b.seen.Lineage = x.db.lineage()
	if err := x.statement(); err != nil {
		return err
	}
	b.seen.Now, b.seen.Unsafe, b.open = x.db.Clock().Micros(), x.db.Unsafe, x.db.tables.openTable()
	x.record.Clock = b.seen.Now
	return nil
}

// makeMissing locks the shares of the rows that the node has never seen, and makes those rows (invariant 9).
func (b *batch) makeMissing(x *transaction, wanted []regional.WantedUsage) error {
	var refs []allocation.ShareRef
	for _, u := range wanted {
		if u.Make {
			refs = append(refs, allocation.ShareRef{Budget: u.Budget, Term: u.Term})
		}
	}
	if len(refs) == 0 {
		return nil
	}
	slices.SortFunc(refs, compareRefs)
	if err := x.statement(); err != nil {
		return err
	}
	for _, ref := range slices.Compact(refs) {
		if _, there := x.db.tables.shares[ref]; there && !x.db.Breaks.NoShareLock {
			if err := x.take(shareLock(ref), false); err != nil {
				return err
			}
		}
	}
	if err := x.statement(); err != nil {
		return err
	}
	extra := map[instances]int64{}
	for _, u := range wanted {
		if !u.Make {
			continue
		}
		made, fits, ok := x.db.tables.wouldMake(u, extra)
		if ok && !fits {
			b.seen.Full[u.UsageKey] = true
		}
		if ok && fits {
			x.made[u.UsageKey] = made
			x.putUsage(allocation.Usage{}, made)
		}
	}
	return nil
}

// wouldMake is the row that would be made for a wanted one, from its share; ok is false if there is a row already, or no
// share that has such a period.
func (t *tables) wouldMake(u regional.WantedUsage, extra map[instances]int64) (made allocation.Usage, fits, ok bool) {
	if _, there := t.usage[u.UsageKey]; there {
		return made, false, false
	}
	s := t.shares[allocation.ShareRef{Budget: u.Budget, Term: u.Term}]
	if s.Generation.Number == 0 || s.gone || s.Template != (u.Instance != "") {
		return made, false, false
	}
	if made, ok = s.Usage(u.UsageKey); !ok {
		return made, false, false
	}
	of := instances{u.Budget, u.Period, u.Class}
	if s.Template && u.MaxInstances > 0 && t.instances[of]+extra[of] >= u.MaxInstances {
		return made, false, true
	}
	extra[of]++
	return made, true, true
}

// lockUsage locks all usage rows of the batch in the order of their keys. Rows that others make meanwhile are not seen.
func (b *batch) lockUsage(x *transaction, want regional.Want) error {
	if len(want.Usage)+len(want.OfIDs) == 0 {
		return nil
	}
	if err := x.statement(); err != nil {
		return err
	}
	t := x.db.tables
	var keys []allocation.UsageKey
	for _, u := range want.Usage {
		keys = append(keys, u.UsageKey)
	}
	for _, id := range want.OfIDs {
		if a, _ := t.find(id); a != nil {
			for _, line := range a.Lines {
				keys = append(keys, line.UsageKey)
			}
		}
	}
	slices.SortFunc(keys, allocation.UsageKey.Compare)
	keys = slices.DeleteFunc(slices.Compact(keys), func(k allocation.UsageKey) bool { _, there := x.usage(k); return !there })
	for _, k := range keys {
		before, _ := x.usage(k)
		if err := b.lockRow(x, k); err != nil {
			return err
		}
		u, there := x.usage(k) // as it is after the wait
		if !there {
			continue
		}
		if x.db.Breaks.StaleShare {
			u.Granted, u.Returned, u.Target, u.Protected, u.Generation, u.Sealed = before.Granted, before.Returned, before.Target, before.Protected, before.Generation, before.Sealed
		}
		b.seen.Usage[k] = &u
	}
	return nil
}

func (b *batch) lockRow(x *transaction, k allocation.UsageKey) error {
	if x.db.Breaks.NoUsageLock {
		return nil
	}
	return x.take(usageLock(k), false)
}

func (b *batch) lookUp(x *transaction, ids []allocation.IDKey) {
	for _, id := range ids {
		a, table := x.db.tables.find(id)
		if x.db.Breaks.OpenTableOnly {
			table = x.db.tables.openTable()
			a = x.db.tables.ids[table][id]
		}
		if a != nil {
			b.seen.IDs[id] = copyAdmission(a)
			x.places[id], x.was[id] = table, a.State
		}
	}
}

// Seen implements regional.Batch.
func (b *batch) Seen() *regional.Seen { return &b.seen }

// Abandon implements regional.Batch.
func (b *batch) Abandon() {
	if b.x == nil {
		return
	}
	b.owner.abandon(b.x)
	b.x = nil
	b.writer.slot.Give()
}

// Commit implements regional.Batch.
func (b *batch) Commit(ctx context.Context, writes regional.Writes) error {
	if b.x == nil {
		return errors.New("commit a batch: it has ended")
	}
	for _, u := range writes.Usage {
		if u.Overflowed() {
			b.Abandon()
			return fmt.Errorf("commit a batch: usage of %s in period %s left its bounds: %+v", u.Budget, u.Period, *u)
		}
	}
	for _, a := range writes.Updated {
		if _, ok := b.x.places[a.IDKey]; !ok {
			b.Abandon()
			return fmt.Errorf("commit a batch: id %s of %s was not looked up", a.ID, a.Credential)
		}
	}
	x := b.x
	b.x = nil
	sent := copyWrites(writes)
	if err := b.writer.commit(ctx, x, func() error { return b.write(x, sent) }); err != nil {
		return fmt.Errorf("commit a batch: %w", err)
	}
	return nil
}

// copyWrites copies what is sent: the caller may go on changing its own.
func copyWrites(w regional.Writes) (c regional.Writes) {
	for _, u := range w.Usage {
		copied := *u
		c.Usage = append(c.Usage, &copied)
	}
	for _, a := range w.Inserted {
		c.Inserted = append(c.Inserted, copyAdmission(a))
	}
	for _, a := range w.Updated {
		c.Updated = append(c.Updated, copyAdmission(a))
	}
	return c
}

// write is the statements of the second round trip but for the mark. Each raises unless it changed exactly what was
// decided.
func (b *batch) write(x *transaction, w regional.Writes) error {
	if err := x.statement(); err != nil {
		return err
	}
	for _, u := range w.Usage {
		if err := b.writeUsage(x, *u); err != nil {
			return err
		}
	}
	if err := b.insertIDs(x, w.Inserted); err != nil {
		return err
	}
	return b.updateIDs(x, w.Updated)
}

func (b *batch) writeUsage(x *transaction, u allocation.Usage) error {
	if err := x.take(usageLock(u.UsageKey), false); err != nil {
		return err
	}
	row, there := x.usage(u.UsageKey)
	if !there || row.Granted != u.Granted && !x.db.Breaks.StaleShare {
		if x.db.Breaks.CommitMismatched {
			return nil
		}
		return fmt.Errorf("%w: usage rows: %s of period %s", regional.ErrRaced, u.Budget, u.Period)
	}
	after := row
	after.Spent, after.Reserved, after.Overdraft, after.Returned = u.Spent, u.Reserved, u.Overdraft, u.Returned
	if after.Overflowed() {
		return fmt.Errorf("usage of %s in period %s breaks a constraint: %+v", u.Budget, u.Period, after)
	}
	x.putUsage(row, after)
	if _, mine := x.made[u.UsageKey]; mine {
		x.made[u.UsageKey] = after
	}
	return nil
}

// insertIDs waits for whoever is inserting the same id: if that one commits, this one was raced.
func (b *batch) insertIDs(x *transaction, list []*allocation.Admission) error {
	if len(list) == 0 {
		return nil
	}
	if err := x.statement(); err != nil {
		return err
	}
	table := b.open
	x.into = table
	for _, a := range sortedIDs(list) {
		if err := x.take(idLock(table, a.IDKey), false); err != nil {
			return err
		}
		if x.db.tables.ids[table][a.IDKey] != nil && !x.db.Breaks.NoIDConstraint || slices.Contains(x.record.Inserted, a) {
			return fmt.Errorf("%w: inserted ids: %s is there", regional.ErrRaced, a.ID)
		}
		x.change(putID(table, a))
		x.record.Inserted = append(x.record.Inserted, a)
	}
	return nil
}

func (b *batch) updateIDs(x *transaction, list []*allocation.Admission) error {
	if len(list) == 0 {
		return nil
	}
	if err := x.statement(); err != nil {
		return err
	}
	for _, a := range sortedIDs(list) {
		table := x.places[a.IDKey]
		if err := x.take(idLock(table, a.IDKey), false); err != nil {
			return err
		}
		now := x.db.tables.ids[table][a.IDKey]
		if now == nil || now.State != x.was[a.IDKey] {
			return fmt.Errorf("%w: updated ids: %s has changed", regional.ErrRaced, a.ID)
		}
		x.change(putID(table, a))
		x.record.Updated = append(x.record.Updated, a)
	}
	return nil
}

func sortedIDs(list []*allocation.Admission) []*allocation.Admission {
	return slices.SortedStableFunc(slices.Values(list), func(a, b *allocation.Admission) int { return a.Compare(b.IDKey) })
}
