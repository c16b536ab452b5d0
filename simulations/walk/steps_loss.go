package walk

import (
	"slices"

	"tranche/allocation"
)

// lossSteps are what goes back, and what starts anew. By symmetry only a's database does.
func (m *machine) lossSteps(add adder) {
	if m.OwnerRestores > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.ownerRestores) >= m.OwnerRestores || w.backed {
				return false
			}
			w.backup, w.backed = w.dbs[0], true
			return true
		}, "a's database is backed up")
		add(func(m *machine, w *world) bool { return m.restoreOwner(w) }, "a's database is restored from the backup")
	}
	if m.Restarts > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.restarts) >= m.Restarts || !w.holdsAll() {
				return false
			}
			w.restarts++
			w.calls[0] = message{}
			return m.restart(w)
		}, "a's node starts anew, without memory; all that it wrote was stated")
	}
	if m.EtcdRestores > 0 {
		add(func(m *machine, w *world) bool {
			if int(w.etcdRestores) >= m.EtcdRestores || w.snapped {
				return false
			}
			w.snapshot, w.snapped = w.etcd, true
			return true
		}, "etcd is saved in a snapshot")
		add(func(m *machine, w *world) bool { return m.restoreEtcd(w) }, "etcd is restored from the snapshot")
	}
	if m.Copy {
		m.copySteps(add)
	}
}

// holdsAll says that the coordinator was told all that a's nodes remember to have written.
func (w *world) holdsAll() bool {
	for _, n := range []int{0, second} {
		told := slices.Contains(w.etcd.regions[0].marks[:], w.nodes[n].left)
		if w.nodes[n].on && !told {
			return false
		}
	}
	return true
}

// wentOn lets a node on that has seen every other writer commit since it connected.
func (m *machine) wentOn(w *world, n int) bool {
	nd := &w.nodes[n]
	now := realMarks(w.dbs[0].marks)
	if nd.vouched || nd.lost || nd.seen == [writers]mark{} || !allocation.WentOn(realMarks(nd.seen), now, mark{writer: nd.writer}.real().Writer) {
		return false
	}
	nd.vouched = true
	return true
}

func (m *machine) restart(w *world) bool {
	if !m.enroll(w, 0, 0) {
		return false
	}
	w.nodes[0].vouched = m.off(NodesAreVouchedFor)
	return true
}

func (m *machine) restoreOwner(w *world) bool {
	if !w.backed || int(w.ownerRestores) >= m.OwnerRestores || m.Told && !w.holdsAll() {
		return false
	}
	w.ownerRestores++
	w.lines++
	w.dbs[0] = w.backup
	w.dbs[0].line = w.lines
	w.backup, w.backed = database{}, false
	if !m.off(BrokenConnections) {
		for _, n := range []int{0, second} {
			w.nodes[n].vouched, w.nodes[n].seen = false, w.dbs[0].marks
		}
	}
	switch {
	case m.off(NewIncarnation), m.Forgetful && m.off(NodesAreVouchedFor):
		// It goes on with what it finds.
		w.calls[0] = message{}
		for i, k := range w.dbs[0].marks {
			if k.writer == w.nodes[0].writer {
				w.nodes[0].left = w.dbs[0].marks[i]
			}
		}
		w.nodes[0].lost, w.nodes[0].vouched = false, true
	case m.Forgetful:
		w.calls[0] = message{}
		return m.restart(w)
	}
	return true
}

func (m *machine) restoreEtcd(w *world) bool {
	if !w.snapped || int(w.etcdRestores) >= m.EtcdRestores {
		return false
	}
	w.etcdRestores++
	w.etcdLines++
	w.etcd = w.snapshot
	w.etcd.line = w.etcdLines
	w.snapshot, w.snapped = store{}, false
	if m.Cold {
		w.memory = 0
	}
	return true
}

func (m *machine) copySteps(add adder) {
	add(func(m *machine, w *world) bool {
		if w.copies {
			return false
		}
		w.copies = true
		w.lines++
		w.dbs[copied] = w.dbs[0]
		w.dbs[copied].line = w.lines
		if !m.CopyAtHome {
			w.dbs[copied].home = copied
		}
		return true
	}, "a's database is copied")
	add(func(m *machine, w *world) bool {
		marks := allocation.LostMarks(realMarks(w.etcd.regions[0].marks), realMarks(w.dbs[copied].marks), nil)
		stale := len(marks) > 0 || w.etcd.regions[0].residence.Incarnation != incarnation(0, w.dbs[copied].incarnation)
		if !w.copies || w.nodes[copied].on || m.CopyAtHome && !m.CopySoon && !stale {
			return false
		}
		if !m.enroll(w, copied, copied) {
			return false
		}
		w.nodes[copied].vouched = m.off(NodesAreVouchedFor)
		return true
	}, "the copy is started beside the original, which has stated something since")
}
