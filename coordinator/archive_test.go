package coordinator_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// shelf is an archive in memory that can be out of order.
type shelf struct {
	broken error
	lines  []coordinator.ArchiveLine
}

func (s *shelf) Append(_ context.Context, lines [][]byte) error {
	if s.broken != nil {
		return s.broken
	}
	for _, text := range lines {
		var l coordinator.ArchiveLine
		if err := json.Unmarshal(text, &l); err != nil {
			return err
		}
		s.lines = append(s.lines, l)
	}
	return nil
}

// closedTerm is a term that is closed: us-east spent 12 and holds 5 reserved, eu-west did nothing.
func closedTerm(t *testing.T) (w *world, archive *shelf, east *fakeRegion, first coordinator.TermShares) {
	t.Helper()
	w, east, west := two(t, 2)
	r := w.replicas[0]
	first = get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0]
	east.spend("acme/requests", 12)
	east.reserve("acme/requests", 5)
	w.clock.move(2 * time.Hour)
	west.closed, east.closed = first.Until, first.Until
	west.sync(r)
	east.sync(r)
	w.persist(r)
	w.persist(r)
	if n := w.closeTerms(r); n != 1 {
		t.Fatalf("%d closed", n)
	}
	w.refreshAll()
	return w, w.archive.(*shelf), east, first
}

