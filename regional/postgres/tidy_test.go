//go:build unix

package postgres

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
)

func forever(int) allocation.Duration { return allocation.MaxDuration / 1_000_000 }

func never(int) allocation.Duration { return 0 }

// tidy runs Tidy with a retention of an hour.
func (o *owner) tidy(monotonic func(int) allocation.Duration) string {
	o.t.Helper()
	did, err := o.store.Tidy(o.t.Context(), o.w, allocation.Hour, monotonic)
	if err != nil {
		o.t.Fatal(err)
	}
	return did
}

// age makes the tables of ids older, as if the database's clock had gone on.
func (o *owner) age(by time.Duration) {
	o.t.Helper()
	o.exec("update tranche.id_tables set opened_at = opened_at - $1, closed_at = closed_at - $1", by.Microseconds())
}

// If this failed ids would be dropped while they are alive, by one wrong clock; or a table would be opened again while it
// holds ids.
func TestIDTablesGoRound(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("old", o.key("a", 10))
	if did := o.tidy(forever); did != "" {
		t.Fatalf("tidied %q a fresh owner", did)
	}
	for i := range 3 {
		o.age(31 * time.Minute)
		if did := o.tidy(never); did != fmt.Sprintf("switched from id table %d to %d", i, i+1) {
			t.Fatalf("tidied %q", did)
		}
	}
	o.mustSpend("new", o.key("a", 10))
	if o.idCount("old") != 1 || o.idCount("new") != 1 {
		t.Fatal("an id is gone")
	}
	if ok, err := o.spend(o.store, o.w, "old", o.key("a", 10)); ok || err != nil {
		t.Fatal("an id of a closed table was admitted again")
	}
	o.age(31 * time.Minute)
	if did := o.tidy(never); did != "" {
		t.Fatalf("tidied %q by one clock alone", did)
	}
	var asked []int
	did := o.tidy(func(serial int) allocation.Duration { asked = append(asked, serial); return allocation.Day })
	if did != "emptied id table 0; emptied id table 1; switched from id table 3 to 0" || len(asked) != 3 {
		t.Fatalf("tidied %q, asked for %v", did, asked)
	}
	if o.idCount("old") != 0 || o.idCount("new") != 1 {
		t.Fatal("the wrong ids are gone")
	}
	o.age(31 * time.Minute)
	asked = nil
	o.tidy(func(serial int) allocation.Duration { asked = append(asked, serial); return 0 })
	if fmt.Sprint(asked) != "[2 3]" {
		t.Fatalf("asked for %v", asked)
	}
	o.age(31 * time.Minute)
	asked = nil
	o.tidy(func(serial int) allocation.Duration { asked = append(asked, serial); return 0 })
	if fmt.Sprint(asked) != "[4 2 3]" {
		t.Fatalf("asked for %v: a table that was opened again has the serial of its first time", asked)
	}
}

