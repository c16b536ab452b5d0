package ownertwin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/regional"
)

// Apply implements regional.Owner.
func (o *Owner) Apply(ctx context.Context, rw regional.Writer, answer allocation.SyncAnswer, observedAt int64) error {
	mode := switchShared
	if answer.Refusal != "" {
		mode = switchExclusive
	}
	err := o.write(ctx, rw, "apply", mode, func(x *transaction) (bool, error) {
		a := &application{x: x, writer: rw.(*writer), answer: answer, observedAt: observedAt}
		return a.run()
	})
	if err != nil {
		return fmt.Errorf("apply an answer: %w", err)
	}
	return nil
}

// application is one answer on its way into the database.
type application struct {
	x          *transaction
	writer     *writer
	answer     allocation.SyncAnswer
	observedAt int64

	judged ownerRow           // by which the answer was judged
	heeded allocation.History // the owner's, once the answer was heard
	shares map[allocation.ShareRef]shareRow
	opened []allocation.ShareRef
	closed []allocation.ShareRef
}

// run says whether anything is to be written.
func (a *application) run() (bool, error) {
	if err := a.x.statement(); err != nil {
		return false, err
	}
	ignored, err := a.judge()
	if err != nil || ignored {
		return false, err
	}
	switch l := a.judged; {
	case a.heeded != l.history && !a.blank():
		return true, a.x.heed(a.heeded)
	case l.lost || l.stopped == allocation.Sealed:
		return false, nil
	case a.answer.Refusal != "" && a.holdsAll():
		return a.recall()
	case a.answer.Refusal != "" && l.incarnation != "" && (len(a.answer.Contradicted) > 0 || a.answer.Incarnation != l.incarnation):
		return true, a.x.lose(a.answer.Detail)
	case a.answer.Refusal != "":
		return true, a.x.stop(regional.StopReason(a.answer.Refusal), a.answer.Detail)
	}
	if err := a.applyShares(); err != nil {
		return false, err
	}
	if err := a.x.statement(); err != nil {
		return false, err
	}
	if err := a.x.take(lockKey{kind: lockOwner}, false); err != nil {
		return false, err
	}
	now := a.x.db.tables.owner
	if now.deployment != a.judged.deployment || now.incarnation != a.judged.incarnation || now.history != a.judged.history {
		return false, fmt.Errorf("%w: another answer changed the owner's row", regional.ErrRaced)
	}
	return true, a.writeRest(now)
}

// blank says that the owner has heard nothing yet, so that nothing it has could be of another history.
func (a *application) blank() bool {
	return a.judged.incarnation == "" && a.judged.history == (allocation.History{})
}

// judge says whether the answer is to be ignored whole.
func (a *application) judge() (ignored bool, err error) {
	t := a.x.db.tables
	l, answer := t.owner, a.answer
	a.judged = l
	a.heeded, _ = l.history.Heed(answer.History)
	asked := a.writer.asked
	switch {
	case l.deployment != "" && answer.Deployment != l.deployment:
		return false, fmt.Errorf("it is of deployment %q, the owner belongs to %q: %w", answer.Deployment, l.deployment, allocation.ErrContradicted)
	case t.former[answer.Incarnation] || answer.History.Number < l.history.Number:
		return true, nil
	case asked != nil && asked.incarnation != "" && asked.incarnation != l.incarnation:
		return true, nil // the owner has started over since
	case answer.History.Number == l.history.Number && answer.History.Stamp != l.history.Stamp:
		return false, fmt.Errorf("history %d is stored as %s, it was sent as %s: %w",
			l.history.Number, l.history.Stamp, answer.History.Stamp, allocation.ErrContradicted)
	case answer.Refusal != "", a.heeded != l.history && !a.blank():
		return false, nil
	case answer.Incarnation != l.incarnation && l.incarnation != "":
		return false, fmt.Errorf("it is for incarnation %q, the owner is %q: %w", answer.Incarnation, l.incarnation, allocation.ErrContradicted)
	case answer.Incarnation != l.incarnation && asked != nil && asked.home != a.x.db.home:
		return false, fmt.Errorf("the incarnation was given to the database %+v, this is %+v: %w", asked.home, a.x.db.home, allocation.ErrContradicted)
	}
	return false, nil
}

// holdsAll says whether a refusal rests on marks only, and the database still holds every one of them: a later call of
// another node overtook this one, or etcd went back, and knows writers again that have ended.
func (a *application) holdsAll() bool {
	t := a.x.db.tables
	for _, m := range a.answer.Contradicted {
		mark := t.writers[m.Writer].mark
		if past, ended := t.ended[m.Writer]; ended {
			mark = past
		}
		if !m.Holds(mark) {
			return false
		}
	}
	return len(a.answer.Contradicted) > 0
}