func (w *world) refreshAll() {
	w.t.Helper()
	for _, r := range w.replicas {
		if err := r.Refresh(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// reserve moves n permits that were spent from spent to reserved: what a test reads is what was used.
func (f *fakeRegion) reserve(budget string, n int64) {
	f.w.t.Helper()
	for ref, used := range f.used {
		for key, u := range used {
			if ref.Budget == budget && u.Spent > 0 {
				u.Reserved += n
				used[key], f.changed[ref] = u, 0
			}
		}
	}
}

// shareOf is what the owner holds of a term.
func (f *fakeRegion) shareOf(budget string, term allocation.Instant) allocation.Share {
	return f.shares[allocation.ShareRef{Budget: budget, Term: term}]
}

// settleLate turns what is reserved of a closed term into so many spent.
func (f *fakeRegion) settleLate(share allocation.Share, period allocation.Instant, spent int64) {
	key := allocation.UsageKey{Budget: share.Budget, Period: period, Class: allocation.General}
	u, _ := share.Usage(key)
	u.Spent = spent
	ref := allocation.ShareRef{Budget: share.Budget, Term: share.Term()}
	f.shares[ref], f.changed[ref] = share, 0
	f.used[ref] = map[allocation.UsageKey]allocation.Usage{key: u}
}

func (w *world) closings(r *replica, query string) coordinator.ClosingsPage {
	w.t.Helper()
	return get[coordinator.ClosingsPage](w, r, "/v1/closings"+query)
}

// The record is all that remains of a term. What it says must be what happened, to the permit, by region and period.
func TestTheRecordOfATerm(t *testing.T) {
	w, _, _, first := closedTerm(t)
	page := w.closings(w.replicas[1], "?budget=acme/*&region=us-east")
	if len(page.Closings) != 1 {
		t.Fatalf("%+v", page)
	}
	c := page.Closings[0].Closing
	n := int64(c.Total.Periods)
	if c.Budget != "acme/requests" || c.Term != first.Term || c.Until != first.Until || c.Total.Limit != 100*n || c.Total.Spent != 12 || c.Total.Reserved != 5 ||
		c.Total.Unused != 100*n-17 || c.Total.Stranded != 0 || len(c.Detail) != 2 || c.Detail[0].Spent != 12 || c.Detail[0].Unused != 83 || c.Detail[1].Spent != 0 {
		t.Errorf("%+v", c)
	}
	if east := c.Regions[1]; east.Region != "us-east" || east.Granted != 60*n || east.Spent != 12 || east.Reserved != 5 || east.NeverStated {
		t.Errorf("%+v", c.Regions)
	}
	for query, want := range map[string]int{
		"?budget=acme/requests": 1, "?budget=acme": 0, "?region=nowhere": 0, "?stranded=true": 0, "?late=true": 0, "?overdraft=true": 0, "?limit=1": 1,
		"?from=" + c.Until.String(): 0, "?from=" + c.Term.String(): 1, "?until=" + c.Term.String(): 0, "?until=" + c.Until.String(): 1,
	} {
		if got := len(w.closings(w.replicas[0], query).Closings); got != want {
			t.Errorf("%s: %d", query, got)
		}
	}
	w.must(w.replicas[0], 422, "GET", "/v1/closings?from=yesterday", nil)
	w.must(w.replicas[0], 422, "GET", "/v1/closings?stranded=perhaps", nil)
}

// A reservation that was open when its term was closed is settled days later. The books must say so, once, whether the
// record is still in etcd or archived; and nothing is opened again.
func TestLateStatements(t *testing.T) {
	w, archive, east, first := closedTerm(t)
	share := east.shareOf("acme/requests", first.Term)
	period := w.closings(w.replicas[0], "").Closings[0].Closing.Detail[0].From
	say := func(spent int64) {
		t.Helper()
		east.settleLate(share, period, spent)
		a := east.sync(w.replicas[1])
		if len(a.Closed) == 0 {
			t.Error("the owner is not told that it is closed")
		}
		w.refreshAll()
	}
	say(15)
	say(15) // once more: nothing new
	page := w.closings(w.replicas[0], "?late=true")
	if len(page.Closings) != 1 || len(page.Amendments) != 0 {
		t.Fatalf("%+v", page)
	}
	if at := page.Closings[0].Closing.Regions[1]; at.Spent != 12 || at.Late == nil || at.Late.Spent != 15 || at.Late.Reserved != 0 || at.Late.Times != 1 || at.Final().Spent != 15 {
		t.Errorf("%+v", at)
	}
	w.clock.move(25 * time.Hour)
	w.sweep()
	if page := w.closings(w.replicas[0], ""); len(page.Closings) != 0 || len(archive.lines) != 1 {
		t.Fatalf("%d in etcd, %d archived", len(page.Closings), len(archive.lines))
	}
	say(16)
	if page := w.closings(w.replicas[0], ""); len(page.Amendments) != 1 || page.Amendments[0].Late.Spent != 16 || page.Amendments[0].Unit != "requests" {
		t.Fatalf("%+v", page)
	}
	w.sweep()
	if page := w.closings(w.replicas[0], ""); len(page.Amendments) != 0 || len(archive.lines) != 2 || archive.lines[1].Amendment == nil || archive.lines[1].Amendment.Late.Spent != 16 {
		t.Errorf("%+v, archived %+v", page, archive.lines)
	}
	for _, l := range w.replicas[0].Ledgers() {
		if l.Periods.Start() <= first.Term {
			t.Error("it is open again")
		}
	}
}

// Nothing may leave etcd before the archive has it; and once it has, a replica that ended in between must do no harm.
func TestTheArchiveComesFirst(t *testing.T) {
	w, archive, _, _ := closedTerm(t)
	w.clock.move(25 * time.Hour)
	archive.broken = errors.New("no space left on device")
	if err := w.replicas[0].Sweep(t.Context()); !errors.Is(err, archive.broken) {
		t.Fatalf("%v", err)
	}
	if n := len(w.closings(w.replicas[0], "").Closings); n != 1 {
		t.Fatalf("%d records in etcd, and the archive took none", n)
	}
	status := get[coordinator.Status](w, w.replicas[0], "/v1/status")
	if !hasProblem(status, "no space left") {
		t.Errorf("status does not say so: %+v", status.Problems)
	}
	archive.broken = nil
	// One replica appended and ended; the other finds the record still there, and appends it again.
	before := w.closings(w.replicas[0], "").Closings[0].Closing
	archive.lines = append(archive.lines, coordinator.ArchiveLine{Format: 1, Closing: &before})
	w.sweep()
	w.sweep()
	if n := len(w.closings(w.replicas[0], "").Closings); n != 0 || len(archive.lines) < 2 {
		t.Errorf("%d in etcd, archived %d", n, len(archive.lines))
	}
	for _, l := range archive.lines {
		if l.Closing == nil || !reflect.DeepEqual(*l.Closing, before) {
			t.Errorf("archived %+v, not %+v", l.Closing, before)
		}
	}
	if hasProblem(get[coordinator.Status](w, w.replicas[0], "/v1/status"), "no space left") {
		t.Error("the status still complains")
	}
}

func hasProblem(s coordinator.Status, part string) bool {
	return slices.ContainsFunc(s.Problems, func(p coordinator.StatusProblem) bool { return strings.Contains(p.What, part) })
}

// sweep lets both replicas sweep, one after the other.
func (w *world) sweep() {
	w.t.Helper()
	for _, r := range w.replicas {
		w.refreshAll()
		if err := r.Sweep(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
	w.refreshAll()
}
