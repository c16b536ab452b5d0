package mutants

import (
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/fleet"
	"tranche/simulations/internal/ownertwin"
)

// The arenas.
var (
	anything = arena{name: "everything"}
	moving   = arena{name: "limits and weights that change", focus: fleet.Focus{
		Operate: 1500 * time.Millisecond, Faults: map[string]int{"cut-region": 1}, Lose: -1, Drift: -1, Every: 10 * time.Second, AtCommit: -1,
	}}
	silent = arena{name: "regions cut off", focus: fleet.Focus{
		Faults: map[string]int{"cut-region": 5, "cut-link": 1}, Every: 3 * time.Second, Operate: 4 * time.Second, Lose: -1, AtCommit: -1, Drift: -1, Clocks: "right",
	}}
	retries = arena{name: "lost answers and retries", focus: fleet.Focus{
		Faults: map[string]int{"cut-link": 6, "slow-disk": 2, "restart-postgres": 1}, Every: time.Second, Lose: 0.05, Nodes: 2, Clients: 2, Think: 200 * time.Millisecond,
		Retention: 60, Clocks: "right", Drift: -1,
	}}
	restarts = arena{name: "databases that crash", focus: fleet.Focus{
		Faults: map[string]int{"restart-postgres": 6, "crash-node": 2, "slow-disk": 1}, Every: 2 * time.Second, Clients: 2, Think: 200 * time.Millisecond, Drift: -1,
	}}
	late = arena{name: "messages that come late", focus: fleet.Focus{
		Faults: map[string]int{"crash-node": 1}, Every: 4 * time.Second, Late: 0.3, LateMost: 12 * time.Second, Nodes: 2, Operate: 1500 * time.Millisecond, Drift: -1, Clocks: "right",
	}}
	clocks = arena{name: "databases' clocks that jump a little", long: 60 * time.Second, focus: fleet.Focus{
		Faults: map[string]int{"clock-jump": 6}, Every: 2 * time.Second, Clocks: "databases", Jump: 8 * time.Second, Grace: 1, Lose: -1, Clients: 1, Think: time.Second,
		Drift: -1, AtCommit: -1, Operate: -1,
	}}
	leaps = arena{name: "databases' clocks that jump far", focus: fleet.Focus{
		Faults: map[string]int{"clock-jump": 6}, Every: 12 * time.Second, Clocks: "databases", Lose: -1, Drift: -1, AtCommit: -1,
	}}
	ahead = arena{name: "coordinators' clocks that jump far", focus: fleet.Focus{
		Faults: map[string]int{"clock-jump": 6}, Every: 3 * time.Second, Clocks: "coordinators", Coordinators: 1, Lose: -1, Drift: -1, AtCommit: -1,
	}}
	forgetful = arena{name: "databases' clocks that jump, and nodes that restart", long: 45 * time.Second, focus: fleet.Focus{
		Faults: map[string]int{"clock-jump": 3, "crash-node": 2}, Every: time.Second, Clocks: "databases", Jump: 3 * time.Minute, Retention: 60, Lose: -1, Nodes: 1,
		Clients: 2, Think: 400 * time.Millisecond, Drift: -1, AtCommit: -1, Operate: -1,
	}}
	disks = arena{name: "slow disks", long: 40 * time.Second, focus: fleet.Focus{
		Faults: map[string]int{"slow-disk": 6}, Every: 2 * time.Second, Grace: 1, Nodes: 2, Clients: 2, Think: 200 * time.Millisecond, Retention: 60, Drift: -1, AtCommit: -1,
		Clocks: "right", Lose: -1,
	}}
	contended = arena{name: "changes while disks are slow", focus: fleet.Focus{
		Faults: map[string]int{"slow-disk": 6}, Every: 2 * time.Second, Nodes: 2, Clients: 3, Think: 100 * time.Millisecond, Operate: 600 * time.Millisecond, Lose: -1,
		Drift: -1, AtCommit: -1,
	}}
	twice = arena{name: "requests that come twice, under small limits", focus: fleet.Focus{
		Faults: map[string]int{"slow-disk": 6}, Every: 2 * time.Second, Repeat: 0.9, Nodes: 2, Clients: 3, Think: 100 * time.Millisecond, Limit: 12, Operate: -1,
		Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	demanding = arena{name: "budgets of policy demand", focus: fleet.Focus{
		Faults: map[string]int{"cut-region": 2, "cut-link": 1, "slow-disk": 2}, Every: 4 * time.Second, Demand: true, Clients: 2, Think: 200 * time.Millisecond,
		Coordinators: 2, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right", Operate: 6 * time.Second,
	}}
	demandingDrains = arena{name: "regions that drain, and budgets of policy demand", focus: fleet.Focus{
		Faults: map[string]int{"cut-link": 1}, Every: 5 * time.Second, Demand: true, Clients: 2, Think: 200 * time.Millisecond, Lose: -1, Drift: -1, AtCommit: -1,
		Clocks: "right", Operate: time.Second,
	}}
	watching = arena{name: "budgets in shadow, and that only count", focus: fleet.Focus{
		Faults: map[string]int{"cut-link": 2, "crash-node": 1}, Every: 4 * time.Second, Watched: true, Nodes: 2, Clients: 3, Think: 100 * time.Millisecond,
		Operate: -1, Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	policed = arena{name: "floors, ladders, and a greatest age of evidence", focus: fleet.Focus{
		Faults: map[string]int{"cut-region": 3, "cut-link": 1}, Every: 4 * time.Second, Policed: true, Nodes: 2, Clients: 3, Think: 100 * time.Millisecond,
		Operate: -1, Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	raising = arena{name: "overrides", focus: fleet.Focus{
		Faults: map[string]int{"cut-region": 1, "cut-link": 1}, Every: 8 * time.Second, Raise: true, Clients: 2, Think: 200 * time.Millisecond,
		Operate: 1500 * time.Millisecond, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	midnights = arena{name: "midnight by several versions of the time-zone data", long: 100 * time.Second, focus: fleet.Focus{
		Faults: map[string]int{"zone-data": 4, "crash-coordinator": 1}, Every: 4 * time.Second, Operate: 3 * time.Second, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	afterMidnight = arena{name: "a replica whose time-zone data lacks the zone, for good", long: 15 * time.Second, focus: fleet.Focus{
		Faults: map[string]int{"zone-data": 1}, Every: 10 * time.Second, Coordinators: 2, Operate: -1, Lose: -1, Drift: -1, AtCommit: -1, Clocks: "right", Acts: -1, Handovers: -1,
		Clients: 1, Think: 2 * time.Second,
	}}
	keyed = arena{name: "callers' keys, and blocks", focus: fleet.Focus{
		Faults: map[string]int{"cut-region": 2, "crash-node": 1}, Every: 4 * time.Second, Keys: true, Nodes: 2, Clients: 3, Think: 150 * time.Millisecond,
		Operate: -1, Drift: -1, AtCommit: -1, Clocks: "right",
	}}
	keyedRestore = arena{name: "callers' keys, and an etcd that goes back", long: 45 * time.Second, kind: "etcd-restored", focus: fleet.Focus{
		Keys: true, Clients: 1, Think: time.Second, Operate: -1, Drift: -1, AtCommit: -1, Clocks: "right", Lose: -1,
	}}
	wentBack = arena{name: "an etcd that goes back", long: 45 * time.Second, kind: "etcd-restored", focus: fleet.Focus{
		Clients: 2, Think: 300 * time.Millisecond, Operate: 2 * time.Second, Drift: -1, AtCommit: -1, Clocks: "right", Lose: -1,
	}}
	startedOver = arena{name: "databases that are put back", long: 45 * time.Second, kind: "restore-logically", focus: fleet.Focus{
		Clients: 2, Think: 300 * time.Millisecond, Operate: 2 * time.Second, Drift: -1, AtCommit: -1, Clocks: "right", Lose: -1,
	}}
	crashed = arena{name: "crashes that lose the last commits of one of two nodes", focus: fleet.Focus{
		Faults: map[string]int{"unsafe-crash-of-one": 1}, Every: 6 * time.Second, Nodes: 2, Clients: 1, Think: 400 * time.Millisecond, Operate: -1, Drift: -1, AtCommit: -1,
		Clocks: "right", Lose: -1, Handovers: -1, // one that stops a database that lost commits a moment ago must be called off
	}}
	replicas = arena{name: "a replica that is away", focus: fleet.Focus{
		Faults: map[string]int{"replica-away": 6}, Every: 2 * time.Second, Replica: true, Lose: -1, Clients: 2, Think: 200 * time.Millisecond, Drift: -1,
	}}
)

func broken(b ownertwin.Breaks) func() fleet.Seams {
	return func() fleet.Seams { return fleet.Seams{Breaks: b} }
}

// fleetMutants are those that the real services show.
func fleetMutants() []Mutant {
	return []Mutant{
		inFleet("charge-one-of-two", "a request that matches two budgets is charged to one of them", anything, ownerSeams(chargeOneOfTwo), 7),
		inFleet("charge-nothing", "ids are committed, and nothing is charged", anything, ownerSeams(chargeNothing), 7),
		inFleet("admit-unknown-commit", "an unknown commit is taken for a success", retries, ownerSeams(admitUnknown), 6, 11),
		inFleet("replay-released", "a reservation that was released is replayed as admitted", retries, ownerSeams(replayReleased), 6),
		inFleet("refuse-replay-from-memory", "a replay is refused from memory, since the share is used up", retries, ownerSeams(refuseFromMemory), 6),
		inFleet("forget-release", "a release of an unknown id passes without a trace", retries, ownerSeams(forgetRelease), 6, 11),
		inFleet("old-configuration", "a node decides under an old configuration number", moving, ownerSeams(oldConfiguration), 13),
		inFleet("empty-ids-by-one-clock", "a table of ids is emptied by the database's clock alone", forgetful, ownerSeams(emptyByOneClock), 6),
		inFleet("close-by-own-clock", "an owner closes periods by its database's clock alone", leaps, ownerSeams(closeByOwnClock), 10),
		inFleet("close-owner-by-coordinators-clock", "an owner closes periods by the coordinator's clock alone", ahead, broken(ownertwin.Breaks{CloseByCaller: true}), 10),
		inFleet("spend-in-closed-period", "an owner spends in a period that it has closed", clocks, ownerSeams(openClosed), 10),

		inFleet("replay-from-memory", "a replay tells the state in which its node first saw the id", retries, ownerSeams(replayFromMemory), 6),
		inFleet("refuse-by-an-old-row", "a refusal is decided on a row as it was before permits came back", moving, ownerSeams(refuseByOldRow), 2),
		inFleet("tell-an-old-remainder", "an admission tells what remained before it", anything, ownerSeams(tellOldRemainder), 12),
		inFleet("ceiling-too-soon", "ceiling_reached although others hold permits that were never spent", anything, ownerSeams(ceilingTooSoon), 12),
		inFleet("count-under-another-limit", "what is left elsewhere was counted under a lower limit", moving, wireSeams(elsewhereOfOldLimit), 12),
		inFleet("commit-then-refuse", "a commit is answered with a refusal that says that nothing was charged", anything, ownerSeams(commitThenRefuse), 6, 7),

		inFleet("count-return-early", "a return is counted before it is durable", moving, wireSeams(stateBeforeCommit), 4),
		inFleet("regrant-on-timeout", "what a region holds is granted again once it is silent for long enough", silent, wireSeams(regrantOnTimeout), 4),
		inFleet("close-by-coordinators-clock", "a ledger is closed by the coordinator's clock alone", silent, wireSeams(closeByCoordinator), 5),
		inFleet("close-by-contact", "a ledger is closed as soon as its owners have closed their periods, whether all is stated or not", silent, storeSeams(closeByContact), 1),
		inFleet("overstate-returns", "an owner states more than it returned", moving, wireSeams(overstateReturns), 4),
		inFleet("statements-by-last-writer", "statements are merged by last writer", anything, arriveSeams(byLastWriter), 1),
		inFleet("reserved-by-maximum", "reserved permits are merged by maximum", anything, arriveSeams(reservedByMaximum), 1),

		inFleet("reopen-closed-ledger", "a closed ledger is opened again", anything, storeSeams(reopenClosed), 8),
		inFleet("open-anew-after-delete", "a budget that is deleted and made again opens its running term anew", moving, storeSeams(openAnew), 8, 10),
		inFleet("recompute-period-start", "a period's start is computed again from the window", moving, storeSeams(recomputeStart), 10),
		inFleet("recompute-period-at-owner", "a node computes the end of a period by its own time-zone data", midnights, wireSeams(recomputeAtOwner), 10),
		inFleet("recompute-period-on-change", "a replica computes the end of an open term by its own time-zone data", midnights, storeSeams(recomputeOnFollow), 10),
		inFleet("open-term-by-own-zone", "a term begins where a replica's own time-zone data says, not where the one before ended", midnights, storeSeams(openByOwnZone), 10),
		inFleet("lead-unfit", "a leader that cannot open a term keeps the others from it", afterMidnight, keptSeams, 0),
		inFleet("leave-a-period-out", "a term begins later than the one before it ended", anything, storeSeams(leaveGap), 10),
		inFleet("decide-without-revision", "a decision does not say on which state of the ledger it rests", anything, ownerSeams(withoutRevision), 12),
		inFleet("take-from-giver-at-once", "the ledger counts what it asked for as returned", moving, storeSeams(takeFromGiver), 4),
		inFleet("grant-before-return", "the taker is granted before the giver has returned", moving, storeSeams(grantAhead), 1, 2),
		inFleet("compare-own-mark-only", "a transaction does not compare what it rests on", anything, storeSeams(compareMarkOnly), 1, 8, 10),

		inFleet("give-what-is-kept", "what is kept for a region that begins anew is given to one that waits for a return", keeping, storeSeams(giveKept), 4),
		inFleet("drain-takes-more", "a region that drains is granted more", demandingDrains, storeSeams(drainTakesMore), 4),
		inFleet("forget-opening-spent", "what was spent before a budget was declared is granted once more", watching, storeSeams(forgetOpening), 1, 2),
		inFleet("recall-is-return", "what demand recalls is given to others before it has returned", demanding, storeSeams(recallIsReturn), 4),
		inFleet("chunk-above-unallocated", "a chunk is granted although less is unallocated", demanding, storeSeams(chunkAboveFree), 1, 2),
		inFleet("chunk-from-old-picture", "chunks are granted without comparing the ledger that they are cut from", demanding, storeSeams(chunkUncompared), 1, 8),
		inFleet("recall-below-min", "demand recalls what a region is to have at least", demanding, storeSeams(recallBelowMin), 4),
		inFleet("chunk-above-max", "demand gives a region more than it is to have at most", demanding, storeSeams(chunkAboveMax), 4),
		inFleet("recall-counted-early", "what demand recalls is counted before the owner has returned it", demanding, wireSeams(stateBeforeCommit), 4),
		inFleet("shadow-charges-refused", "in shadow, what would have been refused is charged", watching, ownerSeams(shadowCharges), 7),
		inFleet("shadow-refuses", "a budget in shadow refuses", watching, ownerSeams(watchedRefuses(allocation.Shadow)), 11),
		inFleet("meter-refuses", "a budget that only counts refuses", watching, ownerSeams(watchedRefuses(allocation.Meter)), 11),
		inFleet("enforce-for-flips", "a part that is enforced is drawn by each node for itself, so that one id is in and out of it", watching, enforceForFlips, 11),
		inFleet("degraded-is-free", "what a ladder degrades is charged to no budget", policed, ownerSeams(degradedIsFree), 7),
		inFleet("batch-spends-protected", "batch work spends what is protected", policed, ownerSeams(floorUnseen), 11),
		inFleet("stale-in-strict", "a budget that refuses on old evidence admits on it", policed, ownerSeams(staleInStrict), 11),
	}
}

// twinMutants are those of a twin of the database that leaves a rule out.
func twinMutants() []Mutant {
	return []Mutant{
		inFleet("apply-any-generation", "an owner applies a grant of an older generation", late, broken(ownertwin.Breaks{AnyGeneration: true}), 8),
		inFleet("forget-ids-after-restart", "the ids are forgotten when the database restarts", restarts, broken(ownertwin.Breaks{UnloggedIDs: true}), 6),
		inFleet("look-up-before-lock", "an id is looked up before the locks", twice, broken(ownertwin.Breaks{LookUpFirst: true}), 6),
		inFleet("look-up-open-table-only", "an id is looked up in the open table only", retries, broken(ownertwin.Breaks{OpenTableOnly: true}), 6),
		inFleet("insert-without-switch-lock", "a batch does not hold the switch lock: into a table or a period just closed", disks, broken(ownertwin.Breaks{NoSwitchLock: true}), 6, 10),
		inFleet("share-joined-to-locked-row", "the share is read joined to the locked row, as it was before the wait", contended, broken(ownertwin.Breaks{StaleShare: true}), 2, 4, 7, 8),
		inFleet("make-row-without-share-lock", "a usage row is made without its share row's lock", contended, broken(ownertwin.Breaks{NoShareLock: true}), 2, 4, 8),
		inFleet("read-usage-without-lock", "usage rows are read without their locks", anything, broken(ownertwin.Breaks{NoUsageLock: true}), 2, 7, 8),
		inFleet("commit-rows-that-changed", "counters are written although the rows are not those that were read", anything, broken(ownertwin.Breaks{NoUsageLock: true, CommitMismatched: true}), 7),
		inFleet("insert-id-unseen", "an id is looked up before the locks, and may be inserted a second time", twice, broken(ownertwin.Breaks{LookUpFirst: true, NoIDConstraint: true}), 6),
		inFleet("accept-warnings", "a commit that came with a warning is taken for one that is safe", replicas, broken(ownertwin.Breaks{AcceptWarnings: true}), 11),
	}
}