// recall states once more that writers have ended, whose end etcd lost.
func (a *application) recall() (write bool, err error) {
	for _, m := range a.answer.Contradicted {
		past, ended := a.x.db.tables.ended[m.Writer]
		if !ended {
			continue
		}
		if err := a.x.take(lockKey{kind: lockWriter, a: m.Writer}, false); err != nil {
			return false, err
		}
		write = true
		now := a.x.db.Clock().Micros()
		a.x.change(func(t *tables) {
			delete(t.ended, m.Writer)
			t.writers[m.Writer] = writerRow{mark: past, ended: true, seen: now}
		})
	}
	return write, nil
}

// newestGrants keeps the newest grant of each share.
func newestGrants(list []allocation.ShareGrant) map[allocation.ShareRef]allocation.ShareGrant {
	out := map[allocation.ShareRef]allocation.ShareGrant{}
	for _, g := range list {
		ref := allocation.ShareRef{Budget: g.Budget, Term: g.Periods.Start()}
		if had, ok := out[ref]; !ok || g.Generation.Number > had.Generation.Number {
			out[ref] = g
		}
	}
	return out
}

// applyShares enters the grants: share rows first, then the usage rows of those that changed, each in the order of keys.
func (a *application) applyShares() error {
	grants := newestGrants(a.answer.Shares)
	refs := slices.AppendSeq(slices.Clone(a.answer.Closed), maps.Keys(grants))
	if len(refs) == 0 {
		return nil
	}
	slices.SortFunc(refs, compareRefs)
	refs = slices.Compact(refs)
	if err := a.x.statement(); err != nil {
		return err
	}
	for _, ref := range refs {
		if g, granted := grants[ref]; granted {
			if err := g.Periods.Validate(); err != nil {
				return fmt.Errorf("a grant of %s: %w", g.Budget, err)
			}
		}
		if err := a.x.take(shareLock(ref), false); err != nil {
			return err
		}
	}
	a.shares = map[allocation.ShareRef]shareRow{}
	var changed []allocation.ShareRef
	for _, ref := range refs {
		now, there := a.x.db.tables.shares[ref]
		a.shares[ref] = now
		if slices.Contains(a.answer.Closed, ref) && there && !now.gone {
			a.closed = append(a.closed, ref)
		}
		grant, granted := grants[ref]
		if !granted || now.gone { // a closed ledger is never opened again
			continue
		}
		share := now.Share
		if a.x.db.Breaks.AnyGeneration {
			share.Generation = allocation.Generation{}
		}
		next, news, err := share.Apply(grant)
		if err != nil {
			return fmt.Errorf("apply a grant: %w", err)
		}
		if !news {
			continue
		}
		if now.Generation.Number == 0 {
			a.opened = append(a.opened, ref)
		}
		changed = append(changed, ref)
		row := shareRow{Share: next, change: now.change}
		a.shares[ref] = row
		a.x.change(putShare(row))
		a.x.record.Shares = append(a.x.record.Shares, next)
	}
	return a.takeUsage(changed)
}

// takeUsage enters the shares' new state into the usage of their periods: what a lowered target leaves free is returned in
// this same commit (invariant 4).
func (a *application) takeUsage(changed []allocation.ShareRef) error {
	if len(changed) == 0 {
		return nil
	}
	if err := a.x.statement(); err != nil {
		return err
	}
	var keys []allocation.UsageKey
	for _, ref := range changed {
		keys = append(keys, a.x.db.tables.ofShare[ref]...)
	}
	slices.SortFunc(keys, allocation.UsageKey.Compare)
	for _, k := range keys {
		if err := a.x.take(usageLock(k), false); err != nil {
			return err
		}
		now, there := a.x.db.tables.usage[k]
		if !there {
			continue
		}
		next := now.Take(a.shares[refOf(now)].Share)
		if next.Overflowed() {
			return fmt.Errorf("usage of %s in period %s would leave its bounds: %+v", next.Budget, next.Period, next)
		}
		a.x.putUsage(now, next)
	}
	return nil
}

