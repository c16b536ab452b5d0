package coordinator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// replaced makes a region begin anew, with its database lost; the one that was there before is returned.
func (w *world) replaced(r *replica, f *fakeRegion) *fakeRegion {
	w.t.Helper()
	before := *f
	f.lost = true
	for range 3 {
		f.untilQuiet(r)
		w.persist(r)
	}
	if f.incarnation == before.incarnation {
		w.t.Fatalf("%s is still incarnation %s", f.name, f.incarnation)
	}
	return &before
}

// takesThePlace lets the successor state the shard of a budget, until its document is the successor's.
func (w *world) takesThePlace(r *replica, f *fakeRegion, budget string) {
	w.t.Helper()
	key := fmt.Sprintf("%sstatements/%s/%03d", coordinator.Root, f.name, allocation.ShardOf(budget))
	for range 5 {
		w.untilReady(r)
		if _, err := r.OpenTerms(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
		f.untilQuiet(r)
		w.persist(r)
		items, _, err := w.store.Range(w.t.Context(), key)
		if err != nil || len(items) != 1 {
			w.t.Fatal(items, err)
		}
		if strings.Contains(string(items[0].Value), f.incarnation) {
			return
		}
	}
	w.t.Fatalf("%s, incarnation %s, never states %s", f.name, f.incarnation, budget)
}

// What a replaced incarnation had stated is known to every replica, also where the report never had an entry of it: all was known
// to be spent. A replica that did not know it would tell callers that it is out of reach, and let an operator raise the limit by it.
func TestEveryReplicaKnowsWhatAReplacedIncarnationStated(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	w.must(r, 201, "POST", "/v1/budgets", yearly)
	east.untilQuiet(r)
	west.untilQuiet(r)
	if n := east.spend("acme/year", 1000); n != 60 {
		t.Fatalf("us-east spends %d", n)
	}
	east.untilQuiet(r)
	w.persist(r)
	before := w.replaced(r, east)
	w.must(r, 200, "PUT", "/v1/budgets/acme/year", strings.Replace(yearly, `"limit":100`, `"limit":200`, 1), "If-Match", `"1"`)
	w.takesThePlace(r, east, "acme/year")
	other := w.start()
	for name, r := range map[string]*replica{"that was told": r, "started later": other} {
		if l := w.formerLine(r, before.incarnation); l.Spent != 60 || l.Stranded != 0 {
			t.Errorf("the replica %s says %+v", name, l.Remainder)
		}
		q := coordinator.CompensateRequest{Budget: "acme/year", Region: "us-east", Incarnation: before.incarnation, Reason: "us-east is lost", By: "Ada"}
		if status, a := w.ask(r, "POST", "/v1/compensations?dry_run=true", q); status < 400 {
			t.Errorf("the replica %s would raise the limit by what is spent: %v", name, a)
		}
	}
}

// The notes of a write-off are what its operator signs: nobody comes back as an incarnation that was replaced.
func TestWriteOffNotesOfAReplacedIncarnation(t *testing.T) {
	w, _, _, away, r := replacedEast(t)
	q := coordinator.WriteOffRequest{Budget: "acme/year", Region: "us-east", Incarnation: away.incarnation}
	notes := fmt.Sprint(w.must(r, 200, "POST", "/v1/writeoffs?dry_run=true", q)["notes"])
	if !strings.Contains(notes, "was replaced") || !strings.Contains(notes, "it is refused when it calls") || strings.Contains(notes, "still its own") {
		t.Error(notes)
	}
}

// putsOf notes which keys are put by which commit.
type putsOf struct {
	coordinator.Store
	mu      sync.Mutex
	commits []coordinator.Txn
}

func (p *putsOf) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	result, err := p.Store.Commit(ctx, txn)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && result.Committed {
		p.commits = append(p.commits, txn)
	}
	return result, err
}

