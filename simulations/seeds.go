package simulations

import (
	"slices"
	"time"
)

// Seed is a run that once showed something, and is made again in the tests. The seed draws the world, so a change of what
// is drawn makes another run of it; the reason is told by a test of its own, next to the code that was wrong.
type Seed struct {
	Seed   uint64
	Kind   string        // empty: KindFaults
	For    time.Duration // 0: DefaultFor
	Reason string
}

// Seeds are all of them.
func Seeds() []Seed { return slices.Concat(firstSeeds(), lostSeeds()) }

// firstSeeds are all but lostSeeds.
func firstSeeds() []Seed {
	return []Seed{
		{Seed: 100055, Reason: "a contact heard by a replica whose clock was far ahead kept later ones from being written: no term was closed"},
		{Seed: 100044, Reason: "as 100055: no term was opened either"},
		{Seed: 311, For: 40 * time.Second, Reason: "as 100055, where it was found"},
		{Seed: 100107, Reason: "the first call of a region's second node came late: it stopped the region for good"},
		{Seed: 42, Reason: "a replica ended before it wrote down what it had acknowledged: nobody stated it again"},
		{Seed: 100461, Reason: "as 42, of what was spent"},
		{Seed: 1892, Reason: "a replica's clock was ahead for a moment: it forgot for good which ledgers had to follow their budgets"},
		{Seed: 500260, Reason: "the answer to an extension came after the reservation had lapsed: the checker took it for a lie"},
		{Seed: 50, Reason: "a limit was raised, and what was left elsewhere had been counted under the lower one: ceiling_reached"},
		{Seed: 74, Reason: "as 50"},
		{Seed: 4, Reason: "permits that were given back a moment ago were counted nowhere: ceiling_reached, and no limit had changed"},
		{Seed: 31, For: 40 * time.Second, Reason: "a late call is overtaken: the owner holds all marks and must not stop (the twin did)"},
		{Seed: 70, For: 40 * time.Second, Reason: "as 31, with a synchronous replica"},
		{Seed: 91, For: 40 * time.Second, Reason: "a node starts while its connection is silent: it serves once that is noticed"},
		{Seed: 2, Kind: "etcd-restored", Reason: "a term that had been closed in what etcd lost was closed again, with nothing spent"},
		{Seed: 3, Kind: "etcd-restored", Reason: "a limit that was raised was lost, and what was granted under it is overcommitted, and no more than that; later terms were taken for first ones"},
		{Seed: 18, Kind: "etcd-restored", Reason: "a version of a budget that was lost was given out again, with another limit"},
		{Seed: 15, Kind: "etcd-restored-bumped", Reason: "an acknowledgement by a document that went back: another replica took it for not stated"},
		{Seed: 5016, Kind: "etcd-restored-twice", Reason: "as 18: the second restore gave out the versions of the first one again"},
		{Seed: 7009, Kind: "etcd-restored-twice", Reason: "a reservation of a term that a lost history had closed was settled: the checker had forgotten what was granted of it"},
		{Seed: 31, Kind: "etcd-restored-twice", Reason: "the targets of a drain that was lost stayed: the ledger followed the same number of members, and other ones"},
		{Seed: 8000, Kind: "etcd-restored-bumped", Reason: "permits that a region gave back when it was asked to, and was promised again before they were counted, were counted nowhere: ceiling_reached"},
		{Seed: 600021, Reason: "a replica whose picture was late granted to an incarnation that had been replaced: stranded for nothing"},
		{Seed: 600027, Reason: "as 600021: a return was counted, and what it left was granted by targets from before the replacement"},
		{Seed: 600042, Reason: "a return was stated before its database went back, and counted after: the checker took it for invented"},
		{Seed: 610020, Reason: "the loss of a writer was recorded, or another one registered, and the answer lost: the node ended with a nil pointer"},
		{Seed: 620018, Reason: "a closing tells what was stated before the database went back: the checker compared it with what was restored"},
		{Seed: 620033, Reason: "a region started over, and etcd went back to before that: it never heard of the new history, and all stayed frozen"},
		{Seed: 620065, Reason: "two backups of one database: the second brought back an id that the first had lost, and the checker had forgotten it"},
		{Seed: 630043, Reason: "as 620033, and the one answer that named no incarnation was lost: later ones named one that was former to the owner"},
		{Seed: 105, Reason: "a database's clock jumped by days, and a block had ended by itself: the checker took it for in force"},
		{Seed: 356, Reason: "a return was counted by a clock by which the term was over: what came back was granted to an incarnation that had been replaced"},
		{Seed: 960, Reason: "a start-over was lost, and a second backup brought back that the reservation had ended: the checker counted it twice"},
		{Seed: 1158, Reason: "a region that holds nothing of a period refuses under no generation: the checker knew none"},
		{Seed: 6010, Reason: "a region that drained when a term was opened stated what it held of it: the checker took its recall for one below its least"},
		{Seed: 6068, Reason: "an empty etcd gave out numbers that a region had stored already: it never heard of a block that was made before it had stated"},
		{Seed: 58, Reason: "a late return was granted within the old target of a region that drains, in a period that was over before: the checker took it for more"},
		{Seed: 20028, Reason: "a database lost its owner between its registration in an empty etcd and its first call: its calls were taken for late ones for good, and all stayed frozen"},
		{Seed: 461, Reason: "terms that an empty etcd had lost were opened again, and then the next: the checker took what lies between for a gap"},
		{Seed: 774, Reason: "an owner that was stopped for a handover failed over: it makes no call, and nobody declared the database that was promoted"},
		{Seed: 847, Reason: "the commit that handed an owner over came after the command was ended: it was called off for ever, and could only go on"},
		{Seed: 270, Reason: "a region was replaced while a call that it had made before was entered in parts: what a former incarnation stated changed a ledger"},
		{Seed: 561, Reason: "a budget was deleted, and etcd and one owner lost: no ledger knew of the limit under which that owner had spent, and the checker believed it"},
		{Seed: 52234, Reason: "a region that drains had given permits back before, which were counted after: they were granted to it again"},
		{Seed: 52150, Reason: "a handover was called off before what an earlier run had begun was there: the owner stayed stopped, and the person took it for done"},
		{Seed: 51039, Reason: "an etcd that went back unnoticed gave a version of a budget out once more: the checker knew of no second limit"},
		{Seed: 5415, Reason: "as 51039, by an override that ended"},
		{Seed: 12, For: 45 * time.Second, Kind: "lost-together", Reason: "etcd went back once more after all had stated: the checker had forgotten what was spent under a limit that was lost"},
		{Seed: 53036, Reason: "a write-off says what a replica saw a moment ago: the checker compared it with what is held now"},
		{Seed: 54024, Reason: "a region stated a return and was removed before it was counted: the checker took it for one of a database that is gone"},
		{Seed: 399, Reason: "a region was removed, registered again and removed once more: the checker had forgotten what its first incarnation had spent of a period that still ran"},
		{Seed: 571, For: time.Minute, Reason: "etcd went back between the only coordinator's write and its reading it back: it waited for ever, for a revision that was gone"},
		{Seed: 453, For: time.Minute, Reason: "a handover's copy was made while the old database's replica was away: the copy's was away for good"},
		{Seed: 576, For: 40 * time.Second, Reason: "word of a broken connection is lost, too: lanes must not wait for ever"},
		{Seed: 8, Kind: "restore-copy", Reason: "ids of a history that was lost were charged from the state that they had there: the checker took it for a lie"},
		{Seed: 9, Kind: "restore-copy", Reason: "a release of an id whose commit was lost is stored, and charges nothing: the checker took it for a second admission"},
		{Seed: 105, Kind: "restore-logically", Reason: "an owner that has just started over settles what it knows, and has heard of no ledger yet"},
		{Seed: 8, Kind: "local-commit-lost", Reason: "the synchronous replica of that run had never had a commit: the loss was greater than the fault says"},
		{Seed: 239, Reason: "a reservation that had been settled ran out in a database that had gone back, which was then restored once more: the checker counted both"},
	}
}