// writeRest writes all that stands under the owner's row.
func (a *application) writeRest(now ownerRow) error {
	t, answer := a.x.db.tables, a.answer
	next := now.changes + 1
	raise := len(a.opened)+len(a.closed) > 0
	for _, b := range newestBudgets(answer.Budgets) {
		had, there := t.budgets[b.Budget.Name]
		if !there || b.Version > had.Version || b.Version == had.Version && b.Number > had.Number {
			raise = true
			row := budgetRow{ConfiguredBudget: b, change: next}
			a.x.change(func(t *tables) { t.budgets[row.Budget.Name] = row })
		}
	}
	told, err := a.x.putDocuments(answer.Documents, answer.History.Number, next)
	if err != nil {
		return err
	}
	raise = raise || told
	for _, ref := range a.opened {
		row := a.shares[ref]
		row.change = next
		a.x.change(putShare(row))
		a.shares[ref] = row
	}
	for _, ref := range a.closed {
		row := a.shares[ref]
		row.gone, row.change = true, next
		a.x.change(func(t *tables) {
			touched := t.touched[ref] // being closed is no change to be stated
			putShare(row)(t)
			t.touched[ref] = touched
		})
	}
	a.x.change(putOwner(func(r *ownerRow) { a.enter(r, raise, next) }))
	if answer.Incarnation != "" && now.incarnation == "" {
		a.x.change(func(t *tables) {
			if _, known := t.former[answer.Incarnation]; !known {
				t.former[answer.Incarnation] = false
			}
		})
	}
	if err := a.acknowledge(); err != nil {
		return err
	}
	for _, id := range answer.EndedAcknowledged {
		if row, there := t.writers[id]; there && row.ended {
			if err := a.x.take(lockKey{kind: lockWriter, a: id}, false); err != nil {
				return err
			}
			a.x.change(func(t *tables) {
				if delete(t.writers, id); !row.former && !a.x.db.Breaks.ForgetEnded {
					t.ended[id] = row.mark
				}
			})
		}
	}
	return nil
}

func (a *application) enter(r *ownerRow, raise bool, next int64) {
	answer := a.answer
	r.deployment, r.incarnation, r.history = answer.Deployment, answer.Incarnation, answer.History
	if raise {
		r.changes = next
	}
	r.regions = slices.Compact(slices.Sorted(slices.Values(slices.Concat(r.regions, answer.Regions))))
	r.regions = slices.DeleteFunc(r.regions, func(n string) bool { return slices.Contains(answer.Removed, n) })
	r.config, r.documents = max(r.config, answer.Config), max(r.documents, answer.DocumentsThrough)
	if a.observedAt >= r.observedAt {
		r.revision, r.elsewhere, r.observedAt = answer.Revision, slices.Clone(answer.Elsewhere), a.observedAt
	}
}

func newestBudgets(list []allocation.ConfiguredBudget) []allocation.ConfiguredBudget {
	newest := map[string]allocation.ConfiguredBudget{}
	for _, c := range list {
		if had, ok := newest[c.Budget.Name]; !ok || c.Version > had.Version || c.Version == had.Version && c.Number > had.Number {
			newest[c.Budget.Name] = c
		}
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b allocation.ConfiguredBudget) int { return strings.Compare(a.Budget.Name, b.Budget.Name) })
}

// acknowledge records which statements the coordinator has. One that this database does not know is no base.
func (a *application) acknowledge() error {
	acks := slices.Clone(a.answer.Acknowledged)
	slices.SortFunc(acks, func(a, b allocation.ShardAck) int { return a.Shard - b.Shard })
	if len(acks) == 0 {
		return nil
	}
	if err := a.x.statement(); err != nil {
		return err
	}
	for _, ack := range acks {
		if err := a.x.take(lockKey{kind: lockShard, n: int64(ack.Shard)}, false); err != nil {
			return err
		}
		a.x.change(func(t *tables) {
			row := &t.shards[ack.Shard]
			known := slices.ContainsFunc(t.statements[ack.Shard], func(s statementRow) bool { return s.number == ack.Number })
			switch {
			case ack.Number > row.number:
			case ack.Whole:
				row.acked = 0
			case known:
				row.acked = max(row.acked, ack.Number)
				t.statements[ack.Shard] = slices.DeleteFunc(t.statements[ack.Shard], func(s statementRow) bool { return s.number < row.acked })
			}
		})
	}
	return nil
}

// stop makes the owner admit nothing; the first reason stays.
func (x *transaction) stop(reason allocation.Reason, detail string) error {
	if err := x.take(lockKey{kind: lockOwner}, false); err != nil {
		return err
	}
	x.change(putOwner(func(r *ownerRow) {
		if r.stopped == "" {
			r.stopped, r.detail = reason, detail
		}
	}))
	return nil
}
