package ownertwin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/regional"
)

// heed stores a newer history, in whose configuration the owner is at the beginning, and nothing else.
func (x *transaction) heed(h allocation.History) error {
	if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
		return err
	}
	x.change(putOwner(func(r *ownerRow) {
		if r.history.Number < h.Number {
			r.history, r.config, r.documents = h, 0, 0
		}
	}))
	x.change(func(t *tables) {
		for name, b := range t.budgets {
			b.Number = 0 // what is told now under the same version takes its place
			t.budgets[name] = b
		}
	})
	for shard := range x.db.tables.shards {
		if x.db.tables.shards[shard].acked == 0 {
			continue
		}
		if err := x.take(lockKey{kind: lockShard, n: int64(shard)}, false); err != nil {
			return err
		}
		x.change(func(t *tables) { t.shards[shard].acked = 0 }) // etcd may have lost what it had acknowledged
	}
	return nil
}

// lose records that the owner lost history; the first words stay, and a seal goes on to be one.
func (x *transaction) lose(detail string) error {
	if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
		return err
	}
	x.change(putOwner(func(r *ownerRow) {
		if !r.lost && r.stopped != allocation.Sealed {
			r.stopped, r.detail = allocation.HistoryLost, detail
		}
		r.lost = true
	}))
	return nil
}

// Look implements regional.Owner.
func (o *Owner) Look(ctx context.Context, rw regional.Writer) (regional.Look, error) {
	var l regional.Look
	err := o.write(ctx, rw, "look", switchFree, func(x *transaction) (bool, error) {
		if err := x.statement(); err != nil {
			return false, err
		}
		l = regional.Look{Lineage: x.db.lineage(), Home: x.db.home}
		for _, w := range x.db.tables.writers {
			if !w.former {
				l.Marks = append(l.Marks, regional.WriterMark{Mark: w.mark, Name: w.name, Ended: w.ended, Vouched: w.vouched})
			}
		}
		slices.SortFunc(l.Marks, func(a, b regional.WriterMark) int { return strings.Compare(a.Writer, b.Writer) })
		return true, nil
	})
	if err != nil {
		return regional.Look{}, fmt.Errorf("look at the other writers: %w", err)
	}
	return l, nil
}

// Lose implements regional.Owner.
func (o *Owner) Lose(ctx context.Context, writer, detail string) (lost bool, err error) {
	x, err := o.start(ctx, "lose", switchExclusive, func(x *transaction) error {
		if err := o.belongs(x.db.tables); err != nil {
			return err
		}
		lost = !x.db.tables.writers[writer].former && x.db.tables.owner.incarnation != ""
		return nil
	})
	if err == nil && !lost {
		o.abandon(x)
		return false, nil
	}
	if err == nil {
		err = o.commitWithout(ctx, x, func() error { return x.lose(detail) })
	}
	if err != nil {
		return false, fmt.Errorf("record that history was lost: %w", err)
	}
	return true, nil
}

// Lift implements regional.Owner.
func (o *Owner) Lift(ctx context.Context, rw regional.Writer, was allocation.Reason) error {
	err := o.write(ctx, rw, "lift", switchFree, func(x *transaction) (bool, error) {
		if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
			return false, err
		}
		x.change(putOwner(func(r *ownerRow) {
			if r.stopped == was && !r.lost && r.stopped != allocation.Sealed {
				r.stopped, r.detail = "", ""
			}
		}))
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("lift the stop: %w", err)
	}
	return nil
}

// StartOver implements regional.Owner.
func (o *Owner) StartOver(ctx context.Context, call allocation.SyncCall, answer allocation.SyncAnswer) (regional.StartedOver, error) {
	var over regional.StartedOver
	var body func() error
	x, err := o.start(ctx, "start over", switchExclusive, func(x *transaction) (err error) {
		if err := o.belongs(x.db.tables); err != nil {
			return err
		}
		if err := x.notHandedOver(); err != nil {
			return err
		}
		body, err = x.startOver(call, answer, &over)
		return err
	})
	if err == nil && body == nil {
		o.abandon(x)
		return regional.StartedOver{}, nil
	}
	if err == nil {
		err = o.commitWithout(ctx, x, body)
	}
	if err != nil {
		return regional.StartedOver{}, fmt.Errorf("start over: %w", err)
	}
	return over, nil
}

