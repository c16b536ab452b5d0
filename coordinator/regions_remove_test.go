package coordinator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// heldAhead is what the incarnations of a region hold in each period from now on, of all budgets, beside what they spent.
func heldAhead(w *world, r *replica, region string, spent int64) (most int64) {
	w.t.Helper()
	now := allocation.At(w.clock.now())
	for _, l := range r.Ledgers() {
		first, running := l.Periods.Find(now)
		if !running && l.Periods.Start() <= now {
			continue
		}
		for i := first; i < l.Periods.Len(); i++ {
			for _, a := range l.EntryAt(i).Allocations {
				if held := a.Held(); a.Region == region && (i > first || !running) {
					most = max(most, held)
				} else if a.Region == region {
					most = max(most, held-spent)
				}
			}
		}
	}
	return most
}

const onlyEast = `{"budget":"acme/requests","unit":"requests","limit":100,"window":{"every":"1m"},"match":{"tenant":"acme"},"allocation":{"policy":"fixed","weights":{"us-east":3}}}`

// remover is the answer of a removal, or of its preview.
func remover(w *world, status int, query string) map[string]any {
	w.t.Helper()
	return w.must(w.replicas[0], status, "DELETE", "/v1/regions/eu-west"+query, coordinator.RemoveRequest{Reason: "the site closes", By: "Ada"})
}

// A region leaves with nothing, and comes back under its name with nothing. If this fails, permits leave with it; or a
// database from before takes the whole deployment down, since nobody seems to have heard of it.
func TestRemoveAndRegisterAgain(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	west.spend(acmeBudget, 5)
	west.untilQuiet(r)
	if a := remover(w, 200, "?dry_run=true"); !strings.Contains(fmt.Sprint(a["blocked"]), "drain it first") || !strings.Contains(fmt.Sprint(a["blocked"]), "1 budgets name it") {
		t.Errorf("%v", a["blocked"])
	}
	if a := remover(w, 409, ""); !strings.Contains(a["fix"].(string), "tranche regions remove eu-west") {
		t.Errorf("%v", a)
	}
	// What a drain does is said before, and is what it does.
	preview := w.must(r, 200, "POST", "/v1/regions/eu-west/drain?dry_run=true", nil)
	if total := fmt.Sprint(preview["total"]); !strings.Contains(total, "may_still_spend:35") || !strings.Contains(total, "largest_spend:100") || len(preview["budgets"].([]any)) != 1 {
		t.Errorf("%v", preview)
	}
	if regionNamed(w, r, "eu-west").Draining {
		t.Fatal("a preview drains")
	}
	if held := heldAhead(w, r, "eu-west", 0); held != 40 {
		t.Errorf("before: %d", held)
	}
	w.must(r, 200, "POST", "/v1/regions/eu-west/drain", nil)
	w.settle(r)
	if a := remover(w, 200, "?dry_run=true"); !strings.Contains(fmt.Sprint(a["blocked"]), "may still spend 35 of acme/requests now") {
		t.Errorf("%v", a["blocked"])
	}
	w.round(r, west, east)
	w.round(r, west, east)
	if held := heldAhead(w, r, "eu-west", 5); held != 0 {
		t.Errorf("drained, and holds %d of some opened period", held)
	}
	if n := west.spend(acmeBudget, 100); n != 0 {
		t.Errorf("drained, it spends %d", n)
	}
	// Resumed, it has all of it back.
	if preview := w.must(r, 200, "POST", "/v1/regions/eu-west/resume?dry_run=true", nil); !strings.Contains(fmt.Sprint(preview["budgets"]), "target:40") {
		t.Errorf("%v", preview)
	}
	w.must(r, 200, "POST", "/v1/regions/eu-west/resume", nil)
	w.settle(r)
	w.round(r, east, west)
	w.round(r, east, west)
	if held := heldAhead(w, r, "eu-west", 0); held != 40 {
		t.Errorf("resumed, and holds %d", held)
	}
	w.must(r, 200, "POST", "/v1/regions/eu-west/drain", nil)
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", onlyEast, "If-Match", `"1"`)
	w.settle(r)
	w.round(r, west, east)
	w.round(r, west, east)
	remover(w, 200, "")
	w.settle(r)
	list := get[coordinator.RegionsList](w, r, "/v1/regions")
	if len(list.Regions) != 1 || len(list.Removed) != 1 || list.Removed[0].By != "Ada" || r.Authenticate(west.token) != "" {
		t.Errorf("%+v, token %q", list, r.Authenticate(west.token))
	}
	if _, err := r.Sync(t.Context(), west.call()); err == nil {
		t.Error("a removed region is heard")
	}
	east.untilQuiet(r)
	if slices.Contains(east.regions, "eu-west") {
		t.Errorf("the owner remembers %v", east.regions)
	}
	again := w.must(r, 201, "POST", "/v1/regions", map[string]string{"region": "eu-west"})
	west.token = again["token"].(string)
	before := west.incarnation
	for range 4 {
		west.sync(r) // its old database, with all that it remembers
		w.settle(r)
	}
	if w.standing().Freeze != nil || west.incarnation == before || west.incarnation == "" || west.spend(acmeBudget, 100) != 0 {
		t.Errorf("freeze %+v, incarnation %s, before %s, %d shares", w.standing().Freeze, west.incarnation, before, len(west.shares))
	}
	w.conserved()
}

