package coordinator_test

import (
	"fmt"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/coordinator"
)

// A limit may be lost twice: etcd goes back to before it was lowered, and the region that spent under it loses its database
// before it states. A raise within that period then must not give out what was spent: no ledger knows of it. If this fails, a
// budget that is declared again after a disaster is spent twice.
func TestARaiseAfterADoubleLossGivesNothingOut(t *testing.T) {
	const path = "/v1/budgets/acme/requests"
	for name, k := range map[string]struct {
		known string // the limit that etcd has when it is put back; empty: it has no declaration
		lower func(*world, *replica)
	}{
		"lowered": {"10", func(w *world, r *replica) {
			w.must(r, 200, "PUT", path, budgetJSON(acmeBudget, "10"), "If-Match", etagOf(w, r))
		}},
		"deleted": {"", func(w *world, r *replica) { w.must(r, 200, "DELETE", path, nil, "If-Match", etagOf(w, r)) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			r := w.replicas[0]
			east, west := w.addRegion("us-east"), w.addRegion("eu-west")
			east.join(r)
			west.join(r)
			if k.known != "" {
				w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, k.known))
			}
			w.round(r, east, west)
			before := w.backup()
			declareLimit(w, r, "100")
			w.round(r, east, west)
			spent := east.spend(acmeBudget, 50) + west.spend(acmeBudget, 2)
			w.round(r, east, west)
			k.lower(w, r)
			w.round(r, west) // east is cut off, and has spent 50
			loseBoth(w, r, before, east, west)

			if warned := fmt.Sprint(declareLimit(w, r, "100")["warnings"]); !strings.Contains(warned, "--limits-known") {
				t.Errorf("the raise says %s", warned)
			}
			w.round(r, east, west)
			if spent += east.spend(acmeBudget, 1000) + west.spend(acmeBudget, 1000); spent < 52 || spent > 100 {
				t.Errorf("%d of 100 are spent", spent)
			}
			if line := strandedWith(w, r, "us-east"); line.Cause != coordinator.CauseLostHistory || line.Granted < 90 || !strings.Contains(line.Note, "nobody knows") {
				t.Errorf("it is reported as %+v", line)
			}
			w.conserved()
		})
	}
}

// What an operator knows frees raises that come later, and nothing that is stranded already. If this fails, a deployment that
// lost a region and its etcd together cannot be helped for 90 days.
func TestLimitsThatAreKnownFreeRaises(t *testing.T) {
	const path = "/v1/history/limits-known"
	act := coordinator.KnowLimitsRequest{Reason: "the files say so", By: "kim"}
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 409, "POST", path, act) // nobody is lost
	before := w.backup()
	w.move(r, west, east, 10)
	w.restore(before)
	west.sync(r)
	w.must(r, 409, "POST", path, act) // nobody knows yet who is
	loseBoth(w, r, before, east, west)

	line := strandedWith(w, r, "us-east")
	w.must(r, 409, "POST", "/v1/compensations", coordinator.CompensateRequest{Budget: acmeBudget, Region: "us-east", Incarnation: line.Incarnation, Units: 10, Reason: "more", By: "kim"})
	declareLimit(w, r, "120")
	w.round(r, east, west)
	held := w.held(east, west)
	w.must(r, 422, "POST", path, coordinator.KnowLimitsRequest{By: "kim"})
	if dry := w.must(r, 200, "POST", path+"?dry_run=true", coordinator.KnowLimitsRequest{}); len(dry["lost"].([]any)) != 1 || w.standing().Lost[0].LimitsKnown {
		t.Errorf("a dry run says %v", dry)
	}
	w.must(r, 200, "POST", path, act)
	w.must(r, 409, "POST", path, act) // once is enough
	w.round(r, east, west)
	if now := w.held(east, west); now != held {
		t.Errorf("they held %d, and without another raise %d", held, now)
	}
	if warned := fmt.Sprint(declareLimit(w, r, "150")["warnings"]); strings.Contains(warned, "--limits-known") {
		t.Errorf("the raise says %s", warned)
	}
	w.round(r, east, west)
	if now := w.held(east, west); now != held+30 {
		t.Errorf("they held %d, and after a raise by 30 %d", held, now)
	}
	if n := len(w.acts(r, "history.limits-known")); n != 1 {
		t.Errorf("%d lines in the audit", n)
	}
	if line := strandedWith(w, r, "us-east"); line.Note != "" {
		t.Errorf("it still says %q", line.Note)
	}
	w.conserved()
}

// loseBoth puts etcd back and lets a region's database lose commits before it states; the freeze is over then.
func loseBoth(w *world, r *replica, before []coordinator.Item, lost, other *fakeRegion) {
	w.t.Helper()
	if w.standing().Freeze == nil {
		w.restore(before)
		other.sync(r)
	}
	lost.marks[0] = allocation.Mark{Writer: lost.marks[0].Writer, Count: 0, Value: "restored"}
	lost.lost = true
	w.round(r, lost, other)
	if now := w.standing(); now.Freeze != nil || len(now.Lost) != 1 {
		w.t.Fatalf("the standing is %+v", now)
	}
}

func etagOf(w *world, r *replica) string {
	w.t.Helper()
	return w.request(r, "GET", "/v1/budgets/"+acmeBudget, nil).Header().Get("ETag")
}

// declareLimit declares the budget with a limit, whether it is there or not.
func declareLimit(w *world, r *replica, limit string) map[string]any {
	w.t.Helper()
	if etag := etagOf(w, r); etag != "" {
		return w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, limit), "If-Match", etag)
	}
	return w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, limit))
}

func strandedWith(w *world, r *replica, region string) coordinator.StrandedLine {
	w.t.Helper()
	for _, l := range get[coordinator.StrandedReport](w, r, "/v1/stranded").Lines {
		if l.Region == region && l.Budget == acmeBudget {
			return l
		}
	}
	w.t.Fatalf("nothing of %s is stranded", region)
	return coordinator.StrandedLine{}
}
