package fleet

import (
	"time"

	"tranche/simulations/internal/etcdtwin"
)

// mostRestores is how often etcd goes back in one run: each time costs every region a whole statement.
const mostRestores = 3

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
