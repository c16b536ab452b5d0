//go:build unix

package postgres

import (
	"testing"

	"tranche/allocation"
)

// baseOf is the closed_before of the acknowledged statement of a budget's shard.
func (o *owner) baseOf(budget string) int64 {
	o.t.Helper()
	return o.number(`select t.closed_before from tranche.shards as d join tranche.statements as t on t.shard = d.shard and t.number = d.acked
		where d.shard = $1`, allocation.ShardOf(budget))
}

// If this failed a region with one quiet budget would look, at each call, through all that ever happened in the others; or,
// worse, renewing its base would lose what was being written meanwhile.
func TestOldBasesAreRenewed(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.give("b", 10)
	o.mustSpend("one", o.key("a", 10))
	c := newCoordinatorSide(t)
	o.state(c)
	before := o.baseOf("a")
	if _, err := o.store.Close(t.Context(), o.w, o.first+60, 0); err != nil {
		t.Fatal(err)
	}
	closed := o.number("select closed_before from tranche.owner")
	if closed < before+renewAfter {
		t.Fatalf("closed_before rose from %d to %d only", before, closed)
	}

	// Someone spends while the bases are renewed, and commits afterwards.
	conn := o.conn()
	meanwhile, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const spend = "update tranche.usage set spent = spent + 1, changed = pg_current_xact_id() where budget = 'a'"
	if tag, err := meanwhile.Exec(t.Context(), spend); err != nil || tag.RowsAffected() != 1 {
		t.Fatal(tag, err)
	}
	o.exec("select pg_current_xact_id()") // a later one that is over
	call, err := o.store.Statements(t.Context(), o.w, nil)
	if err != nil || len(call.Statements) != 0 {
		t.Fatalf("stated %+v, %v; nothing is committed", call.Statements, err)
	}
	for _, budget := range []string{"a", "b"} {
		if got := o.baseOf(budget); got != closed {
			t.Errorf("the base of %s is of %d still; closed_before is %d", budget, got, closed)
		}
	}
	if err := meanwhile.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	o.state(c)
	c.mustAgree(o)
}
