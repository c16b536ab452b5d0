// Package allocation is Tranche's protocol: pure functions, with no clock, no I/O and no goroutine. Now is an argument.
//
// # The two sides
//
//	coordinator                                     owner (one per region)
//	Ledger: one budget over one term                Share: the region's part of it
//	  Follow, Move  set targets                       Apply    takes a grant; returns what lies above the target
//	  Count         enters what was returned        Usage: one period of it, locked by each decision
//	  GrantTo       tells an incarnation  ─────▶      Locked.Decide   charges, or refuses
//	                ◀─────  ShareStatement          Share.Statement   states what was returned and spent
//
// Each counter has one writer and only rises: granted the ledger's, returned and spent the owner's. So every message may
// be lost, repeated, late or reordered (invariant 8): taking the greatest is always right, and late news errs towards
// permits that are thought to be out.
//
// # An example
//
// A limit of 100 is split 60 to 40, and both regions hold it for every minute of a term. Region a spends 10 and is cut
// off. Its 50 are stranded: the ledger has granted 60 and counted 0 returned, and nothing but a's own return changes
// that. Region b goes on with its 40. When a is back, nothing needs to be repaired.
//
// # Files
//
//	budget*, labels, match     what operators declare, and which budgets a request hits
//	instead, routes            overrides of a default; endpoints and their capabilities
//	priority, protected, ladder*, evidence    what is refused first, and on what
//	window, calendar, periods, term, instant    when: periods are computed once, then written down
//	split                      fixed and home: the share of each region
//	demand*                    demand: what a term hands out at once, who is given more, who is asked to return
//	ledger, ledger_moves       the coordinator's side
//	share, usage               the owner's side
//	catalogue, decide, reservation, decision, admission    one request
//	reason                     the table of answers
//	sync                       the messages
//	history*                   what became of a store that went back: marks, incarnations, homes, frozen histories
//	seal                       the end of an incarnation, and what it proves
//	vouch                      who may act without memory
package allocation
