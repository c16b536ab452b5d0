// Package protocol drives the real protocol of package allocation through simulated time, in one goroutine: one coordinator
// with its ledgers, an owner in each region, and the calls between them, which take half a round trip each way and may be
// cut off.
//
//	region                                   coordinator
//	  Locked.Decide on usage rows              opens terms ahead (OpenLedger), follows changes (Ledger.Follow, Move)
//	  every second: Share.Statement  ────────▶ Ledger.Count
//	  Share.Apply, Usage.Take        ◀──────── Ledger.GrantTo, what is elsewhere
//
// What is real: every transition of a ledger, a share and a usage row, every decision and its reason, and which permits
// are out, returned and stranded. What is not: there is no etcd, no Postgres, no HTTP and no concurrency within a region;
// a commit takes no time and never fails halfway; clocks agree; one coordinator is never mistaken about leading. Faults of
// those kinds are for the simulated world of the real services.
//
// After each change of a ledger its conservation is checked (invariant 1), and after each decision that the usage row
// stayed within its bounds; Err tells the first violation.
package protocol
