package ownertwin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/regional"
)

// Bounds of statements, as in regional/postgres.
const (
	keptStatements = 16
	maxLow         = 100
)

// base is what the coordinator acknowledged of a shard: number 0 asks for the whole shard.
type base struct {
	shard   int
	number  int64
	at      int64 // the commit up to which the statement saw everything
	ordered bool
	touched int
}

// Statements implements regional.Owner.
func (o *Owner) Statements(ctx context.Context, rw regional.Writer, acknowledged map[int]int64) (allocation.SyncCall, error) {
	var call allocation.SyncCall
	err := o.write(ctx, rw, "statements", switchFree, func(x *transaction) (bool, error) {
		call = allocation.SyncCall{}
		if err := x.statement(); err != nil {
			return false, err
		}
		chosen, complete := o.choose(x, acknowledged)
		if err := x.state(chosen, false, &call); err != nil {
			return false, err
		}
		call.CompleteThrough = complete
		rw.(*writer).asked = &asked{call.Incarnation, call.Home}
		return true, nil
	})
	if err != nil {
		return allocation.SyncCall{}, fmt.Errorf("make statements: %w", err)
	}
	return call, nil
}

// StateHeld implements regional.Owner.
func (o *Owner) StateHeld(ctx context.Context, rw regional.Writer, from int) (allocation.SyncCall, int, error) {
	var call allocation.SyncCall
	next := allocation.Shards
	err := o.write(ctx, rw, "held", switchFree, func(x *transaction) (bool, error) {
		call = allocation.SyncCall{}
		if err := x.statement(); err != nil {
			return false, err
		}
		var chosen []base
		sum := 0
		for shard := from; shard < allocation.Shards; shard++ {
			n := len(x.db.tables.toState(base{shard: shard}))
			if sum += n; sum > allocation.MaxSharesPerCall && len(chosen) > 0 {
				next = shard
				break
			}
			if n > 0 {
				chosen = append(chosen, base{shard: shard})
			}
		}
		err := x.state(chosen, true, &call)
		rw.(*writer).asked = &asked{call.Incarnation, call.Home}
		return true, err
	})
	if err != nil {
		return allocation.SyncCall{}, 0, fmt.Errorf("state all shares: %w", err)
	}
	return call, next, nil
}

// baseOf is the base of a shard's next statement: the acknowledged one, if this database still knows what it saw.
func (x *transaction) baseOf(shard int, acknowledged map[int]int64) base {
	t := x.db.tables
	number, said := acknowledged[shard]
	b := base{shard: shard, ordered: said && number == 0}
	if !said {
		number = t.shards[shard].acked
	}
	for _, s := range t.statements[shard] {
		if s.number == number && s.system == x.db.home.System {
			b.number, b.at = s.number, s.at
		}
	}
	return b
}

// toState lists the shares of a shard that changed since its base.
func (t *tables) toState(b base) []allocation.ShareRef {
	var refs []allocation.ShareRef
	for _, ref := range t.byShard[b.shard] {
		if b.number == 0 && !t.shares[ref].gone || b.number > 0 && t.touched[ref] > b.at {
			refs = append(refs, ref)
		}
	}
	return refs
}

// choose picks the shards that have something to state, as many as one call may hold, going round; and says through which
// closed_before these are all.
func (o *Owner) choose(x *transaction, acknowledged map[int]int64) (chosen []base, complete allocation.Instant) {
	complete = x.db.tables.owner.closedBefore
	sum := 0
	for i := range allocation.Shards {
		b := x.baseOf((o.nextShard+i)%allocation.Shards, acknowledged)
		if b.touched = len(x.db.tables.toState(b)); b.touched == 0 && !b.ordered {
			continue
		}
		if sum += b.touched; sum > allocation.MaxSharesPerCall && len(chosen) > 0 {
			o.nextShard = b.shard
			complete = 0
			break
		}
		chosen = append(chosen, b)
	}
	slices.SortFunc(chosen, func(a, b base) int { return a.shard - b.shard })
	return chosen, complete
}

// state raises the numbers of the chosen shards under their locks, and then reads what they state at one moment: a higher
// number has seen more.
func (x *transaction) state(chosen []base, held bool, call *allocation.SyncCall) error {
	if err := x.statement(); err != nil {
		return err
	}
	for _, b := range chosen {
		if err := x.take(lockKey{kind: lockShard, n: int64(b.shard)}, false); err != nil {
			return err
		}
	}
	if err := x.statement(); err != nil {
		return err
	}
	t, home := x.db.tables, x.db.home
	for _, b := range chosen {
		number := t.shards[b.shard].number + 1
		st := allocation.Statement{Shard: b.shard, Number: number, Base: b.number}
		for _, ref := range t.toState(b) {
			share := t.shareStatement(ref)
			if held {
				whole := t.shares[ref].Share
				share.Held = &whole
			}
			st.Shares = append(st.Shares, share)
		}
		call.Statements = append(call.Statements, st)
		row := statementRow{number: number, system: home.System, at: t.commits}
		x.change(func(t *tables) { t.keep(b.shard, row) })
	}
	x.fill(call)
	return nil
}

