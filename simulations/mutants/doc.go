// Package mutants breaks the protocol, one rule at a time, and hunts each broken one with the checkers that judge the
// protocol itself. A checker that has never been seen to fail proves nothing; a mutant that is not caught is a hole in the
// checkers.
//
//	mutant ──▶ hunter ──▶ violation: invariant, seed, runs (or states), trace
//	             │
//	             └ the same hunt without a mutant finds nothing: the control
//
// # Where a mutant sits
//
// Production code has no switch for it and pays nothing. A mutant is wired in from outside, in one of three ways:
//
//	walk    simulations/walk leaves one call of a pure function of allocation out, or hands it what code would hand it that
//	        forgot the rule. Every interleaving is walked, so the trace is a shortest one.
//	seam    something stands between the services and the simulated stores, and changes a statement, a transaction or an
//	        answer on its way, so that what comes out is what a service without the rule would have done.
//	twin    the simulated Postgres leaves out a lock, a comparison or a constraint that regional/postgres relies on.
//
// The last two are hunted in the fleet: the real services, from one seed after the other, in an arena, which is a world
// that is made so that the mutant has its chance often. What only shows when a store goes back between two calls of one
// writer is hunted in a drill: one store, its writers, and restores.
//
// # What counts as caught
//
// A violation of one of the invariants that the mutant is said to break. Another one does not count: it would say that
// something else is wrong.
package mutants
