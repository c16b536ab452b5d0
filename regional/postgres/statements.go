package postgres

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// Bounds of statements.
const (
	keptStatements = 16  // of one shard, that may still be acknowledged as a base
	maxLow         = 100 // budgets named as low in one call
	renewAfter     = 60  // seconds by which closed_before rises until the base of a shard in which nothing changes is renewed
)

// Which shares changed since an acknowledged statement?
//
// A counter that every batch raises would be a lock that all batches want; one that is read before the row's lock would
// miss changes: a transaction may read 7, wait, and commit its row after the statement of number 7 was made. Instead each
// row carries the number of the transaction that changed it last, and each statement keeps the xmin of its snapshot:
// every transaction below it had ended. What the snapshot did not see therefore has a number of at least xmin, so
//
//	changed >= xmin of the acknowledged statement
//
// misses nothing. It may list a share twice, which does no harm. Statements are numbered by raising a locked row before
// the snapshot is taken, so a higher number has seen more.
//
// Usage has no index on `changed`: that would make every update slower. Only periods that were not closed at the base's
// snapshot are searched, by their end. What changes behind closed_before (a settle, a lapse, a grant) notes its share in
// late_changes. That is exact, since closed_before rises only under the exclusive switch lock: whoever judged a period by
// an older closed_before had committed before it rose, and was seen by every snapshot that saw it risen. A template's rows
// are not looked through: what changed of their sums is (templates.go).
//
// A shard in which nothing happens is not stated again, and its base would grow old: each call would look through all that
// happened since in the others. So the base is renewed: where a snapshot sees nothing that changed since the base, what was
// acknowledged is what that snapshot sees, and stands as if it had been stated in it.

// base is what the coordinator acknowledged of a shard: number 0 asks for the whole shard.
type base struct {
	shard   int16
	number  int64
	after   string // xmin of the statement's snapshot
	closed  int64  // closed_before in it
	ordered bool   // to be stated even if there is nothing to list
}

// bases are columns of some shards' bases.
type bases struct {
	shards  []int16
	numbers []int64
	afters  []string
	closed  []int64
}

func (c *bases) add(b base) {
	c.shards = append(c.shards, b.shard)
	c.numbers = append(c.numbers, b.number)
	c.afters = append(c.afters, b.after)
	c.closed = append(c.closed, b.closed)
}

func (c *bases) args() []any { return []any{c.shards, c.numbers, c.afters, c.closed} }

// Statements makes the statements of the shards that changed, and what else a call says of the owner.
func (s *Store) Statements(ctx context.Context, rw regional.Writer, acknowledged map[int]int64) (allocation.SyncCall, error) {
	var call allocation.SyncCall
	err := s.write(ctx, rw, switchFree, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		all, err := t.bases(ctx, acknowledged)
		if err != nil {
			return nil, fmt.Errorf("read the bases: %w", err)
		}
		seen, err := t.touched(ctx, all)
		if err != nil {
			return nil, fmt.Errorf("look for changes: %w", err)
		}
		chosen, complete := s.choose(all, seen)
		b, err := t.state(ctx, chosen, false, &call)
		if err != nil {
			return nil, err
		}
		seen.renew(b, all)
		call.CompleteThrough = complete
		rw.(*writer).asked = &asked{call.Incarnation, call.Home}
		return b, nil
	})
	if err != nil {
		return allocation.SyncCall{}, fmt.Errorf("make statements: %w", err)
	}
	return call, nil
}

// StateHeld states whole shards, each share with Held.
func (s *Store) StateHeld(ctx context.Context, rw regional.Writer, from int) (allocation.SyncCall, int, error) {
	var call allocation.SyncCall
	next := allocation.Shards
	err := s.write(ctx, rw, switchFree, func(ctx context.Context, t *transaction) (*pgx.Batch, error) {
		all, err := t.bases(ctx, nil)
		if err != nil {
			return nil, fmt.Errorf("read the bases: %w", err)
		}
		var whole []base
		for _, b := range all[min(from, len(all)):] {
			whole = append(whole, base{shard: b.shard})
		}
		var chosen []base
		if chosen, next, err = t.fitting(ctx, whole); err != nil {
			return nil, fmt.Errorf("count the shares: %w", err)
		}
		b, err := t.state(ctx, chosen, true, &call)
		rw.(*writer).asked = &asked{call.Incarnation, call.Home}
		return b, err
	})
	if err != nil {
		return allocation.SyncCall{}, 0, fmt.Errorf("state all shares: %w", err)
	}
	return call, next, nil
}