// keep enters a statement that was made.
func (t *tables) keep(shard int, row statementRow) {
	acked := t.shards[shard].acked
	t.shards[shard].number = row.number
	list := slices.DeleteFunc(slices.Clone(t.statements[shard]), func(s statementRow) bool {
		return s.number == row.number || s.number <= row.number-keptStatements && s.number != acked
	})
	t.statements[shard] = append(list, row)
}

// shareStatement is the account of one share; for a template the sums over its instances.
func (t *tables) shareStatement(ref allocation.ShareRef) allocation.ShareStatement {
	s := t.shares[ref]
	type periodClass struct {
		period allocation.Instant
		class  allocation.Class
	}
	at, counts := map[periodClass]int{}, map[allocation.Instant]map[allocation.Class]int64{}
	var used []allocation.Usage
	for _, k := range t.ofShare[ref] {
		u := t.usage[k]
		pc := periodClass{u.Period, u.Class}
		i, had := at[pc]
		if !had {
			i = len(used)
			at[pc] = i
			sum := u
			sum.Instance, sum.Spent, sum.Reserved, sum.Overdraft = "", 0, 0, 0
			if s.Template {
				sum.Returned = 0
			}
			used = append(used, sum)
		}
		sum := &used[i]
		sum.Spent, sum.Reserved, sum.Overdraft = added(sum.Spent, u.Spent), added(sum.Reserved, u.Reserved), added(sum.Overdraft, u.Overdraft)
		if s.Template {
			if counts[u.Period] == nil {
				counts[u.Period] = map[allocation.Class]int64{}
			}
			counts[u.Period][u.Class]++
		}
	}
	slices.SortFunc(used, func(a, b allocation.Usage) int {
		if a.Period != b.Period {
			return int(min(1, max(-1, a.Period-b.Period)))
		}
		return strings.Compare(string(a.Class), string(b.Class))
	})
	instances := map[allocation.Instant]int64{}
	for period, byClass := range counts {
		for _, n := range byClass {
			instances[period] = max(instances[period], n)
		}
	}
	return s.Statement(used, instances)
}

// added adds two counters; at the end of int64 it stays there.
func added(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// fill adds what a call says besides statements.
func (x *transaction) fill(call *allocation.SyncCall) {
	t, o := x.db.tables, x.db.tables.owner
	call.Format, call.Region, call.Deployment = allocation.SyncFormat, o.region, o.deployment
	call.History, call.Incarnation, call.Home, call.Lineage = o.history, o.incarnation, x.db.home, x.db.lineage()
	call.ClosedBefore, call.Config, call.Stopped = o.closedBefore, o.config, string(o.stopped)
	call.Clock = x.db.Clock().Micros()
	call.Regions = slices.Clone(o.regions)
	call.DocumentsThrough, call.Documents = o.documents, t.untold()
	for _, w := range t.writers {
		if w.former {
			continue
		}
		call.Marks = append(call.Marks, w.mark)
		if w.ended {
			call.Ended = append(call.Ended, w.mark.Writer)
		}
	}
	slices.SortFunc(call.Marks, func(a, b allocation.Mark) int { return strings.Compare(a.Writer, b.Writer) })
	slices.Sort(call.Ended)
	call.OpenReservations, call.OldestReservation = t.openReservations()
	call.Low = t.low(allocation.Instant(call.Clock / 1_000_000))
}

func (t *tables) openReservations() (count, oldest int64) {
	for _, at := range t.open {
		if count++; count == 1 || at < oldest {
			oldest = at
		}
	}
	return count, oldest
}

// running is the usage of running periods, instances of templates aside, in no particular order.
func (t *tables) running(now allocation.Instant) []allocation.Usage {
	var list []allocation.Usage
	for ref, keys := range t.ofShare {
		if s, there := t.shares[ref]; there && (s.Template || s.Periods.Start() > now || s.Periods.End() <= now) {
			continue
		}
		for _, k := range keys {
			if u := t.usage[k]; u.Period <= now && now < u.Until && !u.Template {
				list = append(list, u)
			}
		}
	}
	return list
}

// low names the budgets whose running period has less than a tenth of its share left, and those that have a ladder, the
// emptiest first, and then those that hold nothing of it.
func (t *tables) low(now allocation.Instant) []string {
	type left struct {
		budget string
		part   float64
	}
	var list []left
	for _, u := range t.running(now) {
		held := u.Granted - u.Returned
		free := held - u.Spent - u.Reserved
		switch {
		case u.Class != allocation.General || u.Generation == 0:
		case held == 0:
			list = append(list, left{u.Budget, 2})
		case free*10 < held || t.hasLadder(u.Budget):
			list = append(list, left{u.Budget, float64(free) / float64(held)})
		}
	}
	slices.SortFunc(list, func(a, b left) int {
		switch {
		case a.part < b.part:
			return -1
		case a.part > b.part:
			return 1
		}
		return strings.Compare(a.budget, b.budget)
	})
	var names []string
	for _, l := range list[:min(len(list), maxLow)] {
		names = append(names, l.budget)
	}
	return names
}

func (t *tables) hasLadder(budget string) bool {
	b, known := t.budgets[budget]
	return known && !b.Deleted && b.Budget.Ladder != nil
}
