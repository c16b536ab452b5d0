//go:build unix

package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// If this failed nobody would be told why a hot budget gets slower during a dump.
func TestLoadTellsOfTheOldestSnapshot(t *testing.T) {
	o := newOwner(t)
	oldest := func() time.Duration {
		l, err := o.store.Load(t.Context(), noChanges)
		if err != nil {
			t.Fatal(err)
		}
		return l.OldestSnapshot
	}
	conn, err := pgx.Connect(t.Context(), o.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	dump, err := conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dump.Exec(t.Context(), "select count(*) from tranche.owner"); err != nil {
		t.Fatal(err)
	}
	first := oldest()
	if later := oldest(); first <= 0 || later <= first {
		t.Errorf("%s, then %s: an open snapshot is to grow older", first, later)
	}
	if err := dump.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for within := time.Now().Add(time.Minute); oldest() >= first; { // what else is open for a moment is younger
		if time.Now().After(within) {
			t.Fatal("the snapshot has ended, and is still told of")
		}
	}
}
