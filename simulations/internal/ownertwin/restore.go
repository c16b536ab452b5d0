package ownertwin

import (
	"fmt"
	"maps"
	"slices"

	"tranche/allocation"
	"tranche/simulations/internal/world"
)

// Backup is a copy of what a database held at one moment.
type Backup struct {
	tables *tables
	kept   map[*entry]bool
	home   allocation.Home
}

// Backup copies what is committed now.
func (db *Database) Backup() Backup {
	b := Backup{tables: db.tables.clone(), kept: maps.Clone(db.kept), home: db.home}
	for _, e := range db.flushed {
		delete(b.kept, e)
	}
	return b
}

func (db *Database) holds(e *entry) bool { return db.kept[e] }

// Holds says whether a commit is in the history of this database, whoever made it.
func (db *Database) Holds(c *Commit) bool { return db.kept[c.entry] }

// down stops the server in the middle of everything: open transactions are gone, and so are their connections.
func (db *Database) down(how string) {
	db.world.Trace("pg."+how, db.name)
	for _, x := range db.openTransactions {
		x.ended, x.why = true, errCrashed
		x.held, x.order = map[lockKey]bool{}, nil
	}
	db.openTransactions, db.locks = nil, map[lockKey]*lock{}
	db.server.Crash()
}

// recovered makes visible what was durable: recovery does not wait for a replica.
func (db *Database) recovered() {
	for len(db.flushed) > 0 {
		db.show(db.flushed[0])
	}
}

// Crash stops the server at once; nothing is lost that was durable. Start starts it again.
func (db *Database) Crash() {
	if db.server.Up() {
		db.down("crash")
	}
}

// Start starts a server that is down.
func (db *Database) Start() {
	if db.server.Up() || db.destroyed {
		return
	}
	db.recovered()
	if db.Breaks.UnloggedIDs {
		for i := range db.tables.ids {
			db.tables.ids[i] = map[allocation.IDKey]*allocation.Admission{}
		}
		clear(db.tables.open)
	}
	db.serve()
}

// LoseTail makes the server forget its last commits, at most so many, also acknowledged ones: a crash with settings that
// are not safe, or a disk that lies. The database says nothing of it.
func (db *Database) LoseTail(commits int) {
	if db.server.Up() {
		db.down("crash")
	}
	db.recovered()
	db.cut(commits)
	db.serve()
}

// TailOfOne is how many of the last commits one process made, if somebody was told of an admission among them; else 0.
func (db *Database) TailOfOne() (commits int) {
	if !db.server.Up() || len(db.flushed) > 0 || len(db.log) == 0 {
		return 0
	}
	told, last := false, db.log[len(db.log)-1].commit.Process
	for _, e := range slices.Backward(db.log) {
		if e.commit.Process != last {
			break
		}
		commits++
		told = told || e.commit.Acknowledged && slices.ContainsFunc(e.commit.Inserted, func(a *allocation.Admission) bool { return len(a.Lines) > 0 })
	}
	if !told {
		return 0
	}
	return commits
}

// Failover makes the replica the primary. It lacks the last commits, so many; 0 loses none. The timeline rises.
func (db *Database) Failover(lacks int) {
	db.down("failover")
	db.recovered()
	db.cut(lacks)
	db.home.Timeline++
	db.serve()
}

// FailoverSynchronous makes the synchronous replica the primary: it lacks exactly the commits that it never got.
func (db *Database) FailoverSynchronous() {
	db.down("failover")
	waiting := db.flushed
	db.flushed = nil
	lacks := 0
	for i := len(db.log) - 1; i >= 0 && !db.log[i].replica; i-- {
		lacks++
	}
	for _, e := range waiting {
		delete(db.kept, e)
		db.truth.lose(e)
	}
	db.cut(lacks)
	db.home.Timeline++
	db.serve()
}

// cut takes the last commits back.
func (db *Database) cut(commits int) {
	keep := len(db.log) - min(commits, len(db.log))
	if keep == len(db.log) {
		return
	}
	gone := db.log[keep:]
	db.log = db.log[:keep:keep]
	db.tables = db.base.clone()
	for _, e := range db.log {
		db.tables.apply(e)
	}
	db.branch(gone)
}

// branch begins a new line of history, without the commits that are gone.
func (db *Database) branch(gone []*entry) {
	db.truth.lines++
	db.line = db.truth.lines
	for _, e := range gone {
		delete(db.kept, e)
	}
	for _, e := range gone {
		db.truth.lose(e)
	}
}

// RestoreLogically replaces all tables by those of a backup, as pg_restore --clean does, under running nodes: same
// system, same timeline, older data.
func (db *Database) RestoreLogically(b Backup) {
	for _, x := range slices.Clone(db.openTransactions) {
		x.end(errCrashed)
	}
	commits := db.tables.commits
	db.become(b)
	db.tables.commits = max(commits, b.tables.commits) // the server's transaction numbers go on
	db.base.commits = db.tables.commits
	db.remade++
	db.world.Trace("pg.restore", db.name+" logically")
}

// RestorePhysically starts the server from a copy of its files, recovered to the end of the backup: another timeline.
func (db *Database) RestorePhysically(b Backup) {
	if db.server.Up() {
		db.down("restore")
	}
	db.become(b)
	db.home = allocation.Home{System: b.home.System, Database: b.home.Database, Timeline: db.home.Timeline + 1}
	db.serve()
}

// RestoreCopy starts the server from a copy of its files as they were, crash-recovered: the same timeline.
func (db *Database) RestoreCopy(b Backup) {
	if db.server.Up() {
		db.down("restore")
	}
	db.become(b)
	db.home = b.home
	db.serve()
}

// become takes a backup's data. What is lost by that is told to the truth, and what comes back.
func (db *Database) become(b Backup) {
	var gone, back []*entry
	for e := range db.kept {
		if !b.kept[e] {
			gone = append(gone, e)
		}
	}
	for e := range b.kept {
		if !db.kept[e] {
			back = append(back, e)
		}
	}
	sortEntries(gone)
	sortEntries(back)
	for _, e := range db.flushed {
		if e.dropped = true; e.wake != nil {
			e.wake()
		}
	}
	db.tables = b.tables.clone()
	db.base, db.log, db.flushed = db.tables.clone(), nil, nil
	db.kept = maps.Clone(b.kept)
	db.branch(gone)
	for _, e := range back {
		db.truth.regain(e)
	}
}

func sortEntries(list []*entry) {
	slices.SortFunc(list, func(a, b *entry) int { return int(a.commit.Number - b.commit.Number) })
}

// Clone starts a copy of the database's files on another server, while the first one goes on: the same identity.
func (db *Database) Clone(w *world.World, name string) *Database {
	c := New(db.net, w, db.truth, name, db.tables.owner.region)
	own := c.Faults // of its disk and its replica: what is wrong with another's does not end here when it ends there
	c.Faults, c.home = db.Faults, db.home
	c.Disk, c.ReplicaAway, c.CancelWaits = own.Disk, own.ReplicaAway, own.CancelWaits
	b := db.Backup()
	c.tables, c.base, c.kept = b.tables, b.tables.clone(), b.kept
	w.Trace("pg.clone", fmt.Sprintf("%s from %s", name, db.name))
	return c
}

// Destroy ends the database for good. What only it held is lost.
func (db *Database) Destroy() {
	if db.server.Up() {
		db.down("destroy")
	}
	db.destroyed = true
	var all []*entry
	for e := range db.kept {
		all = append(all, e)
	}
	sortEntries(all)
	for _, e := range all {
		db.truth.lose(e)
	}
}
