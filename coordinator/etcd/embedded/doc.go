// Package embedded runs etcd members inside our own binary: for the demo, for
// tests, and as the default of a coordinator on a single machine.
//
// There are two ways, and the difference matters for tests of failures:
//
//	Start            one member in this process. Close ends it in order: it hands
//	                 its leadership over and says goodbye to its peers.
//	StartProcesses   n members, each a child process that calls RunMember, so
//	                 that Kill is a real SIGKILL: connections break, the leader is
//	                 missed for an election timeout, the disk is as it was.
//
// A member keeps its data in Dir. Started again on the same Dir it goes on where
// it was, whatever its client address is now.
//
// What the protocol needs of etcd is set here, not left to etcd's defaults: the
// store is compacted every minute (etcd's default is never), and may grow to
// 2 GiB before it refuses writes. fsync stays on.
//
// Clients never call Sync: a member on port 0 announces port 0. Endpoints tells.
//
// A call that a follower had sent on to a leader that was killed is lost, and
// etcd says so only after about seven seconds. Callers bound each call themselves
// and treat the end of that bound as an unknown outcome.
//
// Etcd counts what it does in the process-wide default Prometheus registry. Ours
// is another one, so nothing of etcd is among our metrics.
package embedded