// startOver says what is to be written; nil if nothing is.
func (x *transaction) startOver(call allocation.SyncCall, answer allocation.SyncAnswer, over *regional.StartedOver) (func() error, error) {
	t := x.db.tables
	l := t.owner
	heeded, take := l.history.Heed(answer.History)
	switch {
	case l.deployment != "" && answer.Deployment != l.deployment:
		return nil, fmt.Errorf("it is of deployment %q, the owner belongs to %q: %w", answer.Deployment, l.deployment, allocation.ErrContradicted)
	case heeded != l.history:
		return func() error { return x.heed(heeded) }, nil
	case !take, t.former[answer.Incarnation], answer.Refusal != "", answer.Incarnation == "", answer.Incarnation == l.incarnation,
		call.Incarnation != l.incarnation, !l.lost && l.stopped != allocation.Sealed:
		return nil, nil
	case call.Home != x.db.home:
		return nil, fmt.Errorf("the incarnation was given to the database %+v, this is %+v: %w", call.Home, x.db.home, allocation.ErrContradicted)
	}
	if err := x.lockAll(); err != nil {
		return nil, err
	}
	over.Incarnation, over.Open = answer.Incarnation, int64(len(t.open))
	over.Stranded = t.stranded(allocation.Instant(x.db.Clock().Micros() / 1_000_000))
	for _, a := range t.reserved(func(*allocation.Admission) bool { return true }) {
		_, table := t.find(a.IDKey)
		next := a.StartOver()
		x.change(putID(table, &next))
		x.record.Updated = append(x.record.Updated, &next)
	}
	for _, u := range t.usage {
		if u.Reserved > 0 { // it counts as spent: what truly happened stays, whatever the row says next
			spent := u
			spent.Spent, spent.Reserved = u.Spent+u.Reserved, 0
			x.record.Usage = append(x.record.Usage, UsageChange{Before: u, After: spent})
		}
	}
	slices.SortFunc(x.record.Usage, func(a, b UsageChange) int { return a.After.Compare(b.After.UsageKey) })
	x.record.StartsOver = true
	return func() error {
		x.change(func(t *tables) { t.startOver(answer, x.db.Breaks.KeepHeld) })
		return nil
	}, nil
}

// lockAll locks all shares, then all usage.
func (x *transaction) lockAll() error {
	if err := x.statement(); err != nil {
		return err
	}
	for _, ref := range slices.SortedFunc(maps.Keys(x.db.tables.shares), compareRefs) {
		if err := x.take(shareLock(ref), false); err != nil {
			return err
		}
	}
	if err := x.statement(); err != nil {
		return err
	}
	for _, k := range slices.SortedFunc(maps.Keys(x.db.tables.usage), allocation.UsageKey.Compare) {
		if err := x.take(usageLock(k), false); err != nil {
			return err
		}
	}
	return x.statement()
}

// startOver makes the tables those of a new incarnation, which holds nothing. Usage stays, since ids speak of it.
func (t *tables) startOver(answer allocation.SyncAnswer, keep bool) {
	if !keep {
		for k, u := range t.usage {
			t.usage[k] = u.StartOver()
		}
		t.shares, t.touched = map[allocation.ShareRef]shareRow{}, map[allocation.ShareRef]int64{}
		t.byShard = [allocation.Shards][]allocation.ShareRef{}
	}
	t.statements = map[int][]statementRow{}
	for i := range t.shards {
		t.shards[i].acked = 0
	}
	for id, w := range t.writers {
		w.former, w.vouched = true, false
		t.writers[id] = w
	}
	t.ended = map[string]allocation.Mark{}
	o := &t.owner
	t.former[o.incarnation], t.former[answer.Incarnation] = true, false
	o.deployment, o.incarnation, o.lost, o.stopped, o.detail = answer.Deployment, answer.Incarnation, false, "", ""
	o.changes++
	o.revision, o.observedAt, o.elsewhere = 0, 0, nil
}

