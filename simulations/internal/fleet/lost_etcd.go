package fleet

import (
	"encoding/json"
	"time"

	"tranche/coordinator"
	"tranche/simulations/internal/etcdtwin"
)

// mostRestores is how often etcd goes back in one run: each time costs every region a whole statement.
const mostRestores = 3

// mostStepsBack is how often it goes back by a moment.
const mostStepsBack = 16

// etcdRestored brings etcd back to what it was up to 15 s before, once or twice, with its revision bumped or not.
func (x *faults) etcdRestored() {
	if x.done["etcd-restored"] > mostRestores || x.fleet.lostWhole {
		return
	}
	bump := oneOf[int64](x.lost, 0, 0, 1_000_000)
	x.restoreLater(x.fleet.etcd.Snapshot(), bump, 1+x.lost.IntN(2))
}

func (x *faults) restoreLater(s etcdtwin.Snapshot, bump int64, times int) {
	x.fleet.w.After(time.Duration(x.lost.Int64N(int64(15*time.Second))), func() {
		if x.over || x.fleet.lostWhole { // a backup of an etcd that is gone is older than what goes on
			return
		}
		x.back(s, bump)
		if times > 1 {
			x.restoreLater(s, bump, times-1)
		}
	})
}

// etcdStepBack brings etcd back to what it was a moment before, and lets one replica stand still from then on: when it goes on
// it answers calls before it knows of that, and of what the others have begun since. If it wrote nothing in between it finds its
// own mark, and learns it from them alone. None of it comes while all is frozen: what is entered then is stated once.
func (x *faults) etcdStepBack() {
	f := x.fleet
	if x.done["etcd-step-back"] > mostStepsBack || f.lostWhole || f.frozen() {
		return
	}
	s := f.etcd.Snapshot()
	f.w.After(time.Duration(x.lost.Int64N(int64(1500*time.Millisecond))), func() {
		if x.over || f.lostWhole || f.frozen() {
			return
		}
		f.etcd.Restore(s, 0)
		f.check.restored()
		last := f.replicas[len(f.replicas)-1].process
		last.Pause()
		f.w.After(time.Second+time.Duration(x.lost.Int64N(int64(2*time.Second))), last.Resume)
	})
}

// frozen says whether all that etcd holds is frozen.
func (f *fleet) frozen() bool {
	for _, item := range f.etcd.Items(coordinator.Root + "history") {
		var d coordinator.StandingDocument
		return json.Unmarshal(item.Value, &d) == nil && d.Freeze != nil
	}
	return false
}