// If this failed a batch that began before a switch could insert its id behind it, into the table that is closed, while
// others insert the same id into the next one.
func TestASwitchWaitsForBatches(t *testing.T) {
	o := newOwner(t)
	b, err := o.begin(o.store, o.w, []string{"id"})
	if err != nil {
		t.Fatal(err)
	}
	w := o.writer(o.store)
	done := make(chan error, 1)
	go func() {
		_, err := o.store.switchTables(t.Context(), w, 0)
		done <- err
	}()
	look := o.conn()
	waitFor(t, "the switch to wait for the batch", func() bool { return o.waiters(look) == 1 || len(done) == 1 })
	if len(done) == 1 {
		t.Fatal("it did not wait")
	}
	b.Abandon()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// If this failed a reservation would be forgotten with its table, and its permits would be held for ever.
func TestATableWithReservationsStays(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	if _, err := o.charge(t.Context(), o.store, o.w, allocation.Reserve, "held", o.key("a", 10)); err != nil {
		t.Fatal(err)
	}
	o.age(31 * time.Minute)
	o.tidy(forever)
	o.age(2 * time.Hour)
	if did := o.tidy(forever); strings.Contains(did, "emptied") || o.idCount("held") != 1 {
		t.Fatalf("tidied %q", did)
	}
	if err := o.settle(t.Context(), o.store, o.w, "held"); err != nil { // over a table that is closed
		t.Fatal(err)
	}
	if got := o.usage(o.key("a", 10)); got.Spent != 1 || got.Reserved != 0 {
		t.Fatalf("settled %+v", got)
	}
	if did := o.tidy(forever); did != "emptied id table 0" {
		t.Fatalf("tidied %q", did)
	}
}

// If this failed a dump that runs long would hold up all batches behind an emptying.
func TestEmptyingGivesWayToAReader(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("old", o.key("a", 10))
	o.age(31 * time.Minute)
	o.tidy(forever)
	o.age(2 * time.Hour)
	short, err := Open(t.Context(), Config{URL: o.url, Region: region, LockTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer short.Shut()
	w := o.writer(short)
	reader, err := o.conn().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Exec(t.Context(), "select count(*) from tranche.admission_ids_0"); err != nil {
		t.Fatal(err)
	}
	_, err = short.Tidy(t.Context(), w, allocation.Hour, forever)
	mustBe(t, err, regional.ErrRaced)
	o.mustSpend("goes-on", o.key("a", 10))
	if err := reader.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if did, err := short.Tidy(t.Context(), w, allocation.Hour, forever); err != nil || !strings.HasPrefix(did, "emptied id table 0") {
		t.Fatal(did, err)
	}
}

// If this failed periods could be closed by a clock that is ahead, or spent after they were closed.
func TestCloseIsBoundedByBothClocks(t *testing.T) {
	o := newOwner(t)
	now := allocation.Instant(o.number("select floor(extract(epoch from clock_timestamp()))::bigint"))
	if got, err := o.store.Close(t.Context(), o.w, now-300, 30); err != nil || got != now-300 {
		t.Fatal(got, err)
	}
	if got, err := o.store.Close(t.Context(), o.w, now-400, 30); err != nil || got != now-300 { // never back
		t.Fatal(got, err)
	}
	got, err := o.store.Close(t.Context(), o.w, now+1_000_000, 30)
	if err != nil || got < now-30 || got > now+30 {
		t.Fatal(got, err)
	}
	// A batch that began before holds it up; afterwards batches see it.
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	b, err := o.begin(o.store, o.w, nil, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	w := o.writer(o.store)
	done := make(chan error, 1)
	go func() {
		_, err := o.store.Close(t.Context(), w, now+1_000_000, 0)
		done <- err
	}()
	look := o.conn()
	waitFor(t, "the closing to wait for the batch", func() bool { return o.waiters(look) == 1 })
	b.Abandon()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	b, err = o.begin(o.store, o.w, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abandon()
	if b.Seen().ClosedBefore < now {
		t.Fatalf("seen %s", b.Seen().ClosedBefore)
	}
}

// If this failed the sweeper would miss reservations, or an operator would not see them.
func TestOpenReservationsAreListed(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	for i := range 5 {
		if _, err := o.charge(t.Context(), o.store, o.w, allocation.Reserve, fmt.Sprint("r", i), o.key("a", 10)); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			o.age(31 * time.Minute)
			o.tidy(never) // so that they stand in two tables
		}
	}
	o.mustSpend("spent", o.key("a", 10))
	if list, err := o.store.Lapsed(t.Context(), 10); err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
	o.exec("update tranche.admission_ids_0 set expires_at = 2 where id in ('r1', 'r2')")
	o.exec("update tranche.admission_ids_1 set expires_at = 1 where id = 'r4'")
	list, err := o.store.Lapsed(t.Context(), 2)
	if err != nil || len(list) != 2 || list[0] != id("r4") {
		t.Fatal(list, err)
	}
	var got []string
	after := allocation.IDKey{}
	for {
		page, err := o.store.Reservations(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, a := range page {
			got = append(got, a.ID)
			if a.Lines[0].Held != 1 || a.State != allocation.StateReserved {
				t.Errorf("%+v", a)
			}
		}
		after = page[len(page)-1].IDKey
	}
	if fmt.Sprint(got) != "[r0 r1 r2 r3 r4]" {
		t.Fatal(got)
	}
}

// If this failed two nodes would do the same work, or nobody after a node died.
func TestTurns(t *testing.T) {
	o := newOwner(t)
	turn := func(node string, lasts time.Duration) bool {
		t.Helper()
		mine, err := o.store.Turn(t.Context(), node, lasts)
		if err != nil {
			t.Fatal(err)
		}
		return mine
	}
	if !turn("one", time.Hour) || turn("two", time.Hour) || !turn("one", 0) || !turn("two", time.Hour) || turn("one", time.Hour) {
		t.Fatal("the turn is not passed on")
	}
}

// If this failed a page of an account would mix two states, or lose a budget between two pages.
func TestExportPages(t *testing.T) {
	o := newOwner(t)
	for _, n := range []string{"b", "a", "C"} {
		o.give(n, 10)
		o.mustSpend(n, o.key(n, 10))
	}
	var got []string
	for after := ""; ; {
		page, err := o.store.Export(t.Context(), after, 2)
		if err != nil || len(page.Shares) != len(page.Usage) || page.Region != region || page.Incarnation != "life-1" || page.Now == 0 {
			t.Fatal(page, err)
		}
		for _, s := range page.Shares {
			got, after = append(got, s.Budget), s.Budget
		}
		if !page.More {
			break
		}
	}
	if fmt.Sprint(got) != "[C a b]" { // bytewise
		t.Fatal(got)
	}
	if _, err := o.store.NewWriter(t.Context(), "x"); errors.Is(err, regional.ErrRaced) {
		t.Fatal(err)
	}
}
