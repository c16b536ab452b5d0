// Package etcd is the coordinator's Store on etcd: the only package that knows etcd's client.
//
//	coordinator.Store        etcd
//	Range                    pages of a linearizable get, all at the first page's revision
//	Commit                   one Txn: mod revision and value of each compared key, then puts and deletes
//	Watch                    a watch stream of its own, with require-leader, fragments and progress asked for
//	Lead                     a leased key under /tranche-leaders/NAME/, outside of what the coordinator mirrors
//	Members                  Status of each member, in parallel
//
// # What an error of Commit means
//
// The coordinator hands out permits by these writes, so the one thing that must never be wrong is "this was not
// written". An answer counts as that only if etcd gives it before it proposes the write to its peers, or instead of
// applying it. Everything else is ErrUnknownOutcome:
//
//	certainly not          request too large, too many requests, no leader (asked for by require-leader),
//	                       permission denied, stale or invalid credentials, malformed requests
//	unknown                deadline, cancelled, unavailable, server stopped, leader changed, timed out,
//	                       raft proposal dropped, *no space*, and whatever a later etcd may invent
//
// No space is among the unknown ones because etcd 3.7 checks its quota while it applies: the write that crosses the
// line takes effect and is answered with this error.
//
// # Time
//
// Every call is bounded by a timeout of its own, also where the caller's context has none. A member that is cut off from
// its quorum keeps connections open and answers nothing; keep-alive pings end a connection to one that is stopped.
package etcd
