package ownertwin

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/network"
	"tranche/simulations/internal/world"
)

// Faults are what is wrong with a database, to be changed at any time.
type Faults struct {
	Disk        time.Duration // a commit takes up to so long to be durable; 0: at once
	LockTimeout time.Duration // of a wait for a lock, and of an open transaction that stands idle
	Unsafe      string        // a setting with which commits may not survive a crash, as the database reports it; or empty
	// SyncReplica: a commit is visible only once the replica has it, too; ReplicaAway: it does not answer, so commits wait.
	SyncReplica, ReplicaAway bool
	// CancelWaits: somebody cancels such waits: the commit is then visible here, with a warning, and not on the replica.
	CancelWaits bool

	Breaks Breaks
}

// Breaks are rules of regional/postgres that the twin can leave out: for mutants that checkers must catch.
type Breaks struct {
	NoMark           bool // marks are not compared
	MarkOutside      bool // a mark is compared before the transaction, not in it
	NoSwitchLock     bool // batches do not hold the switch lock: into a table just closed, into a period just closed
	LookUpFirst      bool // ids are looked up before the locks
	OpenTableOnly    bool // ids are looked up in the open table only
	StaleShare       bool // what was granted is read before the wait for the row's lock
	NoShareLock      bool // usage rows are made without their share row's lock
	CommitMismatched bool // ids are committed although their usage rows were not there
	NoUsageLock      bool // usage rows are read without their locks
	NoIDConstraint   bool // an id may be inserted that is there
	UnloggedIDs      bool // the tables of ids do not survive a crash of the server
	AnyGeneration    bool // a grant of an older generation is applied
	CloseByCaller    bool // periods are closed as far as the caller says, whatever the database's clock is
	KeepHeld         bool // a new incarnation goes on with what the one before it held
	AcceptWarnings   bool // a commit that came with a warning is taken for one that is safe
	ForgetEnded      bool // what writers left that ended in order is forgotten once that is acknowledged
	HandedGoesOn     bool // an owner that was handed over for good goes on as if nothing had been
}

// entry is one commit in a database's log.
type entry struct {
	writes  []change
	commit  *Commit
	line    int
	waiting bool // flushed, and not visible yet
	dropped bool // it never will be: the data was replaced
	replica bool // the synchronous replica has it
	wake    world.Wake
}

// keptEntries is how many of the latest commits a failover or a crash can lose. Older ones are folded into the base.
const keptEntries = 4096

// Database is one simulated Postgres server with the owner's database.
type Database struct {
	Faults

	name   string
	world  *world.World
	net    *network.Net
	server *world.Process
	random *rand.Rand
	truth  *Truth

	home      allocation.Home
	starts    int // of the server: its lineage
	remade    int // how often its tables were made anew
	tables    *tables
	locks     map[lockKey]*lock
	base      *tables         // what the log begins with
	log       []*entry        // visible, in that order
	flushed   []*entry        // durable, and waiting to be visible
	kept      map[*entry]bool // log and flushed, and what the base has of them
	line      int
	destroyed bool

	openTransactions []*transaction
	clients          map[string]bool
}

// New starts an empty database of a region. The name is that of its process.
func New(n *network.Net, w *world.World, truth *Truth, name, region string) *Database {
	db := &Database{
		Faults: Faults{Disk: 2 * time.Millisecond, LockTimeout: 800 * time.Millisecond},
		name:   name, world: w, net: n, server: w.Process(name), random: w.Random("postgres " + name), truth: truth,
		locks: map[lockKey]*lock{}, kept: map[*entry]bool{}, clients: map[string]bool{},
	}
	db.home = allocation.Home{System: fmt.Sprint(7_000_000_000 + db.random.Int64N(1_000_000_000)), Database: 16384, Timeline: 1}
	db.tables = newTables(region, db.Clock().Micros())
	db.base = db.tables.clone()
	truth.databases = append(truth.databases, db)
	truth.lines++
	db.line = truth.lines
	db.serve()
	return db
}

// Server is the database's process: it can be paused, and its clock is the database's.
func (db *Database) Server() *world.Process { return db.server }

// Clock is the database's clock.
func (db *Database) Clock() *world.Clock { return db.server.Clock }

