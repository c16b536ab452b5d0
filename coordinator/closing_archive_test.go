package coordinator_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
	"tranche/coordinator/archive"
)

// dying is an archive whose process ends as soon as it has appended: nothing is deleted any more.
type dying struct{ *archive.File }

func (d dying) Append(closings []coordinator.Closing) error {
	return errors.Join(d.File.Append(closings), errors.New("the process ends here"))
}

// The record of a term is an account that somebody keeps for years: no crash on its way out of etcd may lose it, or show it
// twice.
func TestClosingsMoveToTheArchive(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r := w.replicas[0]
	for range 2 {
		for _, f := range []*fakeRegion{east, west} {
			f.untilQuiet(r)
		}
		w.persist(r)
	}
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	list := func(r *replica) []coordinator.Closing {
		return get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/*").Closings
	}
	before := list(r)
	if len(before) == 0 || before[0].Term != first.Term {
		t.Fatalf("%+v", before)
	}
	kept := func(r *replica) int {
		return len(inEtcd(get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests")))
	}
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	restart := func(dies bool) *replica {
		t.Helper()
		f, err := archive.Open(name, func(*os.File) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		w.replicas[0].stop()
		w.replicas = w.replicas[1:]
		w.spoil = func(c *coordinator.Config) {
			if c.ClosingArchive = f; dies {
				c.ClosingArchive = dying{f}
			}
		}
		return w.start()
	}
	w.clock.move(25 * time.Hour)
	r = restart(true)
	if err := r.Sweep(t.Context()); err == nil || kept(r) != len(before) {
		t.Fatalf("%v, and %d of %d are in etcd", err, kept(r), len(before))
	}
	r = restart(false)
	if got := list(r); len(got) != len(before) {
		t.Errorf("after the crash %d records are shown, not %d", len(got), len(before))
	}
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settle(r)
	if kept(r) != 0 {
		t.Error("etcd keeps the record")
	}
	r = restart(false)
	got := list(r)
	if len(got) != len(before) || got[0].Key() != before[0].Key() || !reflect.DeepEqual(got[0], before[0]) {
		t.Errorf("%+v, not %+v", got, before)
	}
	if other := get[coordinator.ClosingsAnswer](w, r, "/v1/closings?match=tenant=other").Closings; len(other) != 0 {
		t.Errorf("of another tenant: %+v", other)
	}
}

// inEtcd are the closed terms of a page that did not move to the archive.
func inEtcd(p coordinator.LedgersPage) []coordinator.StoredClosing {
	return slices.DeleteFunc(p.Closings, func(c coordinator.StoredClosing) bool { return c.Archived })
}

// Whoever asks for a budget gets all of its closed terms, wherever they stand, once each and in bounded pages.
func TestLedgersOfABudgetReadTheArchive(t *testing.T) {
	name := filepath.Join(t.TempDir(), "closings.jsonl")
	f, err := archive.Open(name, func(*os.File) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	w, east, west, first := overTerm(t, 1)
	w.replicas[0].stop()
	w.replicas = nil
	w.spoil = func(c *coordinator.Config) { c.ClosingArchive = f }
	r := w.start()
	for range 2 {
		for _, region := range []*fakeRegion{east, west} {
			region.untilQuiet(r)
		}
		w.persist(r)
	}
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	here := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests")
	if len(here.Ledgers) == 0 || len(here.Closings) == 0 || here.Closings[0].Archived || here.Closings[0].Closing.Term != first.Term {
		t.Fatalf("%+v", here)
	}
	// Older terms moved before, and one of them is still in both; others' records stand around them.
	var moved []coordinator.Closing
	for i := range 3 {
		c := here.Closings[0].Closing
		c.Term -= allocation.Instant(3600 * i)
		moved = append(moved, c)
	}
	before, behind := moved[0], moved[0]
	before.Budget, behind.Budget = "acme/request", "acme/requests/more"
	if err := f.Append(append(moved, before, behind)); err != nil {
		t.Fatal(err)
	}
	var got []coordinator.StoredClosing
	for after, pages := "", 0; ; pages++ {
		page := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests?limit=1&after="+url.QueryEscape(after))
		if len(page.Closings) != 1 || pages > 10 {
			t.Fatalf("page %d has %+v", pages, page)
		}
		got = append(got, page.Closings...)
		if after = page.More; after == "" {
			break
		}
	}
	whole := get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests").Closings
	if len(got) != 2+len(here.Closings) || !reflect.DeepEqual(got, whole) {
		t.Errorf("page by page %+v, and at once %+v", got, whole)
	}
	for i, c := range got {
		if c.Archived != (i < 2) || c.Closing.Budget != "acme/requests" || i > 0 && c.Key <= got[i-1].Key {
			t.Errorf("record %d is %+v", i, c)
		}
	}
	for _, query := range []string{"?limit=0", "?limit=x", "?after=" + url.QueryEscape(behind.Key())} {
		if status, problem := w.ask(r, "GET", "/v1/ledgers/acme/requests"+query, nil); status != 422 || problem["field"] == nil || problem["fix"] == nil {
			t.Errorf("%s is answered %d %v", query, status, problem)
		}
	}
}
