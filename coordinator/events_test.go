package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/coordinator"
)

// reader follows the feed by its cursor, as a consumer does.
type reader struct {
	w      *world
	cursor string
}

// next is what came since the last call, as "kind change: text".
func (f *reader) next(r *replica) []coordinator.FeedEvent {
	f.w.t.Helper()
	if err := r.Refresh(f.w.t.Context()); err != nil {
		f.w.t.Fatal(err)
	}
	page := get[coordinator.EventsPage](f.w, r, "/v1/events?after="+f.cursor)
	if f.cursor = page.Cursor; page.Missed != "" {
		f.w.t.Errorf("missed: %s", page.Missed)
	}
	return page.Events
}

// notice lets every replica look, one after the other: each takes itself for the leader.
func (w *world) notice() {
	w.t.Helper()
	for _, r := range w.replicas {
		w.untilReady(r) // the picture is new
		if err := r.Notice(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func kinds(events []coordinator.FeedEvent) string {
	var parts []string
	for _, e := range events {
		part := string(e.Kind) + " " + string(e.Change)
		if n := e.Figures["percent"]; n > 0 {
			part += fmt.Sprintf(" %d", n)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// told checks what came since the last time.
func (f *reader) told(r *replica, want string) []coordinator.FeedEvent {
	f.w.t.Helper()
	events := f.next(r)
	if got := kinds(events); got != want {
		f.w.t.Fatalf("told %q, not %q", got, want)
	}
	return events
}

// Two replicas look at once, and a third that starts later: a crossing that is told twice pages somebody twice, and one
// that is told by none pages nobody.
func TestThresholdsAreToldOnce(t *testing.T) {
	w, east, west := two(t, 2)
	r, other := w.replicas[0], w.replicas[1]
	w.must(r, 201, "POST", "/v1/budgets", strings.Replace(yearly, `"tenant":"acme"`, `"tenant":"acme","capability":"export"`, 1))
	east.untilQuiet(r)
	west.untilQuiet(r)
	feed := &reader{w: w}
	w.notice()
	feed.told(r, "")
	spend := func(n int64) {
		t.Helper()
		if got := east.spend("acme/year", n); got != n {
			t.Fatalf("spent %d, not %d", got, n)
		}
		east.untilQuiet(r)
		w.persist(r)
		w.notice()
	}
	spend(49)
	feed.told(r, "")
	spend(1)
	e := feed.told(other, "threshold crossed 50")[0]
	if e.Budget != "acme/year" || e.Tenant != "acme" || e.Capability != "export" || e.Unit != "requests" || e.Period == nil ||
		e.Figures["limit"] != 100 || e.Figures["spent"] != 50 || !strings.Contains(e.Text, "acme/year: 50 % of 100 requests") {
		t.Errorf("%+v", e)
	}
	spend(5)
	feed.told(r, "")
	// Both of the rest at once; the replica that wrote the first is gone.
	r.stop()
	r = w.start()
	w.replicas = w.replicas[1:]
	if n := west.spend("acme/year", 40); n != 40 {
		t.Fatal(n)
	}
	if n := east.spend("acme/year", 5); n != 5 {
		t.Fatal(n)
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.persist(r)
	w.notice()
	feed.told(r, "threshold crossed 80, threshold crossed 100")
	w.notice()
	feed.told(r, "")
	if all := get[coordinator.EventsPage](w, other, "/v1/events?limit=2"); !all.More || kinds(all.Events) != "threshold crossed 50, threshold crossed 80" || all.Oldest != all.Events[0].ID {
		t.Errorf("%+v", all)
	}
}

// Reservations that come and go about a threshold are one crossing: else each of them pages somebody. Once much was released, the
// next crossing is news.
func TestReservationsAboutAThreshold(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	feed := &reader{w: w}
	east.spend("acme/year", 39)
	for i, c := range []struct {
		reserved int64
		want     string
	}{
		{10, ""}, {11, "threshold crossed 50"}, {10, ""}, {11, ""}, {1, ""}, {12, ""}, {0, ""}, {12, "threshold crossed 50"},
	} {
		east.reserve("acme/year", c.reserved)
		east.untilQuiet(r)
		w.persist(r)
		w.notice()
		if got := kinds(feed.next(r)); got != c.want {
			t.Fatalf("%d, %d reserved: told %q, not %q", i, c.reserved, got, c.want)
		}
	}
}

// A raise takes a budget below a threshold: when it is crossed again, that is news. A lowered limit is told as
// overcommitted until what is out has come back.
func TestChangedLimitsAreTold(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	feed := &reader{w: w}
	quiet := func() {
		t.Helper()
		east.untilQuiet(r)
		west.untilQuiet(r)
		w.settle(r)
		w.notice()
	}
	east.spend("acme/year", 50)
	quiet()
	feed.told(r, "threshold crossed 50")
	change := func(limit, version string) {
		t.Helper()
		w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, `"limit":100`, `"limit":`+limit, 1), "If-Match", `"`+version+`"`)
		w.notice()
	}
	change("1000", "1")
	quiet()
	feed.told(r, "")
	east.spend("acme/year", 450)
	quiet()
	feed.told(r, "threshold crossed 50")
	change("20", "2")
	e := feed.told(r, "threshold crossed 80, threshold crossed 100, overcommitted began")[2]
	if e.Figures["limit"] != 20 || e.Figures["overcommitted"] <= 400 {
		t.Errorf("%+v", e)
	}
	quiet()
	feed.told(r, "") // 500 are spent
	change("600", "3")
	feed.told(r, "overcommitted ended")
}

// A minute budget that is used up in every minute must not fill the feed.
func TestShortPeriodsAreToldOnceInAnHour(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	feed := &reader{w: w}
	use := func() {
		t.Helper()
		east.untilQuiet(r)
		west.untilQuiet(r)
		east.spend("acme/requests", 50)
		east.untilQuiet(r)
		w.settle(r)
		w.notice()
	}
	use()
	feed.told(r, "threshold crossed 50")
	for range 5 {
		w.clock.move(time.Minute)
		use()
		feed.told(r, "")
	}
	w.clock.move(time.Hour)
	use()
	feed.told(r, "threshold crossed 50")
}

// However many budgets a region takes with it, that is one event, and one when it is back; a minute budget grows no event.
func TestStrandedIsToldByRegion(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	for i := range 25 {
		w.must(r, 201, "POST", "/v1/budgets", strings.NewReplacer("acme/year", fmt.Sprintf("many/%d", i), `"tenant":"acme"`, fmt.Sprintf(`"tenant":"t%d"`, i)).Replace(yearly))
	}
	east.untilQuiet(r)
	west.untilQuiet(r)
	feed := &reader{w: w}
	w.pass(2*time.Minute, east, west)
	w.notice()
	feed.told(r, "")
	w.pass(4*time.Minute, west)
	w.notice()
	e := feed.told(r, "stranded began")[0]
	if e.Region != "us-east" || e.Figures["budgets"] != 27 || len(e.Budgets) != 20 || e.More != 7 || e.Units["requests"] != 27*60 || e.Budgets[0].Tenant == "" || e.Budgets[0].Stranded != 60 {
		t.Errorf("%+v", e)
	}
	w.pass(4*time.Minute, west)
	w.notice()
	feed.told(r, "")
	east.spend("many/3", 20)
	east.untilQuiet(r)
	w.pass(10*time.Second, east, west)
	w.notice()
	e = feed.told(r, "stranded ended")[0]
	if e.Figures["region_returned"] != 27 || e.Units["requests"] != 20 {
		t.Errorf("%+v", e)
	}
}

// Blocks, and a region that lost its history, are told; the first incarnation of a region is no news.
func TestBlocksAndIncarnationsAreTold(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	feed := &reader{w: w}
	w.notice()
	feed.told(r, "")
	id := w.must(r, 201, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": "acme"}, "for": "2h", "reason": "leaked", "by": "kim"})["id"].(string)
	w.must(r, 201, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": "other"}, "for": "10m", "reason": "noisy"})
	w.notice()
	events := feed.told(r, "block began, block began")
	for _, e := range events {
		if e.Tenant == "acme" && (e.Subject != id || e.Reason != "leaked" || !strings.HasPrefix(e.By, "kim") || e.Until == 0) {
			t.Errorf("%+v", e)
		}
	}
	w.must(r, 200, "POST", "/v1/blocks/"+id+"/lift", map[string]string{"reason": "rotated"})
	w.notice()
	feed.told(r, "block ended")
	w.clock.move(11 * time.Minute)
	west.untilQuiet(r)
	w.notice()
	feed.told(r, "block ended")

	was := east.incarnation
	east.startOver()
	east.join(r)
	w.notice()
	e := feed.told(r, "incarnation began, stranded began")[0]
	if e.Region != "us-east" || e.Subject != was || e.Incarnation != east.incarnation {
		t.Errorf("%+v", e)
	}
}

// A cursor that names nothing is told so: a consumer that is not told that it missed something takes the feed for whole.
func TestCursorsOfTheFeed(t *testing.T) {
	w, _, _ := two(t, 1)
	r := w.replicas[0]
	if page := get[coordinator.EventsPage](w, r, "/v1/events"); len(page.Events) != 0 || page.Cursor != "" {
		t.Errorf("%+v", page)
	}
	for i := range 3 {
		w.must(r, 201, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": fmt.Sprint(i)}, "for": "2h", "reason": "x"})
		w.notice()
	}
	all := get[coordinator.EventsPage](w, r, "/v1/events").Events
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	if status, a := w.ask(r, "GET", "/v1/events?after=17", nil); status != 422 || a["field"] != "after" || a["fix"] == "" {
		t.Errorf("%d %v", status, a)
	}
	last := all[2].ID
	ahead := last[:19] + "9-" + last[21:]
	for cursor, want := range map[string]int{all[0].ID: 2, all[2].ID: 0, ahead: 3, all[1].ID[:21] + "ffffffff": 3} {
		page := get[coordinator.EventsPage](w, r, "/v1/events?after="+cursor)
		if len(page.Events) != want || (page.Missed != "") != (want == 3) {
			t.Errorf("after %s: %d events, %q", cursor, len(page.Events), page.Missed)
		}
	}
	// A month later they are gone.
	w.clock.move(31 * 24 * time.Hour)
	w.untilReady(r)
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.untilReady(r)
	if page := get[coordinator.EventsPage](w, r, "/v1/events?after="+last); len(page.Events) != 0 || page.Missed != "" || page.Cursor != last {
		t.Errorf("%+v", page)
	}
	w.must(r, 201, "POST", "/v1/blocks", map[string]any{"match": map[string]string{"tenant": "new"}, "for": "2h", "reason": "x"})
	w.notice()
	if page := get[coordinator.EventsPage](w, r, "/v1/events?after="+all[0].ID); page.Missed == "" {
		t.Errorf("%+v", page)
	}
	if page := get[coordinator.EventsPage](w, r, "/v1/events?after="+last); page.Missed != "" {
		t.Errorf("%+v", page)
	}
}
