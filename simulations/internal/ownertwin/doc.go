// Package ownertwin is a simulated Postgres with a region's owner in it: regional.Owner for processes of a simulated
// world, with the faults that real ones have.
//
//	Owner (one per process) ──network──▶ Endpoint ──▶ Database: tables · locks · log of commits
//	  first round trip:  locks, reads, and what is to be written, in an open transaction
//	  second round trip: the rest of the writes, the writer's mark, commit
//
// # What the twin keeps of the real one
//
// Row locks are waited for in order, at most as long as the lock timeout. A statement sees what is committed when it
// begins; a row that it waited for it sees as it is after the wait. Between two statements of a transaction others may
// commit. Nothing of a transaction is there before its commit, and nothing stays of one that ended in another way: by an
// error, a lost connection, a crash of either side, or because it stood idle for too long.
//
// What is decided and written follows regional/postgres statement by statement, and uses allocation's own functions for
// everything that is arithmetic.
//
// # What a commit leaves
//
//	flushed ──▶ (with a synchronous replica: wait for it) ──▶ visible ──▶ answered ──▶ acknowledged: the process has the answer
//	   │                      │
//	   │                      └ a crash of the primary makes it visible; a failover to the replica loses it
//	   └ before: a crash loses it; after: a crash keeps it, answered or not
//
// Databases are lines: a restore, a failover that lacks commits, and a clone begin a new one. Truth remembers every commit
// of every line, so that a checker can judge what was ever spent, whatever any database remembers of it.
package ownertwin