// first is the first commit that put such a document; -1: none did.
func (p *putsOf) first(prefix, holds string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.IndexFunc(p.commits, func(txn coordinator.Txn) bool {
		return slices.ContainsFunc(txn.Puts, func(i coordinator.Item) bool {
			return strings.HasPrefix(i.Key, coordinator.Root+prefix) && strings.Contains(string(i.Value), holds)
		})
	})
}

// A coordinator may end between two writes. What the former incarnation stated is written before its successor's takes its place.
func TestSuccessorWaitsForWhatItsFormerStated(t *testing.T) {
	w, east, west := two(t, 1)
	puts := &putsOf{Store: w.store}
	w.spoil = func(c *coordinator.Config) { c.Store = puts }
	r := w.start()
	east.spend("acme/requests", 12)
	east.untilQuiet(r)
	west.untilQuiet(r)
	w.persist(r)
	before := w.replaced(r, east)
	w.clock.move(2 * time.Hour)
	w.takesThePlace(r, east, "acme/requests")
	former, successor := puts.first("formers/us-east/", before.incarnation), puts.first("statements/us-east/", east.incarnation)
	if former < 0 || successor <= former {
		t.Errorf("the former's was written by commit %d, the successor's by commit %d", former, successor)
	}
}

// A replica that is started later makes the record, for good: what was stated before the replacement is in it, and what a seal
// proved before any look of the tracker.
func TestRecordsKnowWhatAReplacedIncarnationStated(t *testing.T) {
	for name, sealed := range map[string]bool{"stated": false, "sealed": true} {
		t.Run(name, func(t *testing.T) {
			besideOthers(t)
			w, east, west, first := overTerm(t, 1)
			r := w.replicas[0]
			var before *fakeRegion
			if sealed {
				copied := *east
				before = &copied
				east.sealAway(r)
				east.lost = true
			} else {
				east.untilQuiet(r) // it states the 12
				w.persist(r)
			}
			if now := w.replaced(r, east); before == nil {
				before = now
			}
			w.takesThePlace(r, east, "acme/requests")
			leads := w.start()
			r.stop()
			w.replicas = w.replicas[1:]
			east.closed, west.closed = first.Until, first.Until
			for range 3 {
				east.untilQuiet(leads)
				west.untilQuiet(leads)
				w.persist(leads)
			}
			if w.closeTerms(leads) == 0 {
				t.Fatal("nothing was closed")
			}
			if _, at := w.record(leads, first.Term, before.incarnation); at.Spent != 12 || at.Late != nil || at.Unrecovered != at.Held-12 {
				t.Errorf("the record says %+v", at)
			}
		})
	}
}

// beforeClosing lets something happen right before a record is written.
type beforeClosing struct {
	coordinator.Store
	once sync.Once
	do   func()
}

func (b *beforeClosing) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	for _, put := range txn.Puts {
		if strings.HasPrefix(put.Key, coordinator.Root+"closings/") {
			b.once.Do(b.do)
		}
	}
	return b.Store.Commit(ctx, txn)
}

// Another replica hears the last word of a former incarnation between the decision to close a term and its record: neither the
// closing nor the word may pass the other by.
func TestLastWordAtTheClosing(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	hears := w.replicas[0]
	before := w.replaced(hears, east)
	last := &beforeClosing{Store: w.store, do: func() { before.comesBack(hears, before.call()) }}
	w.spoil = func(c *coordinator.Config) { c.Store = last }
	leads := w.start()
	east.closed, west.closed = first.Until, first.Until
	for range 3 {
		east.untilQuiet(leads)
		west.untilQuiet(leads)
		w.persist(leads)
	}
	for range 3 {
		w.closeTerms(leads)
	}
	record, at := w.record(leads, first.Term, before.incarnation)
	if said := max(at.Spent, lateOf(at)); said != 12 {
		t.Errorf("12 were spent, and the record says %+v, late %+v", at, at.Late)
	}
	w.stillClosed(leads, record)
}

func lateOf(r coordinator.ClosedRegion) int64 {
	if r.Late == nil {
		return 0
	}
	return r.Late.Spent
}
