package coordinator_test

import (
	"slices"
	"testing"

	"tranche/allocation"
)

// Nodes were restarted since the snapshot from which etcd is restored: the marks of the old ones stand in it, and their rows are gone.
// A region that has lost nothing must not be told that it did: it would begin anew, and what it holds would be stranded.
func TestEtcdRestoredToBeforeNodesWereRestarted(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	life := east.incarnation
	w.persist(r)
	snapshot := w.backup()

	east.past = slices.Clone(east.marks)
	old := east.past[0].Writer
	east.marks = []allocation.Mark{{Writer: "east-node-2", Count: 1, Value: "a1"}}
	east.ended = []string{old}
	for range 2 {
		if a := east.sync(r); len(a.EndedAcknowledged) == 1 {
			east.ended = nil
		}
	}
	if east.ended != nil {
		t.Fatal("the end of the old node is not acknowledged")
	}
	east.spend("acme/requests", 7)
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.persist(r)

	r.stop()
	w.replicas = nil
	w.memories = nil
	w.restore(snapshot)
	second := w.start()
	for range 3 {
		w.round(second, east, west)
		w.persist(second)
	}
	if east.lost || east.incarnation != life {
		t.Errorf("us-east lost nothing, and is %s now, before %s; told that it did: %v", east.incarnation, life, east.lost)
	}
	w.conserved()
}