// lineage names one unbroken life of one incarnation in this database.
func (db *Database) lineage() string {
	return fmt.Sprintf("%s.%d.%d.%s", db.name, db.starts, db.remade, db.tables.owner.incarnation)
}

// serve starts the server.
func (db *Database) serve() {
	db.starts++
	db.server.Serve()
}

// Home is what the database says of itself.
func (db *Database) Home() allocation.Home { return db.home }

// flush makes a transaction durable. It is not visible yet.
func (db *Database) flush(x *transaction) *entry {
	c := x.record
	c.Database, c.Line, c.Process, c.What, c.At = db.name, db.line, x.client.Name(), x.what, db.world.Elapsed()
	c.Incarnation = db.tables.owner.incarnation
	c.IntoClosed = len(c.Inserted) > 0 && db.tables.idTables[x.into].state != "open"
	e := &entry{writes: x.writes, commit: &c, line: db.line, waiting: true, replica: db.SyncReplica && !db.ReplicaAway}
	db.flushed = append(db.flushed, e)
	db.kept[e] = true
	c.entry = e
	db.truth.add(&c)
	return e
}

// replicated waits until the synchronous replica has a commit, if there is one; false if the wait was cancelled. The
// commit is then visible all the same.
func (db *Database) replicated(e *entry) bool {
	for db.SyncReplica && !e.replica || e.dropped {
		if e.dropped {
			return false
		}
		if db.CancelWaits {
			db.world.Trace("pg.local", "visible here only: "+e.commit.What)
			db.show(e)
			return false
		}
		_ = db.world.Await(context.Background(), "the replica", func(wake world.Wake) { e.wake = wake })
	}
	return true
}

// show makes a durable commit visible.
func (db *Database) show(e *entry) {
	if !e.waiting {
		return
	}
	e.waiting = false
	db.flushed = slices.DeleteFunc(db.flushed, func(o *entry) bool { return o == e })
	db.tables.apply(e)
	db.log = append(db.log, e)
	if db.truth.OnShow != nil {
		db.truth.OnShow(e.commit)
	}
	db.world.Trace("pg.commit", db.name+" "+e.commit.What+" of "+e.commit.Process)
	for len(db.log) > 2*keptEntries {
		for _, old := range db.log[:keptEntries] {
			db.base.apply(old)
			old.writes = nil
		}
		db.log = slices.Clone(db.log[keptEntries:])
	}
}

func (t *tables) apply(e *entry) {
	t.commits++
	for _, c := range e.writes {
		c(t)
	}
}

// SetReplica says whether there is a synchronous replica, and whether it answers. Commits that waited for it go on.
func (db *Database) SetReplica(synchronous, away bool) {
	db.SyncReplica, db.ReplicaAway = synchronous, away
	db.world.Trace("pg.replica", fmt.Sprintf("%s synchronous %v away %v", db.name, synchronous, away))
	if !away {
		for _, e := range slices.Concat(db.log, db.flushed) {
			e.replica = synchronous
		}
	}
	db.wakeWaiting()
}

// CancelReplicaWaits cancels the waits for the replica, those now and those to come, or stops doing so.
func (db *Database) CancelReplicaWaits(cancel bool) {
	db.CancelWaits = cancel
	db.wakeWaiting()
}

func (db *Database) wakeWaiting() {
	for _, e := range slices.Clone(db.flushed) {
		if e.wake != nil {
			e.wake()
		}
	}
}

func (db *Database) forget(x *transaction) {
	if i := slices.Index(db.openTransactions, x); i >= 0 {
		db.openTransactions = slices.Delete(db.openTransactions, i, i+1)
	}
}

// meet arranges that the connections of a process break when it ends: at once, if its machine lives to say so.
func (db *Database) meet(p *world.Process) {
	if db.clients[p.Name()] {
		return
	}
	db.clients[p.Name()] = true
	p.OnEnd(func() {
		if db.random.IntN(2) == 0 {
			return // the machine died with it: its transactions stand idle
		}
		db.net.Post(p, db.server, "closed", func() {
			for _, x := range slices.Clone(db.openTransactions) {
				if x.client == p && x.idling {
					x.end(errAbandoned)
				}
			}
		})
	})
}
