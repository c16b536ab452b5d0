package coordinator_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/coordinator/archive"
)

// closedWithoutEast is a term whose record was made without the last word of us-east: its database was replaced by an empty
// one, and `away`, the one that was there before and spent 12, comes back later.
func closedWithoutEast(t *testing.T) (w *world, east, away *fakeRegion, first coordinator.TermShares) {
	t.Helper()
	w, east, west, first := overTerm(t, 1)
	r, before := w.replicas[0], *east
	east.lost = true
	for range 2 {
		east.sync(r)
		west.sync(r)
		w.persist(r)
	}
	if east.incarnation == before.incarnation {
		t.Fatalf("us-east is still incarnation %s", east.incarnation)
	}
	east.closed = first.Until
	for range 2 {
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.persist(r)
	}
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	return w, east, &before, first
}

// record is that of a term of acme/requests, and what it says of an incarnation.
func (w *world) record(r *replica, term allocation.Instant, incarnation string) (coordinator.Closing, coordinator.ClosedRegion) {
	w.t.Helper()
	w.settle(r)
	for _, c := range get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/requests").Closings {
		for _, g := range c.Regions {
			if c.Term == term && g.Incarnation == incarnation {
				return c, g
			}
		}
	}
	w.t.Fatalf("there is no record of %s with %s", term, incarnation)
	return coordinator.Closing{}, coordinator.ClosedRegion{}
}

// stillClosed says that nothing opened a term again, and that nothing but Late differs from the record of before.
func (w *world) stillClosed(r *replica, before coordinator.Closing) {
	w.t.Helper()
	for _, l := range r.Ledgers() {
		if l.Budget == before.Budget && l.Periods.Start() <= before.Term {
			w.t.Errorf("the term of %s is open again", l.Periods.Start())
		}
	}
	for _, c := range get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/requests").Closings {
		if c.Term != before.Term {
			continue
		}
		for i := range c.Regions {
			c.Regions[i].Late = nil
		}
		if !reflect.DeepEqual(c, before) {
			w.t.Errorf("the record was %+v, and is %+v", before, c)
		}
	}
	w.conserved()
}

// comesBack lets a former database call, and must be refused.
func (f *fakeRegion) comesBack(r *replica, call allocation.SyncCall) {
	f.w.t.Helper()
	a, err := r.Sync(f.w.t.Context(), call)
	if err != nil || a.Refusal != string(allocation.HistoryLost) || len(a.Shares)+len(a.Acknowledged) > 0 {
		f.w.t.Errorf("the former database is answered %+v, %v", a, err)
	}
}

// A database comes back days after its terms were closed without it. If what it spent is not entered, the account of the
// term is wrong for good, and nobody can know it; if anything else changes, what was accounted for is not.
func TestLateStatementOfAFormerIncarnation(t *testing.T) {
	w, east, away, first := closedWithoutEast(t)
	r := w.replicas[0]
	before, at := w.record(r, first.Term, away.incarnation)
	if at.Spent != 0 || at.Late != nil || at.Unrecovered != at.Held {
		t.Fatalf("%+v", at)
	}
	w.clock.move(3 * 24 * time.Hour)
	w.settle(r)
	w.persist(r)
	stale := away.call()
	for i := range stale.Statements {
		stale.Statements[i].Shares = nil
	}
	away.comesBack(r, stale)
	if _, at := w.record(r, first.Term, away.incarnation); at.Late != nil {
		t.Errorf("a call that says nothing is entered: %+v", at.Late)
	}
	said := w.clock.now()
	away.comesBack(r, away.call())
	_, at = w.record(r, first.Term, away.incarnation)
	if at.Late == nil || at.Late.Spent != 12 || !at.Late.At.Equal(said) {
		t.Fatalf("%+v, late %+v", at, at.Late)
	}
	w.stillClosed(r, before)
	// Said again, and by a call of before: it says nothing new.
	w.clock.move(time.Hour)
	again := away.call()
	away.comesBack(r, again)
	for i := range again.Statements {
		for k := range again.Statements[i].Shares {
			for u := range again.Statements[i].Shares[k].Usage {
				again.Statements[i].Shares[k].Usage[u].Spent = 1
			}
		}
	}
	away.comesBack(r, again)
	if _, at := w.record(r, first.Term, away.incarnation); !at.Late.At.Equal(said) || at.Late.Spent != 12 {
		t.Errorf("%+v", at.Late)
	}
	w.stillClosed(r, before)
	if a := east.sync(r); a.Refusal != "" {
		t.Errorf("the present database is refused: %s", a.Detail)
	}
}

// By then the record may have left etcd. It must be found in the archive, and still be there after a restart.
func TestLateStatementForTheArchive(t *testing.T) {
	w, _, away, first := closedWithoutEast(t)
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	restart := func() *replica {
		t.Helper()
		f, err := archive.Open(name, func(*os.File) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		w.replicas[0].stop()
		w.replicas = w.replicas[1:]
		w.spoil = func(c *coordinator.Config) { c.ClosingArchive = f }
		return w.start()
	}
	r := restart()
	before, _ := w.record(r, first.Term, away.incarnation)
	w.clock.move(3 * 24 * time.Hour)
	w.settle(r)
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settle(r)
	if n := len(inEtcd(get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests"))); n != 0 {
		t.Fatalf("etcd keeps %d records", n)
	}
	// A receipt of then is explained with the record, where it is now; one of a term that was never closed is not.
	last := allocation.Period{Start: first.Until - 60, End: first.Until}
	if now := w.explainOf(r, away.refusal(allocation.CeilingReached, last, 1)).Now; now.Period != coordinator.PeriodClosed || now.Closing == nil || now.Closing.Term != first.Term || now.Closing.Key() != before.Key() {
		t.Errorf("explained by %+v", now)
	}
	long := allocation.Period{Start: first.Term - 86400*365, End: first.Term - 86400*365 + 60}
	if now := w.explainOf(r, away.refusal(allocation.CeilingReached, long, 1)).Now; now.Period != coordinator.PeriodForgotten || now.Closing != nil {
		t.Errorf("of a year before: %+v", now)
	}
	for range 2 {
		away.comesBack(r, away.call())
	}
	for range 2 {
		if _, at := w.record(r, first.Term, away.incarnation); at.Late == nil || at.Late.Spent != 12 {
			t.Errorf("%+v, late %+v", at, at.Late)
		}
		w.stillClosed(r, before)
		r = restart()
	}
}

// A reservation may outlive its term: it is settled when the record is made already.
func TestLateStatementOfAReservation(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r, ref := w.replicas[0], allocation.ShareRef{Budget: "acme/requests", Term: first.Term}
	for key, u := range east.used[ref] {
		u.Reserved = 5
		east.used[ref][key] = u
	}
	for range 2 {
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.persist(r)
	}
	share, used := east.shares[ref], east.used[ref]
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	before, at := w.record(r, first.Term, east.incarnation)
	if at.Spent != 12 || at.Reserved != 5 || at.Late != nil {
		t.Fatalf("%+v", at)
	}
	for key, u := range used {
		u.Spent, u.Reserved = u.Spent+3, 0
		used[key] = u
	}
	east.shares[ref], east.used[ref], east.changed[ref] = share, used, 0
	w.clock.move(time.Hour)
	east.untilQuiet(r)
	w.persist(r)
	_, at = w.record(r, first.Term, east.incarnation)
	if at.Late == nil || at.Late.Spent != 15 || at.Late.Reserved != 0 || at.Spent != 12 || at.Reserved != 5 {
		t.Errorf("%+v, late %+v", at, at.Late)
	}
	w.stillClosed(r, before)
}
