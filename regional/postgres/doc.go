// Package postgres keeps a region's owner in one Postgres database: shares, usage, admission ids, and what statements say
// of them. It decides nothing: what may be spent is decided by package allocation, between the two round trips of a batch.
//
//	Begin   begin · timeouts, switch lock · share rows of missing usage · make it · lock usage rows
//	        · ids · owner's row, settings, clock                             ── one round trip; one more if
//	                                                                           budgets or documents changed
//	            allocation.Locked.Decide, request by request
//	Commit  ids · usage and the writer's mark · commit                      ── one round trip; many ids take one
//	                                                                           of their own, before the others (COPY)
//
// # Why each statement is one of its own
//
// A statement sees what was committed when *it* began. One that waits for a lock sees the locked row as it is after the
// wait, and everything else as it was before. So: locks first, and whatever a decision reads besides the locked rows, ids
// above all, is read by a statement that begins after them.
//
// # Lock order
//
// For everybody, and within each kind by key, bytewise:
//
//	switch lock (advisory; shared for batches, exclusive to close periods, switch id tables, stop)
//	share rows ─▶ usage rows ─▶ admission ids ─▶ the owner's row ─▶ shard rows ─▶ the writer's row
//
// Usage rows are locked one by one in a nested loop over the sorted keys, so that no plan can change the order. A usage
// row is made only under its share row's lock, so whoever locks the share row (a grant, a seal) sees all that exist.
//
// # Plans
//
// The plans of a batch's statements are kept, and executed long after what they were made by is no longer so: while a table was
// empty, had no statistics, or those of last week. So no statement may have a plan that is good for a small table only. Each
// table that grows is looked up by its whole key, in a lateral subquery that is kept apart, so that it can only be the inner side
// of a nested loop; what is changed is changed where it was found; and no other index fits (usage_by_term is partial, and only
// who says "shard >= 0" can use it). TestNoStatisticsMakeABatchSlow looks at each plan.
//
// # What a commit promises
//
// The write statements raise unless they changed exactly what was decided: a counter that matched no row aborts the
// transaction, and its ids with it. The answer must be the tag COMMIT and no warning: Postgres answers ROLLBACK to the
// commit of an aborted transaction, and commits with a warning when the wait for a synchronous replica was cancelled.
// The latter, and silence, are an unknown outcome, which Writer.Resolve settles (see writer.go).
//
// This package never sends a cancel request, on any connection: pgx would send one whenever a context ends, and a cancelled
// commit is one that no replica has. Waits are bounded by timeouts that each transaction sets for itself.
//
// # Admission ids
//
// Four plain tables; one is open, the others are readable or empty. An id is inserted into the open table only, and looked
// up in all. Tidy moves on to the next, under the exclusive switch lock, so no batch can insert one id on both sides:
//
//	0 open     1 empty    2 empty    3 empty
//	0 closed   1 open     2 empty    3 empty      after half the retention
//	0 closed   1 closed   2 open     3 empty
//	0 empty    1 closed   2 closed   3 open       0 is truncated: its retention is over by two clocks
//
// # Statements
//
// Each row carries the transaction that changed it last. A statement lists what changed in transactions that the snapshot
// of the acknowledged statement could not see; see statements.go for why that misses nothing.
//
// # Poolers
//
// Nothing but the migrations rests on the state of a session: all names are qualified, all settings local, all locks of the
// transaction. Behind a transaction pooler give Config.DirectURL for the migrations and, if it does not track prepared
// statements, add default_query_exec_mode=exec to the URL.
package postgres
