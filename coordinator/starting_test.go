package coordinator_test

import (
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// A node that nobody vouches for may work on a copy of the region's database: what was given back in there may be spent in the
// original. So nothing of what it states counts, nor is it acknowledged: once it is vouched for it states it again.
func TestWhatANodeStatesThatStarts(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	const name = "acme/starting"
	budget := func(limit string) string {
		return `{"budget":"` + name + `","unit":"requests","limit":` + limit + `,"window":{"every":"1h"},"match":{"tenant":"starting"},"allocation":{"policy":"fixed","weights":{"us-east":1,"eu-west":1}}}`
	}
	w.must(r, 201, "POST", "/v1/budgets", budget("100"))
	w.settle(r)
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
	}
	w.must(r, 200, "PUT", "/v1/budgets/"+name, budget("40"), "If-Match", `"1"`)
	w.settle(r)
	returned := func() (n int64) {
		for _, l := range r.Ledgers() {
			for _, a := range l.EntryAt(0).Allocations {
				if l.Budget == name && a.Incarnation == east.incarnation {
					n = max(n, a.Returned)
				}
			}
		}
		return n
	}
	east.sync(r) // is asked for 30, and gives them back in its own database

	call := east.call()
	call.Starting = true
	if len(call.Statements) == 0 {
		t.Fatal("it has nothing to state")
	}
	a, err := r.Sync(t.Context(), call)
	if err != nil || a.Refusal != "" || !a.Vouches(call, call.Marks[0]) {
		t.Fatalf("it is answered %+v, %v: it would start for ever", a, err)
	}
	if n := returned(); n != 0 || len(a.Acknowledged)+len(a.Shares) > 0 {
		t.Errorf("nobody vouches for the node, %d are counted as returned, and it is answered %+v", n, a)
	}
	w.conserved()

	// What it states is compared all the same: an etcd that went back must not vouch for it.
	more := call
	more.Marks = east.call().Marks
	shares := []allocation.ShareStatement{call.Statements[0].Shares[0]}
	shares[0].Generation.Number += 100
	more.Statements = []allocation.Statement{{Shard: call.Statements[0].Shard, Number: call.Statements[0].Number, Shares: shares}}
	if b, err := r.Sync(t.Context(), more); err == nil && b.Vouches(more, more.Marks[0]) {
		t.Errorf("it states a generation that the ledger never had, and is answered %+v", b)
	}
}

// Without this a node would wait for an acknowledgement that its first calls cannot get.
func TestANodeThatStartedStatesAgain(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
	}
	east.spend("acme/requests", 3)
	call := east.call()
	call.Starting = true
	a, err := r.Sync(t.Context(), call)
	if err != nil {
		t.Fatal(err)
	}
	east.apply(a)
	east.untilQuiet(r)
	w.settle(r)
	shares := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests")
	if got := shares.Terms[0].Regions[1].Spent; got != 3 {
		t.Errorf("it spent 3, and stated %d", got)
	}
	w.conserved()
}
