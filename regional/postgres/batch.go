package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"tranche/allocation"
	"tranche/regional"
)

// batch is a transaction between its two round trips.
type batch struct {
	store  *Store
	writer *writer
	tx     *transaction
	seen   regional.Seen
	open   int16                            // the table of ids that is open; it cannot change under the shared switch lock
	places map[allocation.IDKey]place       // where the ids stand that were found
	rows   map[allocation.UsageKey]standing // where the usage rows stand; they stay there while they are locked
}

// place is the table of an id and the state in which it was read.
type place struct {
	table int16
	state allocation.State
}

var _ regional.Batch = (*batch)(nil)

// Begin locks and reads what the batch wants, in one round trip. See the package's description for the order.
func (s *Store) Begin(ctx context.Context, rw regional.Writer, want regional.Want) (regional.Batch, error) {
	if err := checkWant(want); err != nil {
		return nil, err
	}
	w, err := s.take(ctx, rw)
	if err != nil {
		return nil, err
	}
	b := newBatch(s)
	b.writer = w
	q := &pgx.Batch{}
	q.Queue(begin)
	q.Queue(beginBatch, millis(s.cfg.LockTimeout), millis(s.cfg.LockTimeout), int64(switchLock))
	b.queueMake(q, want.Usage)
	b.queueLocks(q, want)
	b.queueIDs(q, want.IDs)
	b.queueOwnerNow(q, selectOwnerOnly)
	if b.tx, err = s.start(ctx, q); err != nil {
		w.release()
		return nil, fmt.Errorf("begin a batch: %w", err)
	}
	if err := b.readChanges(ctx, want.Changes); err != nil {
		b.Abandon()
		return nil, fmt.Errorf("begin a batch: %w", err)
	}
	b.seen.Home = *s.home.Load()
	checkBehind(&b.seen)
	return b, nil
}

func newBatch(s *Store) *batch {
	return &batch{store: s, seen: newSeen(), places: map[allocation.IDKey]place{}, rows: map[allocation.UsageKey]standing{}}
}

func checkWant(want regional.Want) error {
	if len(want.Usage) > regional.MaxBatchKeys || len(want.IDs) > regional.MaxBatchRequests || len(want.OfIDs) > regional.MaxBatchRequests {
		return fmt.Errorf("a batch of %d usage rows and %d ids is more than %d and %d",
			len(want.Usage), len(want.IDs), regional.MaxBatchKeys, regional.MaxBatchRequests)
	}
	return nil
}

func newSeen() regional.Seen {
	return regional.Seen{
		Usage: map[allocation.UsageKey]*allocation.Usage{},
		Full:  map[allocation.UsageKey]bool{},
		IDs:   map[allocation.IDKey]*allocation.Admission{},
	}
}

// queueMake locks the shares of the rows that the node has never seen, and makes those rows (invariant 9).
func (b *batch) queueMake(q *pgx.Batch, wanted []regional.WantedUsage) {
	missing := newMissing(wanted)
	if len(missing.terms) == 0 {
		return
	}
	q.Queue(lockShares, missing.budgets, missing.terms)
	q.Queue(makeUsage, missing.args()...).Query(func(rows pgx.Rows) error {
		return eachKey(rows, func(k allocation.UsageKey) { b.seen.Full[k] = true })
	})
}

// queueLocks locks all usage rows of the batch by one statement, in the order of their keys.
func (b *batch) queueLocks(q *pgx.Batch, want regional.Want) {
	keys := newKeys(len(want.Usage))
	for _, u := range want.Usage {
		keys.add(u.UsageKey)
	}
	switch {
	case len(want.OfIDs) > 0:
		ids := newIDKeys(want.OfIDs)
		q.Queue(lockUsageOfIDs, append(keys.args(), ids.args()...)...).Query(b.readUsage)
	case len(want.Usage) > 0:
		q.Queue(lockUsage, keys.args()...).Query(b.readUsage)
	}
}

// queueIDs looks the ids up, by a statement that begins after all locks: it sees what was committed while they were
// awaited.
func (b *batch) queueIDs(q *pgx.Batch, ids []allocation.IDKey) {
	if len(ids) == 0 {
		return
	}
	q.Queue(selectIDs, newIDKeys(ids).args()...).Query(func(rows pgx.Rows) error {
		return eachID(rows, ids, func(a *allocation.Admission, table int16) {
			b.seen.IDs[a.IDKey] = a
			b.places[a.IDKey] = place{table: table, state: a.State}
		})
	})
}

// readChanges reads the owner's row once more, with what changed after the number, if something did.
func (b *batch) readChanges(ctx context.Context, after int64) error {
	if b.seen.Changes <= after {
		return nil
	}
	q := &pgx.Batch{}
	b.queueOwnerNow(q, selectOwnerNow, after, regional.MaxChanges+1)
	return b.tx.run(ctx, q)
}

