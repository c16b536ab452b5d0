// Package walk goes through every interleaving of small worlds over the real transition functions of allocation, and checks
// in every state what must be true: the cap over all that was ever spent or is reserved, also in lost histories (2),
// conservation in the ledgers and joined with the owners (1), that generations only rise (8), that sealed is sealed (9).
//
// A world has one etcd, two owners, at most one copy of a's database and one second node, and the messages between them:
//
//	       snapshot ◀── etcd: standing, residences, marks, ledgers ──▶ restored
//	                          ▲ call            │ answer
//	                          │                 ▼            each may be lost, and one held back, also past a restore
//	backup ◀── a's database, nodes     b's database, node
//	   └──────▶ restored, copied, sealed
//
// What may happen, and how often, is a Config. The walk is breadth first, so that the first violation is told by a
// shortest trace, in words. What is walked is real: Ledger.Count, Follow, Move, GrantTo, Settle, Reconcile and CountSeal;
// Share.Apply and Statement; Usage.Take; Locked.Decide; Standing, Residence, MarkMemory, and who vouches for whom. What is
// the walk's own is the wiring that services have to do, in coordinator.go and owner.go; each step there is one
// transaction of a store.
//
// Worlds, Larger, Models, Mutants and Residuals say what is walked and what must come of it. Rules switch the wiring of one
// rule off; each must be seen.
//
// Reductions: a is the only region that goes back, by symmetry. A lost message is one that the next call replaces. Marks
// are counted only where they can be lost. In a Whole world a call and its answer are one step, and in some worlds permits
// are given out in one order only; Larger has the same worlds without these two.
package walk
