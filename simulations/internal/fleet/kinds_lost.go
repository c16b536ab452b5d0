package fleet

import (
	"time"

	"tranche/simulations/internal/ownertwin"
)

const whyAnew = "its nodes find their marks gone, or the coordinator does: the region goes on as a new incarnation, with nothing"

// survives is how a loss ends that is answered in full: what is broken, or never comes right, is a defect.
var survives = []string{EndSurvived}

// survivedList are the ways to lose a region's history that everything must survive, each alone.
func survivedList() []Expected {
	return []Expected{
		{
			Name: "restore-logically", What: "pg_restore --clean under running nodes, from a backup of 10 s before", Why: whyAnew, Ends: survives,
			do: restoreBy(func(db *ownertwin.Database, b ownertwin.Backup) { db.RestoreLogically(b) }),
		},
		{
			Name: "restore-physically", What: "the database is recovered from a base backup of 10 s before, on a new timeline",
			Why: whyAnew, Ends: survives,
			do: restoreBy(func(db *ownertwin.Database, b ownertwin.Backup) { db.RestorePhysically(b) }),
		},
		{
			Name: "restore-copy", What: "the database's files are put back as they were 10 s before: same system, same timeline", Why: whyAnew, Ends: survives,
			do: restoreBy(func(db *ownertwin.Database, b ownertwin.Backup) { db.RestoreCopy(b) }),
		},
		{
			Name: "unsafe-crash", What: "a crash loses the last acknowledged commits: fsync was off, or a disk lied", Why: whyAnew, Ends: survives,
			do: func(x *faults) { x.victim().db.LoseTail(1 + x.random.IntN(30)) },
		},
		{
			Name: "unsafe-crash-of-one", What: "a crash loses the last acknowledged commits of one node, and none of another one",
			Why: "only that node knows; the others wait until it has spoken, and it finds its marks gone", Ends: survives,
			do: func(x *faults) { x.forgetOne(x.victim(), 500) },
		},
		{
			Name: "failover-lossy", What: "a replica that lacks the last commits becomes the primary",
			Why: "its home is another, and marks that were stated are missing: the region goes on as a new incarnation, with nothing", Ends: survives,
			do: func(x *faults) { x.victim().db.Failover(1 + x.random.IntN(30)) },
		},
		{
			Name: kindTogether, What: "etcd and a region's database are put back together, to what they were seconds before",
			Why: "the region begins anew, and of each limit all that is not proven to be elsewhere is stranded with what it was, raises as well", Ends: survives,
			do: (*faults).lostTogether,
		},
		{
			Name: "failover-lossless", What: "a replica that lacks nothing becomes the primary",
			Why: "the region moves to its new home as soon as the old one is silent for long enough", Ends: survives,
			do: func(x *faults) { x.victim().db.Failover(0) },
		},
		{
			Name: "local-commit-lost", What: "a synchronous replica does not answer, waits for it are cancelled, and then it becomes the primary",
			Why: "a commit with a remark is an unknown outcome, so nobody was told; the timeline is another", Ends: survives,
			do: func(x *faults) {
				db := x.victim().db
				db.SetReplica(true, false) // until now it had everything
				db.SetReplica(true, true)
				db.CancelReplicaWaits(true)
				x.fleet.w.After(2*time.Second, func() {
					db.CancelReplicaWaits(false)
					db.FailoverSynchronous()
					db.SetReplica(false, false)
				})
			},
		},
	}
}