// lostSeeds are those of what is lost together, or of what one process alone remembers.
func lostSeeds() []Seed {
	return []Seed{
		{Seed: 1796078572, For: time.Minute, Reason: "etcd went back once more, to where a lost incarnation was the present one: the checker took what that had spent for not lost"},
		{Seed: 1796078765, For: time.Minute, Reason: "a budget was deleted, then etcd was gone, and it was made again before any region was registered there: the checker waited for its terms"},
		{Seed: 1796078741, For: time.Minute, Reason: "a region stated what it holds, and its database went back before that was counted: the checker compared it with what was restored"},
		{Seed: 1796090012, For: time.Minute, Reason: "a region stated what it holds to a replica that heard of the freeze only meanwhile, and took its answer for a receipt: all thawed without it"},
		{Seed: 15172290, For: time.Minute, Reason: "a connection broke in silence, and the only node that knew what its database had lost was crashed before it could say so"},
		{Seed: 1796500181, For: time.Minute, Reason: "a release fell below what the rows of its region still said of it: the checker took that for spent less in what is lost"},
		{Seed: 1796720391, For: time.Minute, Reason: "one connection of a node hung, over which alone it would have found its mark gone; the others went on, and the node was stopped before it could say so"},
		{Seed: 1796730084, For: time.Minute, Reason: "the coordinator vouched for a node of which one connection hung, over which alone it had written what a failover lost"},
		{Seed: 1796750047, For: time.Minute, Reason: "etcd went back over revisions that were leases only, and was ahead of that again before a read: the watch missed what was written meanwhile, for good"},
	}
}
