// Package regional is the regional side of Tranche: nodes that decide requests over one Postgres database, the region's
// admission owner, with no call to any other region.
//
// # A request's way
//
//	caller ─▶ Node.Decide ─▶ queue ─▶ lane: gather ─▶ Begin ─▶ allocation.Locked.Decide ─▶ Commit ─▶ answer
//	            │ deadline                              │ locks usage rows,      pure         │ ids, counters and
//	            ▼                                       │ reads ids, clock                    │ mark, or nothing
//	        503, and it says                            └──────────── one transaction ────────┘
//	        whether anything may have begun
//
// A lane is one transaction at a time; it takes all requests that wait, so that a hot budget costs one commit for a
// thousand admissions. What is authoritative is the locked row: no counter is kept in memory. A node remembers only what
// costs nothing to be wrong about: the catalogue of budgets (the transaction reads its changes), which rows exist, and how
// far the database's clock is ahead.
//
// # What can go wrong with a commit
//
//	raced       an id or a row was not as decided: nothing was committed, the batch is decided again
//	failed      nothing was committed: the batch is halved until the one bad request fails alone
//	unknown     the answer was lost: the lane asks its own mark's row what became of it, before anything else;
//	            callers whose deadline passes meanwhile hear 503 outcome_unknown, and the same id gets the truth
//	lost        the mark that this process left is not there: the database lost history; the region stops, durably
//
// # Contact
//
// One node of a region at a time, by habit, states what was spent and applies what the coordinator answers (see keeper).
// Statements are numbered by the owner and made from one snapshot; grants are cumulative and stamped. So calls and answers
// may be lost, repeated and reordered. A region without contact goes on with what its opened terms cover, and no further.
// A node that nobody vouches for says so in its calls: its database may be a copy, and what it gave back in there may be spent
// in the original. Nothing that it states counts, and it is told of no share, until it is vouched for.
package regional
