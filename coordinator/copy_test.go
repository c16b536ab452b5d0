package coordinator_test

import (
	"slices"
	"testing"

	"tranche/allocation"
)

// A copy that runs beside its original, both in contact: the one that calls with fewer marks ends the incarnation, and gets
// a new one. Without a rule for what the other one gets, the two would take each other's incarnation away for ever.
func TestACopyBesideItsOriginal(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	other := *east
	other.marks = append(slices.Clone(east.marks), allocation.Mark{Writer: "us-east-copy", Count: 1, Value: "c"})
	east.sync(r)
	east.sync(r)
	if a := other.sync(r); a.Refusal == "" {
		t.Fatalf("it lacks a mark, and is answered %+v", a)
	}
	other.sync(r) // it asks for a new incarnation, and gets one
	other.sync(r)
	now := other.incarnation
	if now == "" || now == east.incarnation {
		t.Fatalf("the copy is %q", now)
	}
	if a := east.sync(r); a.Refusal == "" {
		t.Fatalf("the original was replaced, and is answered %+v", a)
	}
	for range 3 {
		w.seconds(r, 2)
		other.sync(r)
		if a := east.sync(r); a.Refusal == "" || a.Incarnation != now {
			t.Fatalf("the copy called a moment ago, and the original is answered %+v", a)
		}
	}
	if c := w.flagOf(r, "us-east"); c == nil {
		t.Error("nobody is told that there are two")
	}
	w.seconds(r, 5) // the copy is stopped
	if a := east.sync(r); a.Refusal != "" || a.Incarnation == now {
		t.Errorf("the copy is silent, and the original is answered %+v", a)
	}
}