// fitting is the first shards that hold shares, as many as one call may state, and the shard to go on with.
func (t *transaction) fitting(ctx context.Context, whole []base) (chosen []base, next int, err error) {
	seen, err := t.touched(ctx, whole)
	if err != nil {
		return nil, 0, err
	}
	var sum int64
	for _, b := range whole {
		n := seen.shares[b.shard]
		if sum += n; sum > allocation.MaxSharesPerCall && len(chosen) > 0 {
			return chosen, int(b.shard), nil
		}
		if n > 0 {
			chosen = append(chosen, b)
		}
	}
	return chosen, allocation.Shards, nil
}

// touched is what one snapshot sees of all shards.
type touched struct {
	shares map[int16]int64    // how many the statement of a shard would list
	closed allocation.Instant // closed_before
	after  string             // its xmin
}

// touched counts what the statements of some shards would list.
func (t *transaction) touched(ctx context.Context, all []base) (touched, error) {
	var columns bases
	for _, b := range all {
		columns.add(b)
	}
	seen := touched{shares: map[int16]int64{}}
	q := &pgx.Batch{}
	q.Queue(countTouched, columns.args()...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var shard *int16
			var n int64
			if err := rows.Scan(&shard, &n, &seen.closed, &seen.after); err != nil {
				return err
			}
			if shard != nil {
				seen.shares[*shard] = n
			}
		}
		return rows.Err()
	})
	return seen, t.run(ctx, q)
}

// renew renews the old bases of shards in which nothing changed.
func (seen touched) renew(b *pgx.Batch, all []base) {
	var old bases
	for _, base := range all {
		if base.number > 0 && seen.shares[base.shard] == 0 && !base.ordered && int64(seen.closed)-base.closed >= renewAfter {
			old.add(base)
		}
	}
	if len(old.shards) > 0 {
		b.Queue(renewBases, old.shards, old.numbers, seen.after, int64(seen.closed))
	}
}

// bases reads the base of every shard. What the caller says is acknowledged counts before what is recorded.
func (t *transaction) bases(ctx context.Context, acknowledged map[int]int64) ([]base, error) {
	var shards []int16
	var numbers []int64
	for shard, number := range acknowledged {
		shards = append(shards, int16(shard))
		numbers = append(numbers, number)
	}
	var out []base
	q := &pgx.Batch{}
	q.Queue(selectBases, shards, numbers).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var b base
			if err := rows.Scan(&b.shard, &b.number, &b.after, &b.closed, &b.ordered); err != nil {
				return err
			}
			out = append(out, b)
		}
		return rows.Err()
	})
	return out, t.run(ctx, q)
}

// choose picks the shards that have something to state, as many as one call may hold (always at least one). It goes round,
// so that busy shards do not keep others from their turn. If it picks all of them, it says through which closed_before the
// call is then complete: that of the snapshot in which they were counted. A later one would promise what was spent since.
func (s *Store) choose(all []base, seen touched) (chosen []base, complete allocation.Instant) {
	complete = seen.closed
	first := int(s.nextShard.Load()) % len(all)
	var sum int64
	for i := range all {
		b := all[(first+i)%len(all)]
		n := seen.shares[b.shard]
		if n == 0 && !b.ordered {
			continue
		}
		if sum += n; sum > allocation.MaxSharesPerCall && len(chosen) > 0 {
			s.nextShard.Store(int64(b.shard))
			complete = 0
			break
		}
		chosen = append(chosen, b)
	}
	slices.SortFunc(chosen, func(a, b base) int { return int(a.shard) - int(b.shard) })
	return chosen, complete
}

