package coordinator_test

import (
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// since is what the feed tells that is not among what was heard before, as a consumer sees it whose cursor etcd does not know any
// more: it is answered with all that is kept, and tells events apart by their ids.
func (w *world) since(r *replica, heard map[string]bool) (events []coordinator.FeedEvent) {
	w.t.Helper()
	w.notice()
	w.notice()
	for _, e := range get[coordinator.EventsPage](w, r, "/v1/events?limit=1000").Events {
		if !heard[e.ID] {
			heard[e.ID] = true
			events = append(events, e)
		}
	}
	return events
}

// hears checks what is told since the last time, and that nothing more comes of it.
func (w *world) hears(r *replica, heard map[string]bool, want string, regions ...*fakeRegion) []coordinator.FeedEvent {
	w.t.Helper()
	events := w.since(r, heard)
	if got := kinds(events); got != want {
		w.t.Fatalf("told %q, not %q", got, want)
	}
	w.round(r, regions...)
	if more := w.since(r, heard); len(more) > 0 {
		w.t.Fatalf("told once more: %+v", more)
	}
	return events
}

func ofKind(events []coordinator.FeedEvent, kind coordinator.EventKind) (found coordinator.FeedEvent) {
	for _, e := range events {
		if e.Kind == kind {
			found = e
		}
	}
	return found
}

// Of a freeze a person hears twice: that it began, with what is missing, and that it is over. A feed that tells neither lets a
// deployment stand still unseen; one that tells them again with every call pages somebody for ever.
func TestLostHistoryAndFreezeAreToldOnce(t *testing.T) {
	w, east, west := two(t, 2)
	r, heard := w.replicas[0], map[string]bool{}
	w.round(r, east, west)
	w.hears(r, heard, "", east, west)
	snapshot := w.backup()
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	w.round(r, east, west)
	w.restore(snapshot)
	east.sync(r) // it knows better; the west does not call yet
	east.sync(r)
	events := w.since(r, heard)
	if got := kinds(events); got != "history began, frozen began" {
		t.Fatalf("told %q", got)
	}
	if lost, frozen := events[0], events[1]; lost.Subject != w.standing().History.String() || lost.Reason == "" || !strings.Contains(frozen.Text, "missing: ") || !strings.Contains(frozen.Text, "eu-west") || frozen.Subject != lost.Subject {
		t.Errorf("%+v", events)
	}
	for range 3 {
		east.sync(r)
	}
	w.vanish(r, true) // another replica leads, and one starts anew
	r = w.start()
	w.replicas = append(w.replicas[1:], r)
	if more := w.since(r, heard); len(more) > 0 {
		t.Fatalf("told once more: %+v", more)
	}
	w.round(r, east, west)
	w.hears(r, heard, "frozen ended, history lost", east, west)
}

// An override that was made in what etcd lost is over, and no record of it is left: the feed names the budget of which a version
// was lost, and what counts. A consumer that heard of the start would else believe that it stands.
func TestOverrideWhoseStartWasLost(t *testing.T) {
	w, east, west := two(t, 2)
	r, heard := w.replicas[0], map[string]bool{}
	w.round(r, east, west)
	w.hears(r, heard, "", east, west)
	snapshot := w.backup()
	w.must(r, 201, "POST", "/v1/overrides", raise("acme/requests", 50, "30m"))
	w.round(r, east, west)
	w.hears(r, heard, "override began", east, west)
	w.restore(snapshot)
	w.round(r, east, west)
	events := w.hears(r, heard, "history began, history lost", east, west)
	e := events[1]
	if e.Budget != "acme/requests" || e.Tenant != "acme" || e.Figures["version"] != 2 || e.Figures["had"] != 1 || e.Figures["limit"] != 100 {
		t.Errorf("%+v", e)
	}
	if b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/acme/requests"); b.Budget.LimitOrZero() != 100 || b.Budget.Override != nil {
		t.Errorf("%+v", b.Budget)
	}
}

// One whose end was lost, and that a region knows to have ended, is told to have ended, and why; its record says the same.
func TestOverrideWhoseEndWasLost(t *testing.T) {
	w, east, west := two(t, 2)
	r, heard := w.replicas[0], map[string]bool{}
	id := w.must(r, 201, "POST", "/v1/overrides", raise("acme/requests", 50, "30m"))["id"].(string)
	w.round(r, east, west)
	w.hears(r, heard, "override began", east, west)
	snapshot := w.backup()
	w.must(r, 200, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over", "by": "Bo"})
	w.round(r, east, west)
	if e := w.hears(r, heard, "override ended", east, west)[0]; !strings.HasPrefix(e.By, "Bo") || !strings.Contains(e.Reason, "over") {
		t.Errorf("%+v", e)
	}
	w.restore(snapshot)
	w.round(r, east, west)
	w.notice() // before the record is ended: nobody may hear of an end without its cause
	w.settle(r)
	e := ofKind(w.hears(r, heard, "history began, history lost, override ended", east, west), coordinator.EventOverride)
	if e.Subject != id || !strings.Contains(e.Reason, "etcd lost history") {
		t.Errorf("%+v", e)
	}
	o := get[coordinator.OverridesList](w, r, "/v1/overrides").Overrides
	if len(o) != 1 || o[0].State != coordinator.OverrideSuperseded || !strings.Contains(o[0].Why, "etcd lost history") {
		t.Errorf("%+v", o)
	}
	w.conserved()
}

// One whose end nobody knows stands again, until its own end: whoever heard that it is over hears that it is not.
func TestOverrideThatStandsAgain(t *testing.T) {
	w, east, west := two(t, 1)
	r, heard := w.replicas[0], map[string]bool{}
	id := w.must(r, 201, "POST", "/v1/overrides", raise("acme/requests", 50, "30m"))["id"].(string)
	w.round(r, east, west)
	w.hears(r, heard, "override began", east, west)
	snapshot := w.backup()
	w.must(r, 200, "POST", "/v1/overrides/"+id+"/end", map[string]string{"reason": "over", "by": "Bo"})
	if events := w.since(r, heard); kinds(events) != "overcommitted began, override ended" {
		t.Fatalf("%+v", events)
	}
	w.vanish(r, false)
	w.restoreAll(snapshot) // no region knows anything newer: the coordinator does, by its mark
	r = w.start()
	w.round(r, east, west)
	e := ofKind(w.hears(r, heard, "history began, override began", east, west), coordinator.EventOverride)
	if e.Subject != id || !strings.Contains(e.Text, "so it stands in history 2") || e.Figures["units"] != 50 || e.Until == 0 {
		t.Errorf("%+v", e)
	}
	w.clock.move(31 * time.Minute)
	w.round(r, east, west)
	w.settle(r)
	if e := ofKind(w.since(r, heard), coordinator.EventOverride); e.Change != coordinator.EventEnded || e.Reason != "its end was there" {
		t.Errorf("%+v", e)
	}
	w.conserved()
}
