package coordinator_test

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// A home that moves without the handover that was begun, from another home than the recorded one, or to a copy that lacks a
// mark that was stated, would let two databases spend the same share, or one spend what is spent.
func TestHandover(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	const path = "/v1/regions/us-east/handover"
	ask := func(q coordinator.HandoverRequest) coordinator.HandoverRequest {
		q.Reason, q.By = "a new server", "kim"
		return q
	}
	east.sync(r)
	old, to := east.home, allocation.Home{System: "another", Database: 7, Timeline: 1}
	move := ask(coordinator.HandoverRequest{Step: coordinator.HandoverMove, Incarnation: east.incarnation, From: old, To: to, Marks: east.marks})
	w.must(r, 422, "POST", path, coordinator.HandoverRequest{Step: coordinator.HandoverBegin})
	w.must(r, 422, "POST", path, ask(coordinator.HandoverRequest{Step: "finish"}))
	w.must(r, 409, "POST", path, move)

	id := ""
	for range 2 {
		began := w.must(r, 200, "POST", path, ask(coordinator.HandoverRequest{Step: coordinator.HandoverBegin}))
		h, _ := began["handover"].(map[string]any)
		if id == "" {
			id, _ = h["id"].(string)
		}
		if id == "" || h["id"] != id || h["by"] != "kim" {
			t.Fatalf("%+v", began)
		}
	}
	w.must(r, 409, "POST", "/v1/regions/us-east/seal", coordinator.SealRequest{Reason: "meanwhile", By: "kim"})
	move.ID = id
	for what, harm := range map[string]func(q *coordinator.HandoverRequest){
		"another handover":    func(q *coordinator.HandoverRequest) { q.ID = "other" },
		"another incarnation": func(q *coordinator.HandoverRequest) { q.Incarnation = "other" },
		"another home":        func(q *coordinator.HandoverRequest) { q.From.Timeline++ },
		"a mark is missing":   func(q *coordinator.HandoverRequest) { q.Marks = nil },
		"an older mark": func(q *coordinator.HandoverRequest) {
			q.Marks = []allocation.Mark{{Writer: east.marks[0].Writer, Count: 0, Value: "before"}}
		},
	} {
		q := move
		harm(&q)
		if got := w.request(r, "POST", path, q); got.Code != 409 {
			t.Errorf("%s: %d %s", what, got.Code, got.Body)
		}
	}
	w.must(r, 422, "POST", path, func() coordinator.HandoverRequest { q := move; q.To = old; return q }())

	w.must(r, 200, "POST", path, ask(coordinator.HandoverRequest{Step: coordinator.HandoverEnd, ID: id}))
	w.must(r, 409, "POST", path, move)
	w.must(r, 200, "POST", path, ask(coordinator.HandoverRequest{Step: coordinator.HandoverBegin, ID: id})) // of an owner that is stopped
	before := east.incarnation
	for range 2 {
		w.must(r, 200, "POST", path, move)
	}
	east.home = to
	if a := east.sync(r); a.Refusal != "" || a.Incarnation != before {
		t.Errorf("the new owner is answered %+v", a)
	}
	east.home = old
	if a := east.sync(r); a.Refusal == "" {
		t.Error("the old one is served")
	}
	// Nor once the new one is silent: that call was made before, and is late.
	w.clock.move(3 * time.Minute)
	if a, err := r.Sync(t.Context(), east.call()); err == nil && a.Refusal == "" {
		t.Error("a late call makes the old database the home again")
	}
	east.home = to
	if a := east.sync(r); a.Refusal != "" || a.Incarnation != before {
		t.Errorf("after that the new owner is answered %+v", a)
	}
	for act, want := range map[string]int{"region.handover-begin": 2, "region.handover-end": 1, "region.handover-move": 1} {
		if n := len(w.acts(r, act)); n != want {
			t.Errorf("%d lines of %s in the audit", n, act)
		}
	}
}

// A stopped owner makes no call, so its failover is declared: the handover goes on from the database that was promoted.
func TestHandoverOfAPromotedOwner(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	east.sync(r)
	began := w.must(r, 200, "POST", "/v1/regions/us-east/handover", coordinator.HandoverRequest{Step: coordinator.HandoverBegin, Reason: "a new server", By: "kim"})
	h, _ := began["handover"].(map[string]any)
	id, _ := h["id"].(string)
	promoted, to := east.home, allocation.Home{System: "another", Database: 7, Timeline: 1}
	promoted.Timeline++
	move := coordinator.HandoverRequest{
		Step: coordinator.HandoverMove, ID: id, Reason: "a new server", By: "kim", Incarnation: east.incarnation, From: promoted, To: to, Marks: east.marks,
	}
	w.must(r, 409, "POST", "/v1/regions/us-east/handover", move)
	w.must(r, 200, "POST", "/v1/regions/us-east/adopt-failover", coordinator.AdoptRequest{Reason: "it was promoted", By: "kim", Home: &promoted})
	late := move
	late.From = east.home
	w.must(r, 409, "POST", "/v1/regions/us-east/handover", late)
	w.must(r, 200, "POST", "/v1/regions/us-east/handover", move)
	east.home = to
	if a := east.sync(r); a.Refusal != "" || a.Incarnation != move.Incarnation {
		t.Errorf("the new owner is answered %+v", a)
	}
}
