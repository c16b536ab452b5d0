package coordinator_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

const acmeBudget = "acme/requests"

// backup is all that the store holds, and restore puts it back: what was made since is gone. Revisions rise all the same,
// as with a bumped restore; what tells is what the documents say.
func (w *world) backup() []coordinator.Item {
	w.t.Helper()
	items, _, err := w.store.Range(w.t.Context(), coordinator.Root)
	if err != nil {
		w.t.Fatal(err)
	}
	return items
}

// restore leaves the marks of the coordinators alone: they do not notice by themselves.
func (w *world) restore(backup []coordinator.Item) {
	w.t.Helper()
	w.putBack(backup, func(i coordinator.Item) bool { return !strings.HasPrefix(i.Key, coordinator.Root+"marks/") })
	for _, r := range w.replicas {
		if err := r.Refresh(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

// putBack writes a backup's items of a kind, and removes those that it does not have. What differs goes back at once, as in a real
// restore: a replica that saw a half of it would write by that. All the rest is written again after it.
func (w *world) putBack(backup []coordinator.Item, these func(coordinator.Item) bool) {
	w.t.Helper()
	same := map[string]bool{}
	var deletes []string
	for _, now := range w.backup() {
		i := slices.IndexFunc(backup, func(b coordinator.Item) bool { return b.Key == now.Key })
		if i < 0 && these(now) {
			deletes = append(deletes, now.Key)
		}
		same[now.Key] = i >= 0 && bytes.Equal(backup[i].Value, now.Value)
	}
	var differs, again []coordinator.Item
	for _, b := range backup {
		if item := (coordinator.Item{Key: b.Key, Value: b.Value}); these(b) && same[b.Key] {
			again = append(again, item)
		} else if these(b) {
			differs = append(differs, item)
		}
	}
	first := min(len(differs), coordinator.MaxTxnDocuments) // of very many, the store takes no more at once
	rest := min(len(deletes), coordinator.MaxTxnDocuments-first)
	commitRaw(w.t, w.store, coordinator.Txn{Puts: differs[:first], Deletes: deletes[:rest]})
	for some := range slices.Chunk(deletes[rest:], coordinator.MaxTxnDocuments) {
		commitRaw(w.t, w.store, coordinator.Txn{Deletes: some})
	}
	for some := range slices.Chunk(slices.Concat(differs[first:], again), coordinator.MaxTxnDocuments) {
		commitRaw(w.t, w.store, coordinator.Txn{Puts: some})
	}
}

// held is what all regions hold of the running period: what they were granted and did not return, spent or not.
func (w *world) held(regions ...*fakeRegion) (sum int64) {
	now := allocation.At(w.clock.now())
	for _, f := range regions {
		for ref, share := range f.shares {
			if i, running := share.Periods.Find(now); running && ref.Budget == acmeBudget {
				period := share.Periods.At(i).Start
				e, _ := share.EntryFor(period, allocation.General)
				left := e.Granted - e.Returned
				if u, used := f.used[ref][allocation.UsageKey{Budget: acmeBudget, Period: period, Class: allocation.General}]; used {
					left = u.Granted - u.Returned
				}
				sum += left
			}
		}
	}
	return sum
}

// round lets every region call until nobody has anything to say.
func (w *world) round(r *replica, regions ...*fakeRegion) {
	w.t.Helper()
	for range 6 {
		for _, f := range regions {
			f.sync(r)
		}
		w.settle(r)
	}
}

func (w *world) standing() coordinator.StandingDocument {
	w.t.Helper()
	items, _, err := w.store.Range(w.t.Context(), coordinator.Root+"history")
	if err != nil || len(items) != 1 {
		w.t.Fatal(items, err)
	}
	var d coordinator.StandingDocument
	if err := json.Unmarshal(items[0].Value, &d); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// move gives units from one region to the other, by hand, from the next minute on, and lets it begin.
func (w *world) move(r *replica, from, to *fakeRegion, units int64) {
	w.t.Helper()
	w.must(r, 201, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: acmeBudget, From: from.name, To: to.name, Units: units})
	w.round(r, from, to)
	w.clock.move(time.Minute)
	w.round(r, from, to)
}

// Whatever a region knows that etcd never had: etcd lost history, and not the region, which goes on from what it holds.
// While this stops the region, a restored etcd takes the service down; while it is believed, permits are granted twice.
func TestWhatEtcdNeverHadFreezes(t *testing.T) {
	for name, spoil := range map[string]func(*allocation.SyncCall){
		"history":     func(c *allocation.SyncCall) { c.History = allocation.History{Number: 4, Stamp: "x"} },
		"stamp":       func(c *allocation.SyncCall) { c.History.Stamp = "x" },
		"config":      func(c *allocation.SyncCall) { c.Config = 1000 },
		"incarnation": func(c *allocation.SyncCall) { c.Incarnation = "ffff" },
		"generation":  func(c *allocation.SyncCall) { c.Statements[0].Shares[0].Generation.Number += 5 },
		"its stamp":   func(c *allocation.SyncCall) { c.Statements[0].Shares[0].Generation.Stamp = "0000000000000000" },
		"term":        func(c *allocation.SyncCall) { c.Statements[0].Shares[0].Term += 86400 * 30 },
		"return": func(c *allocation.SyncCall) {
			s := &c.Statements[0].Shares[0]
			s.Returned = []allocation.ReturnedStatement{{From: s.Term, Until: s.Term + 60, Class: allocation.General, Returned: 1000}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, east, west := two(t, 1)
			r := w.replicas[0]
			before := w.standing().History
			east.spend(acmeBudget, 1)
			call := east.call()
			spoil(&call)
			a, err := r.Sync(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}
			now := w.standing()
			if now.Freeze == nil || now.History.Number <= max(before.Number, call.History.Number) && call.History != before || now.History == before {
				t.Fatalf("the standing is %+v", now)
			}
			if !a.Frozen || a.History != now.History || len(a.Shares) > 0 || !slices.Equal(a.Regions, []string{"eu-west", "us-east"}) {
				t.Errorf("it answers %+v", a)
			}
			if n := len(w.acts(r, "history.freeze")); n != 1 {
				t.Errorf("%d audit lines", n)
			}
			w.round(r, east, west)
			if now := w.standing(); now.Freeze != nil {
				t.Errorf("all have stated, and it is frozen: %+v", now.Freeze)
			}
			if sum := w.held(east, west); sum > 100 {
				t.Errorf("%d of 100 are held", sum)
			}
			w.conserved()
		})
	}
}

// Etcd goes back to before what one region returned and another was granted, twice to the same state; the region that
// knows better calls last. If this fails, the same permits are granted again.
func TestEtcdRestoredTwice(t *testing.T) {
	w, east, west := two(t, 2)
	r := w.replicas[0]
	snapshot := w.backup()
	w.move(r, east, west, 30)
	if east.held() != 30 || west.held() != 70 {
		t.Fatalf("east holds %d, west %d", east.held(), west.held())
	}
	for range 2 {
		w.restore(snapshot)
		knew := east.held()
		east.sync(r)
		w.settle(r)
		if w.standing().Freeze == nil {
			t.Fatal("nothing is frozen")
		}
		for range 3 { // it has stated, and the other has not
			east.sync(r)
			w.settle(r)
		}
		if w.standing().Freeze == nil || east.held() != knew {
			t.Fatalf("thawed by one of two, or granted: it holds %d", east.held())
		}
		w.round(r, west, east)
		// The move was lost with the rest: the budget's own weights count again.
		if w.standing().Freeze != nil || east.held() != 60 || west.held() != 40 {
			t.Fatalf("east holds %d, west %d, %+v", east.held(), west.held(), w.standing())
		}
	}
	w.move(r, west, east, 10)
	if sum := w.held(east, west); sum > 100 {
		t.Errorf("%d of 100 are held", sum)
	}
	w.conserved()
}

func (f *fakeRegion) held() int64 { return f.w.held(f) }

// Terms that were opened ahead, and fetched, are in no ledger of the restored etcd. If they were opened again there, their
// permits would be granted twice.
func TestTermOpenedAhead(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	for range 3 {
		w.clock.move(20 * time.Minute)
		w.round(r, east, west)
	}
	terms := len(r.Ledgers())
	w.restore(snapshot)
	w.round(r, east, west)
	if w.standing().Freeze != nil || len(r.Ledgers()) < terms {
		t.Errorf("%d ledgers, and there were %d; %+v", len(r.Ledgers()), terms, w.standing())
	}
	for range 3 {
		if sum := w.held(east, west); sum != 100 {
			t.Errorf("%d of 100 are held", sum)
		}
		w.clock.move(20 * time.Minute)
		w.round(r, east, west)
	}
	w.conserved()
}

// What a later call has overtaken is not entered, and the answer is no receipt for it: the region states it again.
func TestWhatWasOvertakenIsToBeStatedAgain(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.move(r, east, west, 30)
	w.restore(snapshot)
	east.sync(r) // finds out
	overtaken, later := east.call(), east.call()
	overtaken.Marks = later.Marks // another node's, of which no mark is older
	if len(overtaken.Statements) == 0 || overtaken.Statements[0].Shares[0].Held == nil {
		t.Fatalf("it does not state what it holds: %+v", overtaken.Statements)
	}
	for _, c := range []struct {
		call allocation.SyncCall
		want bool
	}{{later, true}, {overtaken, false}} {
		c.call.All = false
		a, err := r.Sync(t.Context(), c.call)
		if err != nil || !a.Frozen || a.Restated != c.want {
			t.Errorf("the answer is %+v, %v; to be a receipt: %v", a, err, c.want)
		}
	}
}

// A call that was made before the region heard of the new history counts for nothing, however late it comes.
func TestLateCallOfAnotherHistory(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	late := east.call()
	late.All = true
	w.move(r, east, west, 30)
	w.restore(snapshot)
	if a := west.sync(r); !a.Frozen || a.Restated { // finds out
		t.Errorf("nothing was entered, and the answer is %+v", a)
	}
	if a := west.sync(r); !a.Frozen || !a.Restated {
		t.Errorf("what it holds was entered, and the answer is %+v", a)
	}
	a, err := r.Sync(t.Context(), late)
	if err != nil || a.Refusal != "" || !a.Frozen || a.Restated || len(a.Shares) > 0 {
		t.Errorf("%+v %v", a, err)
	}
	if now := w.standing(); now.Freeze == nil || len(now.Freeze.Stated) != 1 {
		t.Errorf("it counts: %+v", now)
	}
	w.round(r, east, west)
	if sum := w.held(east, west); sum > 100 || w.standing().Freeze != nil {
		t.Errorf("%d of 100 are held, %+v", sum, w.standing())
	}
}

// ledgerTexts are all ledgers as they are stored.
func (w *world) ledgerTexts() map[string]string {
	w.t.Helper()
	texts := map[string]string{}
	for _, i := range w.backup() {
		if strings.HasPrefix(i.Key, coordinator.Root+"ledgers/") {
			texts[i.Key] = string(i.Value)
		}
	}
	return texts
}

// Limits that were lowered in what was lost stay lowered, and the numbers of the configuration rise.
func TestLoweredLimitSurvives(t *testing.T) {
	w, east, west := two(t, 1)
	r := w.replicas[0]
	snapshot := w.backup()
	w.must(r, 200, "PUT", "/v1/budgets/"+acmeBudget, budgetJSON(acmeBudget, "40"), "If-Match", `"1"`)
	w.round(r, east, west)
	config := east.config
	w.restore(snapshot)
	w.round(r, east, west)
	b := get[coordinator.BudgetAnswer](w, r, "/v1/budgets/"+acmeBudget)
	if b.Budget.LimitOrZero() != 40 || b.Version < 3 || b.Number <= config || w.standing().Freeze != nil {
		t.Errorf("limit %d, version %d, number %d after %d", b.Budget.LimitOrZero(), b.Version, b.Number, config)
	}
	if sum := w.held(east, west); sum > 40 {
		t.Errorf("%d of 40 are held", sum)
	}
}

// A budget that etcd lost is known from what regions hold of it: they go on, and when it is declared again no period of it
// is granted twice.
func TestBudgetThatEtcdLost(t *testing.T) {
	w := newWorld(t, 1)
	r := w.replicas[0]
	east, west := w.addRegion("us-east"), w.addRegion("eu-west")
	east.join(r)
	west.join(r)
	w.round(r, east, west)
	snapshot := w.backup()
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100"))
	w.round(r, east, west)
	if w.held(east, west) != 100 {
		t.Fatal("nothing is granted")
	}
	w.restore(snapshot)
	w.round(r, east, west)
	if w.standing().Freeze != nil || east.spend(acmeBudget, 10) != 10 {
		t.Fatalf("the region does not go on: %+v", w.standing())
	}
	w.must(r, 201, "POST", "/v1/budgets", budgetJSON(acmeBudget, "100"))
	for range 3 {
		w.round(r, east, west)
		if sum := w.held(east, west); sum > 100 {
			t.Errorf("%d of 100 are held", sum)
		}
		w.clock.move(20 * time.Minute)
	}
	w.conserved()
}
