// Package etcdtwin is a simulated etcd: coordinator.Store for processes of a simulated world, with the faults that real
// ones have.
//
//	Store (one per process) ──network──▶ Cluster: keys by revision · log of changes · leases · candidates
//
// What the twin keeps of the real one: transactions compare revision and value and take effect whole, at one revision;
// every answer is linearizable; a watch delivers each change once, in order, all of a revision together, and may lag by
// any time; what was compacted is gone; a lease expires by the cluster's time, whatever its holder believes.
//
// An answer that is lost is ErrUnknownOutcome; the write may have taken effect, may never, or may yet (a proposal that
// waits for a quorum). Only what the cluster refused before it proposed it is another error.
package etcdtwin
