// Package fleet is one run of the simulator: the real coordinator and the real regional nodes, in a world drawn from a
// seed, under faults drawn from the same seed, watched by checkers that see what truly happened.
//
//	plan        what there is: regions, nodes, replicas, budgets, and how likely each fault is
//	fleet       the processes, and how each is started again
//	clients     callers with admission ids: retries, other nodes, settle, release, extend, batches, checks
//	operator    limits, windows, deletions, drains, rebalances, a region that joins
//	faults      the safety phase: everything that may go wrong does
//	heal        all faults end; what must then come to be, within a bound, or the run says what is missing
//	check_…     the invariants by number
//
// # A run
//
//	0 s            no faults until the deployment is made and its first token known
//	… For          safety phase: clients, operators, faults, and checkers at every commit and every revision
//	For + 10 s     faults are over, clients go on
//	then           clients stop; all must converge within healWithin; probes are admitted; the books are closed
//
// Same seed, same trace, to the byte.
package fleet
