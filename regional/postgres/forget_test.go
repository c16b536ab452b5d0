//go:build unix

package postgres

import (
	"strings"
	"testing"
	"time"

	"tranche/allocation"
)

// tidyFor runs Tidy with a retention; by this node's clock no table's is over.
func (o *owner) tidyFor(retention allocation.Duration) string {
	o.t.Helper()
	did, err := o.store.Tidy(o.t.Context(), o.w, retention, never)
	if err != nil {
		o.t.Fatal(err)
	}
	return did
}

// opened dates the opening of the tables that hold ids.
func (o *owner) opened(ago time.Duration) {
	o.t.Helper()
	o.exec("update tranche.id_tables set opened_at = $1 where state <> 'empty'", time.Now().Add(-ago).UnixMicro())
}

// state states what changed, and the coordinator acknowledges it.
func (o *owner) state(c *coordinatorSide) {
	o.t.Helper()
	call, err := o.store.Statements(o.t.Context(), o.w, nil)
	if err != nil {
		o.t.Fatal(err)
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Acknowledged: c.take(call)})
}

// If this failed closed terms would fill the database for ever, or usage would go that an id, a statement or a reservation
// still speaks of.
func TestClosedTermsAreForgottenOnceNothingSpeaksOfThem(t *testing.T) {
	o := newOwner(t)
	o.first -= 2 * 3600 // the term ended about 50 minutes ago
	o.give("a", 10)
	o.give("b", 10)
	o.mustSpend("one", o.key("a", 10))
	if _, err := o.charge(t.Context(), o.store, o.w, allocation.Reserve, "held", o.key("a", 10)); err != nil {
		t.Fatal(err)
	}
	stays := func(why string) {
		t.Helper()
		if did := o.tidyFor(allocation.Minute); strings.Contains(did, "forgot") {
			t.Fatalf("%s: %q", why, did)
		}
	}
	c := newCoordinatorSide(t)
	state := func() { o.state(c) }
	stays("not closed")
	state()
	if _, err := o.store.Close(t.Context(), o.w, o.first+3600, 0); err != nil {
		t.Fatal(err)
	}
	o.mustSpend("two", o.key("a", 10)) // a late change
	before, err := o.store.Load(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Closed: []allocation.ShareRef{{Budget: "a", Term: o.first}, {Budget: "none", Term: 5}}})
	l, err := o.store.Load(t.Context(), before.Changes)
	if err != nil || len(l.Gone) != 1 || l.Gone[0].Budget != "a" || len(l.Terms) != 0 {
		t.Fatalf("loaded %+v, %v", l, err)
	}
	stays("not stated")
	state()
	stays("reserved")
	if err := o.settle(t.Context(), o.store, o.w, "held"); err != nil {
		t.Fatal(err)
	}
	stays("the settle is not stated")
	state()
	o.opened(2 * time.Hour)
	if did := o.tidyFor(5 * allocation.Hour); did != "" {
		t.Fatalf("within the retention: %q", did)
	}
	stays("an id speaks of it")
	o.opened(2 * time.Minute)
	if did := o.tidyFor(30 * allocation.Minute); did != "forgot 1 closed terms" {
		t.Fatalf("tidied %q", did)
	}
	left := o.number("select (select count(*) from tranche.usage) + (select count(*) from tranche.share_entries) + (select count(*) from tranche.shares)")
	if left != 2 { // share and entry of b
		t.Fatalf("%d rows are left", left)
	}
	if n := o.number("select count(*) from tranche.late_changes"); n != 0 {
		t.Fatalf("%d late changes are left", n)
	}
}

// If this failed a grant that comes late would open a term that is closed everywhere.
func TestAClosedTermIsNeverOpenedAgain(t *testing.T) {
	o := newOwner(t)
	o.give("b", 10)
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Closed: []allocation.ShareRef{{Budget: "b", Term: o.first}}})
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{o.grant("b", 9, 99, 99)}})
	if n := o.number("select max(granted) from tranche.share_entries"); n != 10 {
		t.Fatal("a closed term was granted something")
	}
}
