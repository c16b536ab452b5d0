package coordinator_test

import (
	"encoding/json"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// overTerm is two regions and a term that is over: us-east has spent 12 of it and not stated so.
func overTerm(t *testing.T, replicas int) (w *world, east, west *fakeRegion, first coordinator.TermShares) {
	t.Helper()
	w, east, west = two(t, replicas)
	first = get[coordinator.SharesAnswer](w, w.replicas[0], "/v1/shares/acme/requests").Terms[0]
	east.untilQuiet(w.replicas[0])
	w.persist(w.replicas[0])
	east.spend("acme/requests", 12)
	w.clock.move(2 * time.Hour)
	west.closed, east.closed = first.Until, first.Until
	return w, east, west, first
}

func (w *world) closeTerms(r *replica) int {
	w.t.Helper()
	n, err := r.CloseTerms(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// A call that closes periods but has no room for what was spent in them must not close a ledger: its record would say too
// little, for good. Nor may one whose statements are known to the replica that heard it only.
func TestClosingWaitsForTheStatements(t *testing.T) {
	w, east, west, first := overTerm(t, 2)
	hears, leads := w.replicas[0], w.replicas[1]
	west.sync(hears)
	partial := east.call()
	full := partial.Statements
	partial.Statements, partial.CompleteThrough = nil, 0
	if _, err := hears.Sync(t.Context(), partial); err != nil {
		t.Fatal(err)
	}
	w.persist(hears)
	if w.closeTerms(leads)+w.closeTerms(hears) != 0 {
		t.Fatal("closed without the statements")
	}
	complete := east.call()
	complete.Statements, complete.CompleteThrough = full, first.Until
	if _, err := hears.Sync(t.Context(), complete); err != nil {
		t.Fatal(err)
	}
	if w.closeTerms(leads)+w.closeTerms(hears) != 0 {
		t.Fatal("closed by statements that are not written")
	}
	w.persist(hears) // the statements, and with them the contact, or the contact with the next turn
	w.persist(hears)
	if w.closeTerms(leads) != 1 {
		t.Fatal("not closed, and all is written")
	}
	w.settle(leads)
	closing := get[coordinator.LedgersPage](w, leads, "/v1/ledgers/acme/requests").Closings[0].Closing
	if got := closing.Regions[1]; got.Region != "us-east" || got.Spent != 12 {
		t.Errorf("%+v", closing.Regions)
	}
}

// Calls come late and out of order: an older promise is kept by newer statements, and none by those of another incarnation.
func TestCompleteCallsThatComeLate(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r := w.replicas[0]
	west.sync(r)
	stale := east.call()
	stale.CompleteThrough = 0
	east.sync(r) // a newer statement of the same shard, and complete
	if _, err := r.Sync(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	w.persist(r)
	w.persist(r)
	if contact := w.contact("us-east"); contact.StatedThrough != first.Until {
		t.Fatalf("stated through %s", contact.StatedThrough)
	}
	back := east.call()
	back.CompleteThrough = first.Until - 60
	back.ClosedBefore = allocation.Instant(0)
	if _, err := r.Sync(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	w.persist(r)
	if contact := w.contact("us-east"); contact.StatedThrough != first.Until || contact.ClosedBefore != first.Until {
		t.Errorf("it went back to %s, %s", contact.StatedThrough, contact.ClosedBefore)
	}
	if w.closeTerms(r) != 1 {
		t.Error("not closed")
	}
}

// contact is what is written of a region's calls.
func (w *world) contact(region string) (c coordinator.Contact) {
	w.t.Helper()
	items, _, err := w.store.Range(w.t.Context(), coordinator.Root+"contacts/"+region)
	if err != nil || len(items) != 1 {
		w.t.Fatal(items, err)
	}
	if err := json.Unmarshal(items[0].Value, &c); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// A database that lost its history can say no more that its terms are over. Once everybody who can has said so, its ledgers
// are closed, and what it held is not recovered; if this fails they stay in etcd for ever.
func TestClosingDoesNotWaitForAFormerIncarnation(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r := w.replicas[0]
	former := east.incarnation
	east.lost = true
	east.sync(r)
	west.sync(r)
	w.persist(r)
	w.persist(r)
	if east.incarnation == former || w.closeTerms(r) != 0 && east.incarnation == "" {
		t.Fatalf("us-east is still incarnation %s", east.incarnation)
	}
	east.closed = first.Until
	east.untilQuiet(r)
	w.persist(r)
	w.persist(r)
	w.closeTerms(r)
	w.settle(r)
	closings := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests").Closings
	if len(closings) == 0 || closings[0].Closing.Term != first.Term {
		t.Fatalf("the term is not closed: %+v", closings)
	}
	for _, g := range closings[0].Closing.Regions {
		if g.Region == "us-east" && g.Incarnation != former {
			t.Errorf("the record names %+v", g)
		}
	}
}

// A term is not over because the incarnation that held it is gone: somebody must have said that it is.
func TestClosingWaitsForSomebody(t *testing.T) {
	w, east, west, _ := overTerm(t, 1)
	r := w.replicas[0]
	east.closed, west.closed = 0, 0
	east.lost = true
	east.sync(r)
	west.sync(r)
	w.persist(r)
	w.persist(r)
	if n := w.closeTerms(r); n != 0 {
		t.Errorf("%d terms are closed, and nobody has said that they are over", n)
	}
}
