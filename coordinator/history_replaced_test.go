package coordinator_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// Etcd and a region's database go back together, and the region gets its new incarnation before anybody has noticed that etcd did.
// What its former one had got in what was lost nobody can state. If the ledger were believed, it would be granted once more.
func TestReplacedBeforeAnybodyNoticed(t *testing.T) {
	for name, later := range map[string]time.Duration{"at once": 0, "40 minutes later": 40 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			w, east, west := two(t, 1)
			r := w.replicas[0]
			w.must(r, 201, "POST", "/v1/budgets", yearly)
			w.round(r, east, west)
			snapshot := w.backup()
			w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/year", From: "eu-west", To: "us-east", Units: 30})
			w.round(r, west, east)
			spent := east.spend("acme/year", 1000)
			if spent != 90 {
				t.Fatalf("us-east spends %d of the 60 and 30 that it has", spent)
			}
			w.restore(snapshot)
			former := east.incarnation
			east.lost = true
			for range 3 {
				east.sync(r)
				w.settle(r)
			}
			if w.standing().Freeze != nil || east.incarnation == former {
				t.Fatalf("etcd was found to have gone back, or us-east is %s still: %+v", east.incarnation, w.standing())
			}
			w.clock.move(later)
			w.round(r, west, east)
			if now := w.standing(); now.Freeze != nil || len(now.Lost) != 1 || now.Lost[0].Incarnation != former || len(now.Replaced) > 0 {
				t.Errorf("%+v", now)
			}
			for range 3 {
				w.round(r, west, east)
				spent += west.spend("acme/year", 1000) + east.spend("acme/year", 1000)
			}
			if spent > 100 {
				t.Errorf("%d of 100 are spent", spent)
			}
			w.conserved()
		})
	}
}

// A region started over, and etcd goes back to before that: it records an incarnation that the owner knows as a former one.
// If the answers named that one the owner would hear nothing of them, the region would never state, and all would stay
// frozen.
func TestStartedOverBeforeEtcdWentBack(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	east.marks[0] = allocation.Mark{Writer: east.marks[0].Writer, Count: 0, Value: "restored"}
	w.round(r, east, west)
	second := east.incarnation
	w.restore(snapshot)
	if a, err := r.Sync(t.Context(), east.call()); err != nil || a.Refusal == "" { // this answer is lost
		t.Fatalf("an incarnation that was never given out here is answered %+v, %v", a, err)
	}
	w.round(r, east, west)
	if w.standing().Freeze != nil || east.incarnation == second || east.incarnation == "" || east.lost {
		t.Errorf("east is %q, after %q and lost %v; %+v", east.incarnation, second, east.lost, w.standing())
	}
	if sum := w.held(east, west); sum > 100 {
		t.Errorf("%d of 100 are held", sum)
	}
	w.conserved()
}

// beforeLedgers is a store that does something once, just before the first ledger is written through it.
type beforeLedgers struct {
	coordinator.Store
	do atomic.Pointer[func()]
}

func (b *beforeLedgers) Commit(ctx context.Context, txn coordinator.Txn) (coordinator.TxnResult, error) {
	if slices.ContainsFunc(txn.Puts, func(i coordinator.Item) bool { return strings.HasPrefix(i.Key, coordinator.Root+"ledgers/") }) {
		if do := b.do.Swap(nil); do != nil {
			(*do)()
		}
	}
	return b.Store.Commit(ctx, txn)
}

// A region states what it holds, and is given a new incarnation by another replica before that is entered: a message of a
// former incarnation changes nothing.
func TestReplacedWhileItStates(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.move(r, west, east, 30)
	w.restore(snapshot)
	east.sync(r) // finds out, and stores the new history
	call := east.call()
	if w.standing().Freeze == nil || !call.All {
		t.Fatalf("east does not state all: %+v", w.standing())
	}
	var before map[string]string
	late := &beforeLedgers{Store: w.store}
	w.store = late
	second := w.start()
	meanwhile := func() {
		lost := east.call()
		lost.Lost, lost.All, lost.Statements = true, false, nil
		if _, err := r.Sync(t.Context(), lost); err != nil {
			t.Errorf("the region cannot start over: %v", err)
		}
		before = w.ledgerTexts()
	}
	late.do.Store(&meanwhile)
	_, err := second.Sync(t.Context(), call)
	if before == nil {
		t.Fatalf("nothing is entered of the call: %v", err)
	}
	var p *coordinator.Problem
	if !errors.As(err, &p) || p.Code != coordinator.CodeRefused || !strings.Contains(p.Detail, "was replaced") {
		t.Errorf("the call answers %v", err)
	}
	if after := w.ledgerTexts(); !maps.Equal(before, after) {
		t.Errorf("a former incarnation changes ledgers: %v, then %v", before, after)
	}
	east.startOver()
	w.round(r, east, west)
	if sum := w.held(east, west); sum > 100 || w.standing().Freeze != nil {
		t.Errorf("%d of 100 are held, %+v", sum, w.standing())
	}
	w.conserved()
}