// stranded is what the shares of running periods hold and nobody has spent or reserved, templates aside.
func (t *tables) stranded(now allocation.Instant) (sum int64) {
	for ref, s := range t.shares {
		i, running := s.Periods.Find(now)
		if s.Template || s.gone || !running {
			continue
		}
		period := s.Periods.At(i).Start
		for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
			if u, used := t.usage[allocation.UsageKey{Budget: ref.Budget, Period: period, Class: class}]; used {
				sum = added(sum, u.Granted-u.Returned-u.Spent-u.Reserved)
			} else if e, ok := s.EntryFor(period, class); ok {
				sum = added(sum, e.Granted-e.Returned)
			}
		}
	}
	return sum
}

// Seal implements regional.Owner.
func (o *Owner) Seal(ctx context.Context, incarnation string) (allocation.Seal, error) {
	var seal allocation.Seal
	x, err := o.start(ctx, "seal", switchExclusive, func(x *transaction) error {
		if err := x.lockAll(); err != nil {
			return err
		}
		if err := x.notHandedOver(); err != nil {
			return err
		}
		l := x.db.tables.owner
		switch {
		case l.incarnation == "":
			return errors.New("it has no incarnation: there is nothing to seal")
		case incarnation != "" && incarnation != l.incarnation:
			return fmt.Errorf("its incarnation is %s, not %s", l.incarnation, incarnation)
		case l.lost:
			return fmt.Errorf("%w: what it says is no proof", regional.ErrHistoryLost)
		}
		seal = x.seal()
		return nil
	})
	if err == nil {
		err = o.commitWithout(ctx, x, func() error {
			x.change(func(t *tables) { t.seal() })
			return nil
		})
	}
	if err != nil {
		return allocation.Seal{}, fmt.Errorf("seal the owner: %w", err)
	}
	return seal, nil
}

// seal is what is read of the tables as they will be.
func (x *transaction) seal() allocation.Seal {
	t := x.db.tables
	s := allocation.Seal{Holder: allocation.Holder{Region: t.owner.region, Incarnation: t.owner.incarnation}, Home: x.db.home}
	for _, id := range slices.Sorted(maps.Keys(t.writers)) {
		if w := t.writers[id]; !w.former {
			s.Marks = append(s.Marks, w.mark)
			if w.ended {
				s.Ended = append(s.Ended, id)
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(t.ended)) {
		s.Marks, s.Ended = append(s.Marks, t.ended[id]), append(s.Ended, id)
	}
	for _, ref := range slices.SortedFunc(maps.Keys(t.shares), compareRefs) {
		row := t.shares[ref]
		if row.gone || row.Generation.Number == 0 {
			continue
		}
		sealed := allocation.SealedShare{Share: row.Share.Seal()}
		for _, k := range t.ofShare[ref] {
			if u := t.usage[k]; !u.Template {
				sealed.Used = append(sealed.Used, u.Seal())
			}
		}
		s.Shares = append(s.Shares, sealed)
	}
	return s
}

func (t *tables) seal() {
	for ref, row := range t.shares {
		row.Share = row.Share.Seal()
		t.shares[ref], t.touched[ref] = row, t.commits
	}
	for k, u := range t.usage {
		t.usage[k] = u.Seal()
	}
	if t.owner.stopped != allocation.Sealed {
		t.owner.stopped, t.owner.detail = allocation.Sealed, "its incarnation was sealed; a new one starts with nothing"
	}
}