// queueOwnerNow reads the owner's row and the clock, after all locks.
func (b *batch) queueOwnerNow(q *pgx.Batch, text string, args ...any) {
	q.Queue(text, args...).QueryRow(func(row pgx.Row) error {
		var c clockRow
		if err := b.store.scanOwner(row, &b.seen.Loaded, c.fields()...); err != nil {
			return err
		}
		var err error
		b.seen.Now, b.seen.Unsafe, b.open, err = c.read()
		return err
	})
}

// clockRow are the columns of clockColumns.
type clockRow struct {
	now                           int64
	fsync, synchronous, fullPages string
	place                         *int16
}

func (c *clockRow) fields() []any {
	return []any{&c.now, &c.fsync, &c.synchronous, &c.fullPages, &c.place}
}

// read answers the clock, the first setting with which a commit would not survive a crash, and the open table of ids.
func (c *clockRow) read() (now int64, unsafe string, open int16, err error) {
	if c.place == nil {
		return 0, "", 0, fmt.Errorf("%w: no table of admission ids is open", regional.ErrNotReady)
	}
	switch {
	case c.fsync != "on":
		unsafe = "fsync=" + c.fsync
	case c.synchronous == "off":
		unsafe = "synchronous_commit=" + c.synchronous
	case c.fullPages != "on":
		unsafe = "full_page_writes=" + c.fullPages
	}
	return c.now, unsafe, *c.place, nil
}

func scanClock(row pgx.Row) (now int64, unsafe string, open int16, err error) {
	var c clockRow
	if err := row.Scan(c.fields()...); err != nil {
		return 0, "", 0, err
	}
	return c.read()
}

func (b *batch) Seen() *regional.Seen { return &b.seen }

// Abandon ends the transaction without writing anything.
func (b *batch) Abandon() {
	if b.tx == nil {
		return
	}
	b.tx.abandon()
	b.tx = nil
	b.writer.release()
}

// Commit writes and commits, in one round trip.
func (b *batch) Commit(ctx context.Context, writes regional.Writes) error {
	if b.tx == nil {
		return errors.New("commit a batch: it has ended")
	}
	q, err := b.queueWrites(writes)
	if err != nil {
		b.Abandon()
		return fmt.Errorf("commit a batch: %w", err)
	}
	tx := b.tx
	b.tx = nil
	if err := b.writer.commit(ctx, tx, q); err != nil {
		return fmt.Errorf("commit a batch: %w", err)
	}
	return nil
}

// queueWrites is what the transaction writes: the ids, then the counters, which go with the mark.
func (b *batch) queueWrites(writes regional.Writes) (*pgx.Batch, error) {
	q := &pgx.Batch{}
	if err := b.queueInserted(q, writes.Inserted); err != nil {
		return nil, err
	}
	var perTable [idTables][]*allocation.Admission
	for _, a := range writes.Updated {
		p, ok := b.places[a.IDKey]
		if !ok {
			return nil, fmt.Errorf("id %s of %s was not looked up", a.ID, a.Credential)
		}
		perTable[p.table] = append(perTable[p.table], a)
	}
	for table, list := range perTable {
		was := func(a *allocation.Admission) allocation.State { return b.places[a.IDKey].state }
		if err := queueUpdated(q, table, list, was); err != nil {
			return nil, err
		}
	}
	return q, b.queueUsage(q, writes.Usage)
}

// copyLeast is the number of ids from which on they are written by COPY: it saves more than its round trip takes.
const copyLeast = 64

func (b *batch) queueInserted(q *pgx.Batch, ids []*allocation.Admission) error {
	if len(ids) == 0 {
		return nil
	}
	if len(ids) >= copyLeast {
		rows, err := copyRows(ids)
		b.tx.copied = &copied{text: copyIDs[b.open], rows: rows}
		return err
	}
	rows, err := newIDRows(ids)
	if err != nil {
		return err
	}
	rows.queueInserted(q, b.open)
	return nil
}

// queueUsage writes the counters, and notes what changed in periods that are closed already: statements look only there
// for changes behind closed_before.
func (b *batch) queueUsage(q *pgx.Batch, usage []*allocation.Usage) error {
	if len(usage) == 0 {
		return nil
	}
	rows := newCounters(len(usage))
	var late lateChanges
	var templates sums
	for _, u := range usage {
		if u.Overflowed() {
			return fmt.Errorf("usage of %s in period %s left its bounds: %+v", u.Budget, u.Period, *u)
		}
		was := b.rows[u.UsageKey]
		rows.add(u, was.place) // one that was not locked stands nowhere, and so is not counted
		if u.Until <= b.seen.ClosedBefore {
			late.add(u.Budget, u.Term)
		}
		if u.Template {
			templates.add(u, was.counts)
		}
	}
	b.tx.usage = rows
	late.queue(q)
	templates.queue(q)
	return nil
}
