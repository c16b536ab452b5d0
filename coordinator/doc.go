// Package coordinator is the global side: the ledgers in etcd, the sync of regions, and the admin API.
//
// What is authoritative is etcd alone. Every replica keeps a copy of it (Mirror), decides on that copy, and writes what it
// decided in one transaction that compares every document that the decision rests on (Committer). So several replicas
// grant at once without talking to each other, and a replica that is behind is refused, never believed:
//
//	region ──POST /v1/sync──▶ ┌─────────────── replica ───────────────┐
//	admin  ──/v1/…──────────▶ │ decide on the picture (state, a lock) │
//	                          │   │ change: reads, puts, deletes      │
//	                          │   ▼                                   │
//	                          │ Committer ── one transaction ─────────┼──▶ etcd
//	                          │ Mirror    ◀── every change ───────────┼─── etcd
//	                          │   │ apply                             │
//	                          │   ▼                                   │
//	                          │ picture, what is behind, what each    │
//	                          │ region has not stated yet, wake calls │
//	                          └───────────────────────────────────────┘
//
// # What moves permits, and what is only known
//
// A ledger (allocation.Ledger) says who was granted what. Everything that changes one is here: opening a term, following
// a changed budget or region (terms.go, budgets.go), counting what was returned (statements.go), a manual move
// (rebalance.go). What is only known of a region — spent, reserved, contact, marks — is held in memory and written
// every 2 s; losing it overstates what is stranded, and never moves a permit.
//
// # A budget of 100 from its declaration to its last permit
//
//  1. POST /v1/budgets: the document at version 1, the configuration's number, and the ledgers of all terms up to the
//     horizon, in one transaction. us-east gets 60 and eu-west 40 of every period.
//  2. Both ledgers' generations are new to both regions: they stand in the regions' queues, and held sync calls are
//     answered. Each region states what it has stored; the queue is empty again.
//  3. PUT with limit 50: targets become 30 and 20. The regions are told, return 30 and 20, state so, and the ledger counts
//     it: out 50. Until then the budget is overcommitted by what is out too much; nothing is ever taken from an owner.
//  4. eu-west is cut off: GET /v1/stranded shows what it holds, for the running period and ahead. Nobody else gets it.
//  5. The term is over, and both regions have stated a later closed_before: the ledger goes, a closing remains for a day.
//
// # Failure
//
// A replica that crashes loses held calls and at most 2 s of what is only known. An answer that is lost is given again:
// shares stay in the queue until they are stated. A write whose answer is lost is settled by the Committer, or reported as
// ErrUnknownOutcome. Leadership (background.go) only saves double work; two leaders at once do no harm, since all that
// they do is compared. A statement, a mark or a generation that contradicts what is known is believed only after the
// picture was refreshed from etcd, and then answered with history_lost.
//
// # Time, waiting and chance
//
// A replica tells the time, waits and starts its parts through Config.Runtime only, draws random bytes from Config.Random
// only, and lets no map decide an order. So the simulator can run it, and the same seed gives the same run; a test holds
// the source to it.
package coordinator
