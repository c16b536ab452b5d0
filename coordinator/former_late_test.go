package coordinator_test

import (
	"reflect"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// replacedEast is cutEast, where us-east spent 20 more of the year while it was cut off, and was then replaced: `away` is the
// database that was there before. It is in both of the year's and the minute budget's open terms.
func replacedEast(t *testing.T) (w *world, east, west, away *fakeRegion, r *replica) {
	t.Helper()
	w, east, west, r = cutEast(t)
	east.spend("acme/year", 20)
	before := *east
	east.lost = true
	for range 2 {
		east.sync(r)
		w.persist(r)
	}
	if east.incarnation == before.incarnation {
		t.Fatalf("us-east is still incarnation %s", east.incarnation)
	}
	w.pass(10*time.Second, east, west)
	return w, east, west, &before, r
}

// formerLine is the line of one incarnation of us-east.
func (w *world) formerLine(r *replica, incarnation string) coordinator.StrandedLine {
	w.t.Helper()
	for _, l := range get[coordinator.StrandedReport](w, r, "/v1/stranded?budget=acme/year").Lines {
		if l.Incarnation == incarnation {
			return l
		}
	}
	w.t.Fatalf("nothing of acme/year is stranded with %s", incarnation)
	return coordinator.StrandedLine{}
}

// ledgerOf is the running ledger of the year.
func (w *world) ledgerOf(r *replica) (found allocation.Ledger) {
	w.t.Helper()
	for _, l := range r.Ledgers() {
		if l.Budget == "acme/year" {
			return l
		}
	}
	w.t.Fatal("acme/year has no ledger")
	return found
}

// A database that was replaced comes back while its term is open. It is heard once: dropped, the report would show for good
// what is known to be spent as stranded. No permit may move for it, and older news may not take it back.
func TestFormerIncarnationIsHeardWhileTheTermIsOpen(t *testing.T) {
	w, east, west, away, r := replacedEast(t)
	if l := w.formerLine(r, away.incarnation); l.Stranded != 50 || l.Spent != 10 || l.Cause != coordinator.CauseLostHistory {
		t.Fatalf("%+v", l)
	}
	before := w.ledgerOf(r)
	says := away.call()
	for i := range says.Statements {
		for k := range says.Statements[i].Shares {
			st := &says.Statements[i].Shares[k]
			// It says to have given back what it has not spent, which nobody may be given for it.
			st.Returned = []allocation.ReturnedStatement{{From: st.Term, Until: st.Term + 60, Class: allocation.General, Returned: 5}}
		}
	}
	for range 2 {
		away.comesBack(r, says)
		w.settle(r)
	}
	older := away.call()
	for i := range older.Statements {
		for k := range older.Statements[i].Shares {
			for u := range older.Statements[i].Shares[k].Usage {
				older.Statements[i].Shares[k].Usage[u].Spent = 1
			}
		}
	}
	away.comesBack(r, older)
	other := w.start()
	w.pass(10*time.Second, east, west)
	for name, r := range map[string]*replica{"that heard it": r, "started later": other} {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := w.formerLine(r, away.incarnation); l.Stranded != 30 || l.Spent != 30 || l.Granted != 60 || l.Returned != 0 {
			t.Errorf("the replica %s says %+v", name, l.Remainder)
		}
	}
	if after := w.ledgerOf(r); !reflect.DeepEqual(after, before) {
		t.Errorf("the ledger was %+v, and is %+v", before, after)
	}
	w.conserved()
	for _, sh := range east.shares {
		if sh.Budget == "acme/year" && len(sh.Entries) > 0 && sh.Entries[0].Granted > 0 {
			t.Errorf("the new incarnation was granted %+v", sh.Entries)
		}
	}
}

// The term closes long after, led by a replica that heard none of it: the record counts what was said, beside what is never
// recovered, and the history says once that it came late.
func TestRecordOfAFormerIncarnationThatWasHeard(t *testing.T) {
	w, east, west, away, r := replacedEast(t)
	minute := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	for i, until := 0, minute.Until.Time(); i < 2; i++ { // a permit of a later minute of the same term
		if n := away.spend("acme/requests", 7); n != 7 || !w.clock.now().Before(until) {
			t.Fatalf("%d, at %s of a term until %s", n, w.clock.now(), until)
		}
		w.clock.move(time.Minute)
	}
	for range 2 {
		away.comesBack(r, away.call())
	}
	w.pass(24*time.Hour, east, west)
	leads := w.start()
	w.replicas[0].stop()
	w.replicas = w.replicas[1:]
	east.closed, west.closed = minute.Until, minute.Until
	for range 3 {
		east.untilQuiet(leads)
		west.untilQuiet(leads)
		w.persist(leads)
	}
	if w.closeTerms(leads) == 0 {
		t.Fatal("nothing was closed")
	}
	before, at := w.record(leads, minute.Term, away.incarnation)
	if at.Spent != 14 || at.Late != nil || at.Unrecovered != at.Held-14 {
		t.Errorf("%+v, late %+v", at, at.Late)
	}
	w.stillClosed(leads, before)
	history := func() (late []int64) {
		for _, e := range get[coordinator.StrandedReport](w, leads, "/v1/stranded?history=true&budget=acme/requests").History {
			if e.Incarnation == away.incarnation {
				late = append(late, e.LateSpent)
			}
		}
		return late
	}
	if late := history(); !reflect.DeepEqual(late, []int64{14}) {
		t.Errorf("the history says that %v were spent late", late)
	}
	// What it says after that goes into the record, and into the history, once.
	for _, u := range away.used {
		for key, used := range u {
			if key.Budget == "acme/requests" && used.Spent == 7 {
				used.Spent += 5
				u[key] = used
			}
		}
	}
	for range 2 {
		away.comesBack(leads, away.call())
	}
	if _, at = w.record(leads, minute.Term, away.incarnation); at.Late == nil || at.Late.Spent != 24 || at.Spent != 14 {
		t.Errorf("%+v, late %+v", at, at.Late)
	}
	if late := history(); !reflect.DeepEqual(late, []int64{24}) {
		t.Errorf("the history says that %v were spent late", late)
	}
	w.stillClosed(leads, before)
}
