package coordinator_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

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
	inEtcd := func(r *replica) int {
		return len(get[coordinator.LedgersPage](w, r, "/v1/ledgers/acme/requests").Closings)
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
	if err := r.Sweep(t.Context()); err == nil || inEtcd(r) != len(before) {
		t.Fatalf("%v, and %d of %d are in etcd", err, inEtcd(r), len(before))
	}
	r = restart(false)
	if got := list(r); len(got) != len(before) {
		t.Errorf("after the crash %d records are shown, not %d", len(got), len(before))
	}
	if err := r.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.settle(r)
	if inEtcd(r) != 0 {
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
