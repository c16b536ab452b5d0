// Package envoy is Envoy's rate limit service (envoy.service.ratelimit.v3) over a node.
//
//	Envoy ──ShouldRateLimit──▶ Server ──▶ Mapping.read ──▶ regional.Gate.Decide ──▶ answer
//	         domain,                     labels, costs,      one decision,           overall code,
//	         descriptors, hits           op, admission id    all or nothing          a status for each descriptor
//
// All descriptors of a call make one request: their labels are put together, their hits are its costs, and the budgets that
// match are charged together or not at all. So a descriptor that is over its limit charges none of the others.
//
// # What is never OK
//
// A call is answered OK only for a decision that is known to be durable. What cannot be decided in time is UNAVAILABLE, and
// so is an answer that was lost; a call that is wrong (an unknown domain, an entry that the mapping does not name, two ids)
// is OVER_LIMIT, so that it is refused also by an Envoy that lets errors through. Envoy does not do what it is told here
// unless its filter says failure_mode_deny: true; `tranche gateway-config envoy` prints it so.
//
// # Hits
//
//	hits of a descriptor: its own hits_addend, else the request's, else 1
//	0                     a check: would one unit fit? Nothing is charged in this unit
//	is_negative_hits      gives back to the reservation of the same id, never more than it holds
package envoy
