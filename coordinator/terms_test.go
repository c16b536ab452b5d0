package coordinator_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// A deployment of several replicas has one id and one first token, however many start at once.
func TestReplicasMakeOneDeployment(t *testing.T) {
	w := newWorld(t, 1)
	var tokens sync.Map
	for range 3 {
		r := w.start()
		tokens.Store(get[coordinator.Status](w, r, "/v1/status").Deployment, true)
	}
	n := 0
	tokens.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d deployments", n)
	}
}

// Two leaders at once open each term once; terms follow each other without a gap, and reach the horizon.
func TestTermsAreOpenedOnce(t *testing.T) {
	w, east, _ := two(t, 2)
	stop := w.watchLedgers(100)
	for range 6 {
		w.clock.move(47 * time.Minute)
		east.sync(w.replicas[0])
		east.sync(w.replicas[1])
		var wait sync.WaitGroup
		for _, r := range w.replicas {
			wait.Go(func() {
				for range 3 {
					if _, err := r.OpenTerms(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
	}
	stop()
	shares := get[coordinator.SharesAnswer](w, w.replicas[0], "/v1/shares/acme/requests")
	now := allocation.At(w.clock.now())
	for i, term := range shares.Terms {
		if i > 0 && term.Term != shares.Terms[i-1].Until {
			t.Errorf("a term begins at %s, the one before it ended at %s", term.Term, shares.Terms[i-1].Until)
		}
	}
	last := shares.Terms[len(shares.Terms)-1].Until
	if last < now+6*3600 || last >= now+6*3600+5400 || shares.OpenedThrough != last {
		t.Errorf("terms reach %s, opened through %s, now %s", last, shares.OpenedThrough, now)
	}
}

// After the coordinator was away for longer than the terms reached, it goes on at the running period, and never opens
// what is over.
func TestOpeningAfterAnAbsence(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	w.clock.move(48 * time.Hour)
	if n, _ := r.OpenTerms(t.Context()); n == 0 {
		t.Fatal("nothing was opened")
	}
	east.sync(r)
	w.settle(r)
	shares := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests")
	first := shares.Terms[0]
	if now := allocation.At(w.clock.now()); !first.Running || first.Term != now-now%60 {
		t.Errorf("the first opened term begins at %s", first.Term)
	}
}

// A ledger is closed when both regions have closed its periods, and then never comes back.
func TestClosing(t *testing.T) {
	w, east, west := two(t, 2)
	r := w.replicas[0]
	east.spend("acme/requests", 12)
	east.untilQuiet(r)
	first := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	w.clock.move(2 * time.Hour)
	closeNow := func() int {
		t.Helper()
		n, err := r.CloseTerms(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	east.closed = first.Until
	late := east.call() // states the share that is about to be closed
	east.sync(r)
	if closeNow() != 0 {
		t.Fatal("closed before every region stated that it is over")
	}
	west.closed = first.Until
	west.sync(r)
	if closeNow() != 0 {
		t.Fatal("closed by statements that nobody has written down")
	}
	w.persist(r)
	if closeNow() != 1 {
		t.Fatal("not closed")
	}
	w.settle(r)
	page := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests")
	if len(page.Closings) != 1 || page.Closings[0].Closing.Term != first.Term || page.Closings[0].Closing.Regions[1].Spent != 12 {
		t.Errorf("%+v", page.Closings)
	}
	for _, l := range page.Ledgers {
		if strings.Contains(string(l.Ledger), `"first":"`+first.Term.String()) {
			t.Error("the closed ledger is still there")
		}
	}
	// Asked for again, on a replica that never saw it: the owner may forget it, and nothing comes back.
	east.spend("acme/requests", 1)
	again := east.call()
	again.Statements = late.Statements
	for i := range again.Statements {
		again.Statements[i].Number += 100
		again.Statements[i].Base = 0
	}
	again.Statements = append(again.Statements, allocation.Statement{
		Shard: allocation.ShardOf("acme/requests"), Number: 900, Shares: []allocation.ShareStatement{{Budget: "acme/requests", Term: first.Term, Generation: first.Generation}},
	})
	for _, r := range w.replicas {
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := r.Sync(t.Context(), again)
		if err != nil || a.Refusal != "" || len(a.Closed) == 0 || a.Closed[0].Term != first.Term {
			t.Errorf("%v %v %s", a.Closed, err, a.Detail)
		}
		w.settle(r)
		for _, l := range r.Ledgers() {
			if l.Periods.Start() <= first.Term {
				t.Errorf("the term of %s is open again", l.Periods.Start())
			}
		}
	}
	w.clock.move(25 * time.Hour)
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if page := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests"); len(page.Closings) != 0 {
		t.Error("the closing is kept for ever")
	}
}

// A coordinator a month ahead would open a month of terms too far, and never serve the present.
func TestWrongClockDoesNoBackgroundWork(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	before := len(r.Ledgers())
	w.clock.move(30 * 24 * time.Hour)
	for _, f := range []*fakeRegion{east, west} {
		call := f.call()
		call.Clock -= (30 * 24 * time.Hour).Microseconds()
		a, err := r.Sync(t.Context(), call)
		if err != nil {
			t.Fatal(err)
		}
		f.apply(a)
	}
	w.settle(r)
	if got := len(r.Ledgers()); got != before {
		t.Errorf("%d ledgers became %d", before, got)
	}
	status := get[coordinator.Status](w, r, "/v1/status")
	found := false
	for _, p := range status.Problems {
		found = found || strings.Contains(p.What, "clock")
	}
	if !found {
		t.Errorf("status does not say it: %+v", status.Problems)
	}
	east.sync(r) // its clock agrees again
	west.sync(r)
	w.settle(r)
	if got := len(r.Ledgers()); got == before {
		t.Error("nothing is opened after the clocks agree")
	}
}

// A region that joins later, or drains and resumes, gets and gives its part in all opened terms.
func TestMembersChange(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east, west := w.addRegion("us-east"), w.addRegion("eu-west")
	east.join(r)
	a := w.must(r, 201, "POST", "/v1/budgets", budgetJSON("acme/requests", "100"))
	if !strings.Contains(a["warnings"].([]any)[0].(string), "eu-west has not called yet") {
		t.Errorf("%v", a["warnings"])
	}
	east.untilQuiet(r)
	west.join(r)
	west.untilQuiet(r)
	if n := west.spend("acme/requests", 1000); n != 40 {
		t.Errorf("west spends %d after it joined", n)
	}
	w.must(r, 200, "POST", "/v1/regions/us-east/drain", nil)
	w.settle(r)
	for range 3 {
		east.untilQuiet(r)
		west.untilQuiet(r)
	}
	if !east.last.Draining || east.spend("acme/requests", 1) != 0 || west.spend("acme/requests", 1000) != 60 {
		t.Error("the drained region keeps permits, or the other does not get them")
	}
	w.must(r, 200, "POST", "/v1/regions/us-east/resume", nil)
	w.settle(r)
	w.clock.move(time.Minute)
	for range 3 {
		east.untilQuiet(r)
		west.untilQuiet(r)
	}
	if n := east.spend("acme/requests", 1000); n != 60 {
		t.Errorf("east spends %d of the next period after it resumed", n)
	}
	w.conserved()
}
