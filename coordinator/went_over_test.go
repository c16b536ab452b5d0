package coordinator_test

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// seconds lets so many pass, with the reads of etcd that come in between.
func (w *world) seconds(r *replica, n int) {
	w.t.Helper()
	for range n {
		w.clock.move(time.Second)
		deadline := time.After(patience)
		for get[coordinator.Status](w, r, "/v1/status").EvidenceAge >= 1000 {
			select {
			case <-deadline:
				w.t.Fatal("etcd is not read")
			default:
			}
		}
	}
}

// A failover that all writers of the region have gone over to is taken once the old home was silent for a moment: nobody who
// is known can commit there. If one of them has not, the new database may be a copy beside one that goes on, and is refused
// for as long as ever.
func TestAFailoverThatAllHaveGoneOverTo(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.seconds(r, 5)
	before := east.incarnation
	west.marks = append(west.marks, allocation.Mark{Writer: "eu-west-other", Count: 7, Value: "a"})
	east.sync(r)
	west.sync(r)

	east.home.Timeline, west.home.Timeline = 2, 2
	answered := make(chan allocation.SyncAnswer, 1)
	call := east.call()
	go func() {
		a, _ := r.Sync(t.Context(), call) // an answer without an incarnation is found out below
		answered <- a
	}()
	w.seconds(r, 3)
	select {
	case a := <-answered:
		t.Fatalf("after 3 s it is answered %+v", a)
	default:
	}
	w.seconds(r, 2)
	select {
	case a := <-answered:
		if a.Refusal != "" || a.Incarnation != before {
			t.Errorf("it is answered %+v", a)
		}
	case <-time.After(patience):
		t.Fatal("it is not answered")
	}
	if c := w.flagOf(r, "us-east"); c != nil {
		t.Errorf("it is flagged: %+v", c)
	}
	if n := len(w.acts(r, "region.moved")); n != 1 {
		t.Errorf("%d lines in the audit", n)
	}

	w.seconds(r, 5)
	if a := west.sync(r); a.Refusal == "" {
		t.Errorf("a writer has not gone over, and it is answered %+v", a)
	}
}

// A replica that could not have heard of the old home's calls knows nothing of its silence.
func TestSilenceCountsOnlyWhileOneListens(t *testing.T) {
	w, east, _ := two(t, 1)
	w.seconds(w.replicas[0], 5)
	east.sync(w.replicas[0])
	w.settle(w.replicas[0])
	w.seconds(w.replicas[0], 5)
	late := w.start()
	east.home.Timeline = 2
	if a := east.sync(late); a.Refusal == "" {
		t.Errorf("a replica that has just started takes it: %+v", a)
	}
}
