// Package bench measures what Tranche does on this machine, beside what its database can do at all.
//
//	Run ─▶ Postgres of its own ─┬─ case: a database, a node, its arms
//	                            │    round 1   node · bulk · per request · bare commit …
//	                            │    round 2   the same arms, the other way round
//	                            │    …
//	                            └─ next case
//
// The node and its database are the ones that run in production; only the coordinator is played, in this process, by one
// that gives the region all of each budget. The load comes from this process too, so the figures hold the load generator.
//
// What counts are ratios within one run: absolute figures are this machine's, with whatever else it does meanwhile. Each
// ratio is the median over the rounds of two arms that ran one after the other. Every case ends with its books: what the
// clients were told is compared with what the database holds, and a run whose books differ fails.
package bench