// state raises the numbers of the chosen shards and then reads what they state, all in one snapshot.
func (t *transaction) state(ctx context.Context, chosen []base, held bool, call *allocation.SyncCall) (*pgx.Batch, error) {
	var columns bases
	for _, b := range chosen {
		columns.add(b)
	}
	numbers := map[int16]int64{}
	var after string
	var closed int64
	var shares []byte
	q := &pgx.Batch{}
	if len(chosen) > 0 {
		q.Queue(lockShards, columns.shards)
		q.Queue(raiseNumbers, columns.shards).Query(func(rows pgx.Rows) error { return eachNumber(rows, numbers) })
		q.Queue(selectTouched, append(columns.args(), held)...).QueryRow(func(row pgx.Row) error { return row.Scan(&after, &closed, &shares) })
	}
	var loaded regional.Loaded
	t.queueCall(q, &loaded, call)
	if err := t.run(ctx, q); err != nil {
		return nil, fmt.Errorf("read the statements: %w", err)
	}
	fillCall(call, &loaded)
	b := &pgx.Batch{}
	if err := t.low(ctx, call); err != nil {
		return nil, fmt.Errorf("look for low budgets: %w", err)
	}
	if len(chosen) == 0 {
		return b, nil
	}
	var stated []statedShare
	if err := decode(shares, &stated); err != nil {
		return nil, fmt.Errorf("decode the statements: %w", err)
	}
	call.Statements = statementsOf(chosen, numbers, stated)
	raised := make([]int64, len(columns.shards))
	for i, shard := range columns.shards {
		raised[i] = numbers[shard]
	}
	b.Queue(insertStatements, columns.shards, raised, after, closed)
	b.Queue(dropOldStatements, columns.shards, int64(keptStatements))
	fold(b, stated)
	return b, nil
}

func eachNumber(rows pgx.Rows, into map[int16]int64) error {
	for rows.Next() {
		var shard int16
		var number int64
		if err := rows.Scan(&shard, &number); err != nil {
			return err
		}
		into[shard] = number
	}
	return rows.Err()
}

// queueCall reads what a call says besides statements.
func (t *transaction) queueCall(q *pgx.Batch, loaded *regional.Loaded, call *allocation.SyncCall) {
	q.Queue(selectHome).QueryRow(func(row pgx.Row) error {
		return row.Scan(&call.Home.System, &call.Home.Database, &call.Home.Timeline)
	})
	t.store.queueOwner(q, noChanges, 0, loaded)
	q.Queue(selectMarks).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			m, err := scanMark(rows)
			if err != nil {
				return err
			}
			call.Marks = append(call.Marks, m.Mark)
			if m.Ended {
				call.Ended = append(call.Ended, m.Writer)
			}
		}
		return rows.Err()
	})
	q.Queue(selectRegions).QueryRow(func(row pgx.Row) error { return row.Scan(&call.Regions) })
	queueUntold(q, &call.Documents)
	q.Queue(selectOpen).QueryRow(func(row pgx.Row) error { return row.Scan(&call.OpenReservations, &call.OldestReservation) })
	q.Queue(selectClock).QueryRow(func(row pgx.Row) error {
		var err error
		call.Clock, _, _, err = scanClock(row)
		return err
	})
}

func fillCall(call *allocation.SyncCall, l *regional.Loaded) {
	call.Format = allocation.SyncFormat
	call.Region, call.Deployment = l.Region, l.Deployment
	call.History, call.Incarnation, call.Lineage = l.History, l.Incarnation, l.Lineage
	call.ClosedBefore, call.Config, call.Stopped = l.ClosedBefore, l.Config, string(l.Stopped)
	call.DocumentsThrough = l.DocumentsThrough
}

func (t *transaction) low(ctx context.Context, call *allocation.SyncCall) error {
	q := &pgx.Batch{}
	q.Queue(selectLow, call.Clock/1_000_000, maxLow).Query(func(rows pgx.Rows) error {
		var err error
		call.Low, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return t.run(ctx, q)
}