// A freeze that waits for a region that was removed never ends. An owner may still name it: it missed the last answers.
func TestFreezeDoesNotWaitForARemovedRegion(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 200, "POST", "/v1/regions/eu-west/drain", nil)
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", onlyEast, "If-Match", `"1"`)
	w.settle(r)
	w.round(r, west, east)
	w.round(r, west, east)
	remover(w, 200, "")
	w.settle(r)
	call := east.call()
	call.Config = 1000
	if _, err := r.Sync(t.Context(), call); err != nil || w.standing().Freeze == nil {
		t.Fatalf("nothing is frozen: %v", err)
	}
	for range 4 {
		east.regions = []string{"eu-west", "us-east"}
		east.sync(r)
	}
	if s := w.standing(); s.Freeze != nil || slices.Contains(s.Named, "eu-west") {
		t.Errorf("%+v", s)
	}
}

// A region that is gone for good is removed when what it holds is written off. That stays out: nobody can say whether it
// was spent.
func TestRemoveWhatIsWrittenOff(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", ofYear("slow", split))
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.settle(r)
	w.must(r, 200, "DELETE", "/v1/budgets/acme/requests", nil, "If-Match", `"1"`)
	w.settle(r)
	w.round(r, east, west)
	w.round(r, east, west)
	w.persist(r)
	w.clock.move(2 * time.Minute)
	east.untilQuiet(r)
	w.untilReady(r)
	w.must(r, 200, "POST", "/v1/regions/eu-west/drain", nil)
	w.must(r, 200, "PUT", "/v1/budgets/slow", strings.Replace(ofYear("slow", split), `,"eu-west":2`, "", 1), "If-Match", `"1"`)
	w.settle(r)
	if a := remover(w, 409, ""); !strings.Contains(a["detail"].(string), "40 of slow are stranded there now") {
		t.Errorf("%v", a)
	}
	w.must(r, 201, "POST", "/v1/writeoffs", coordinator.WriteOffRequest{Budget: "slow", Region: "eu-west", Reason: "the site burnt down", By: "Ada"})
	if a := remover(w, 200, "?dry_run=true"); a["blocked"] != nil || fmt.Sprint(a["written_off"]) != "map[requests:40]" {
		t.Errorf("%v", a)
	}
	remover(w, 200, "")
	w.settle(r)
	east.untilQuiet(r)
	w.settle(r)
	east.untilQuiet(r)
	if n := east.spend("slow", 1000); n != 60 {
		t.Errorf("what was written off is spent elsewhere: %d", n)
	}
	w.conserved()
}
