package fleet

import (
	"net/http/httptest"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/simulations/internal/etcdtwin"
	"tranche/simulations/internal/ownertwin"
)

// The kinds of runs in which everything must hold.
const (
	KindFaults = "faults" // everything that a service must survive
	KindCalm   = "calm"   // nothing goes wrong
)

// The ways in which a run of a named expected failure ends.
const (
	EndSurvived = "survived" // all held, and all came right again
	EndStopped  = "stopped"  // all held, and somebody stopped for good rather than to go on
	EndBroke    = "broke"    // an invariant did not hold
	EndStuck    = "stuck"    // all held, and something never came right
)

// Expected is a named expected failure: a fault that loses history, for which today's code has no full answer. It is run
// and shown, so that nobody takes silence for safety.
type Expected struct {
	Name string
	What string // is done, in words
	Why  string // it is expected to end as it does
	Ends []string
	// Breaks are the invariants that it may break, where it may break any.
	Breaks []int
	do     func(x *faults)
}

// ExpectedFailures are all of them, in order.
func ExpectedFailures() []Expected { return slices.Clone(expectedFailures) }

// ValidKind says whether a run may be of a kind: of one in which all must hold, or of a named expected failure.
func ValidKind(kind string) bool {
	return kind == KindFaults || kind == KindCalm || expectedOf(kind) != nil
}

func expectedOf(kind string) *Expected {
	for i := range expectedFailures {
		if expectedFailures[i].Name == kind {
			return &expectedFailures[i]
		}
	}
	return nil
}

const (
	whyNode = "nodes compare their marks and stop; one that starts anew knows none, and may spend until the next call of the region is refused"
	whyEtcd = "replicas compare their marks and stop; one that starts anew knows none, and owners refuse only what contradicts what they stored"
)

// whyTwice is the one assumption that a copy beside its original breaks: that whoever admitted after the copy was made still
// writes, or was heard by the coordinator, when a node is vouched for on the other database.
const whyTwice = "what a node admitted after the copy, that is gone or cut off since, and of which the coordinator was not told, nobody else can know: the copy may sell it once more, and nothing beyond it"

// livesTwice is what breaks then, and is told at the end: an incarnation that lives in two databases. What else breaks by it,
// and a limit that is passed by more than what the original sold since, is a defect.
var livesTwice = []int{3}

var anyEnd = []string{EndSurvived, EndStopped, EndBroke, EndStuck}

var expectedFailures []Expected

func init() { expectedFailures = append(survivedList(), expectedList()...) } // they call what looks them up

func expectedList() []Expected {
	return []Expected{
		{
			Name: "clone-behind-a-pooler", What: "a copy of a region's database starts beside it, and its address leads to the copy from then on",
			Why:  "what was committed after the copy is found missing by the nodes that made it, and they are waited for; " + whyTwice,
			Ends: []string{EndSurvived, EndStopped, EndBroke}, Breaks: livesTwice,
			do: func(x *faults) { x.clone(true) },
		},
		{
			Name: "clone-both-running", What: "a copy of a region's database starts beside it, and one of its nodes works on the copy",
			Why:  "where both are in contact, their marks exclude each other: one gets a new incarnation, and the other is refused for as long as that one calls; " + whyTwice,
			Ends: []string{EndSurvived, EndStopped, EndBroke}, Breaks: livesTwice,
			do: func(x *faults) { x.clone(false) },
		},
		{
			Name: "etcd-restored", What: "etcd is restored from a snapshot of 10 s before", Why: whyEtcd, Ends: anyEnd, Breaks: []int{1, 2, 3, 4, 5, 8, 10},
			do: etcdBack(1, 0),
		},
		{
			Name: "etcd-restored-twice", What: "etcd is restored twice from one snapshot", Why: whyEtcd, Ends: anyEnd, Breaks: []int{1, 2, 3, 4, 5, 8, 10},
			do: etcdBack(2, 0),
		},
		{
			Name: "etcd-restored-bumped", What: "etcd is restored with its revision bumped, which hides the step back", Why: whyEtcd, Ends: anyEnd,
			Breaks: []int{1, 2, 3, 4, 5, 8, 10}, do: etcdBack(1, 1_000_000),
		},
		{
			Name: kindEtcdEmpty, What: "nothing is left of etcd, and the deployment goes on in an empty one, as the runbook says",
			Why: "all stays frozen until every region has stated what it holds", Ends: survives, do: (*faults).etcdGone,
		},
	}
}

// victim is a region that has something to lose.
func (x *faults) victim() *region {
	if x.chosen != nil {
		return x.chosen
	}
	var started []*region
	for _, r := range x.fleet.regions {
		if r.started {
			started = append(started, r)
		}
	}
	return started[x.random.IntN(len(started))]
}

// restoreBy takes a backup, and brings it back 10 s later. Some nodes start anew at about that time: they know no marks.
func restoreBy(restore func(db *ownertwin.Database, b ownertwin.Backup)) func(x *faults) {
	return func(x *faults) {
		db := x.victim().db
		b := db.Backup()
		drawn := x.chosen
		x.fleet.w.After(10*time.Second, func() {
			if drawn == nil {
				restore(db, b)
				x.restarts()
			} else if drawn.ready() && !x.over && drawn.db == db {
				x.spare(drawn)
				restore(db, b)
			}
		})
	}
}

func etcdBack(times int, bump int64) func(x *faults) {
	return func(x *faults) {
		s := x.fleet.etcd.Snapshot()
		for i := range times {
			x.fleet.w.After(time.Duration(i+1)*10*time.Second, func() {
				x.back(s, bump)
			})
		}
	}
}

func (x *faults) back(s etcdtwin.Snapshot, bump int64) {
	x.fleet.etcd.Restore(s, bump)
	x.fleet.check.restored()
	x.restarts()
}

// restarts crashes some processes, so that they go on without memory.
func (x *faults) restarts() {
	for _, p := range x.services() {
		if x.random.IntN(3) == 0 {
			x.fleet.w.After(time.Duration(x.random.IntN(1500))*time.Millisecond, func() {
				if !x.spares(p) { // its database may have lost history since, which it alone knows
					p.Crash()
				}
			})
		}
	}
}

// clone copies a region's database while it runs.
func (x *faults) clone(all bool) {
	r := x.victim()
	c := r.db.Clone(x.fleet.w, r.name+"/pg-copy")
	x.fleet.check.mayLiveTwice(r, c)
	x.fleet.w.After(time.Duration(1+x.random.IntN(3000))*time.Millisecond, func() {
		if all {
			r.endpoint.Point(c)
			x.fleet.check.moved(r, c)
			return
		}
		n := r.nodes[0]
		n.endpoint = ownertwin.NewEndpoint(c)
		if len(r.nodes) == 1 {
			x.fleet.check.moved(r, c)
		}
		n.process.Crash()
	})
}

// stopped says whether somebody has stopped for good rather than to go on.
func (f *fleet) stopped() string {
	for _, r := range f.regions {
		if why, detail := r.db.Stopped(); why != "" {
			return r.name + ": " + string(why) + ": " + detail
		}
		for _, n := range r.nodes {
			if n.current != nil && n.current.Status().Stopped == allocation.HistoryLost {
				return n.process.Name() + ": " + string(allocation.HistoryLost)
			}
		}
	}
	for _, c := range f.replicas {
		if c.handler == nil {
			continue
		}
		w := httptest.NewRecorder()
		c.handler.ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
		if strings.Contains(w.Body.String(), coordinator.ErrHistoryLost.Error()) {
			return c.process.Name() + ": etcd lost history"
		}
	}
	return ""
}
