package ownertwin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tranche/allocation"
	"tranche/regional"
	"tranche/simulations/internal/world"
)

// What the database says of a transaction that it has ended by itself.
var (
	errIdleTooLong = errors.New("terminating connection due to idle-in-transaction timeout")
	errAbandoned   = errors.New("the client closed the connection")
	errCrashed     = errors.New("the server has crashed")
)

// transaction is one transaction in a database, from its begin to its end.
type transaction struct {
	db      *Database
	client  *world.Process
	what    string
	held    map[lockKey]bool
	order   []lockKey
	made    map[allocation.UsageKey]allocation.Usage // rows that it made itself
	places  map[allocation.IDKey]int                 // tables in which ids were found
	was     map[allocation.IDKey]allocation.State
	writes  []change
	into    int // the table that its ids are inserted into
	record  Commit
	ends    bool    // with it the writer ends
	durable *Commit // once it is
	idles   int     // rises whenever it begins or ends to stand idle
	idling  bool    // it waits for its client
	ended   bool
	why     error
}

func (db *Database) begin(client *world.Process, what string) *transaction {
	x := &transaction{
		db: db, client: client, what: what, held: map[lockKey]bool{}, made: map[allocation.UsageKey]allocation.Usage{},
		places: map[allocation.IDKey]int{}, was: map[allocation.IDKey]allocation.State{},
	}
	x.record.Changes = db.tables.owner.changes
	db.openTransactions = append(db.openTransactions, x)
	return x
}

// statement is the beginning of the next statement: others may have run since the last one.
func (x *transaction) statement() error {
	x.db.world.Point()
	if x.ended {
		return x.why
	}
	return nil
}

// switchLock takes the switch lock, unless the database is told to leave it out.
func (x *transaction) switchLock(mode switchMode) error {
	if mode == switchFree || mode == switchShared && x.db.Breaks.NoSwitchLock {
		return nil
	}
	return x.take(lockKey{kind: lockSwitch}, mode == switchShared)
}

type switchMode int

const (
	switchFree switchMode = iota
	switchShared
	switchExclusive
)

// end ends a transaction in whatever way. It may be called again.
func (x *transaction) end(why error) {
	if x.ended {
		return
	}
	x.ended, x.why = true, why
	x.releaseAll()
	x.db.forget(x)
}

// idle arranges for the transaction to be ended if its client is silent for too long.
func (x *transaction) idle() {
	x.idles, x.idling = x.idles+1, true
	idles := x.idles
	x.db.world.After(x.db.LockTimeout, func() {
		if !x.ended && x.idles == idles {
			x.db.world.Trace("pg.idle", x.db.name+" ends "+x.what+" of "+x.client.Name())
			x.end(errIdleTooLong)
		}
	})
}

// busy says that the client has sent something; an error if the transaction is over.
func (x *transaction) busy() error {
	x.idles, x.idling = x.idles+1, false
	if x.ended {
		return x.why
	}
	return nil
}

func (x *transaction) change(c change) { x.writes = append(x.writes, c) }

// putUsage writes a usage row, whose lock the transaction holds.
func (x *transaction) putUsage(before, after allocation.Usage) {
	x.change(putUsage(after))
	x.record.Usage = append(x.record.Usage, UsageChange{Before: before, After: after})
}

// usage is a row as this transaction sees it.
func (x *transaction) usage(k allocation.UsageKey) (allocation.Usage, bool) {
	if u, ok := x.made[k]; ok {
		return u, true
	}
	u, ok := x.db.tables.usage[k]
	return u, ok
}

// mark compares and replaces the writer's mark.
func (x *transaction) mark(from, to allocation.Mark, vouched string) error {
	if err := x.statement(); err != nil {
		return err
	}
	if err := x.notHandedOver(); err != nil {
		return err
	}
	if err := x.take(lockKey{kind: lockWriter, a: from.Writer}, false); err != nil {
		return err
	}
	row, ok := x.db.tables.writers[from.Writer]
	if (!ok || row.mark != from || row.former) && !x.db.Breaks.NoMark && !x.db.Breaks.MarkOutside {
		return fmt.Errorf("%w: writer %s expects count %d, found %d", regional.ErrHistoryLost, from.Writer, from.Count, row.mark.Count)
	}
	row.vouched = vouched != "" && vouched == x.db.lineage()
	row.mark, row.seen, row.ended = to, x.db.Clock().Micros(), row.ended || x.ends
	x.change(putWriter(row))
	return nil
}

// verdict is the answer to a commit.
type verdict struct {
	commit *Commit // nil: it was not committed
	remark string  // a warning: it is visible here, and nobody knows for how long
	err    error
}

// commit ends the transaction by making it durable, and then visible.
func (x *transaction) commit() verdict {
	db := x.db
	if db.Disk > 0 {
		db.server.Sleep(context.Background(), time.Duration(1+db.random.Int64N(int64(db.Disk))))
	} else {
		db.world.Point()
	}
	if x.ended {
		return verdict{err: x.why}
	}
	c := db.flush(x)
	x.durable = c.commit
	if !db.replicated(c) {
		x.end(nil)
		return verdict{commit: c.commit, remark: "canceling wait for synchronous replication"}
	}
	db.show(c)
	x.end(nil)
	return verdict{commit: c.commit}
}
