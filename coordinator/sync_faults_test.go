package coordinator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// watchLedgers checks every revision of every ledger, until the test stops it: conserved, never more out than the highest
// limit that was ever asked for, and counters that only rise.
func (w *world) watchLedgers(highest int64) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	before := map[string]allocation.Ledger{}
	var wait sync.WaitGroup
	wait.Go(func() {
		_ = w.store.Watch(ctx, coordinator.Root+"ledgers/", 1, func(events []coordinator.Event, revision int64) {
			for _, e := range events {
				var l allocation.Ledger
				if e.Deleted || json.Unmarshal(e.Value, &l) != nil {
					continue
				}
				if err := l.Conserved(); err != nil {
					w.t.Errorf("revision %d: %v", revision, err)
				}
				for i := range l.Periods.Len() {
					if out := l.EntryAt(i).Limit + l.Overcommitted(i) - l.Unallocated(i); out > highest {
						w.t.Errorf("revision %d, period %d: %d are out, and the limit was never above %d", revision, i, out, highest)
					}
				}
				if old, ok := before[e.Key]; ok && old.Generation.Number >= l.Generation.Number {
					w.t.Errorf("revision %d: generation %s follows %s", revision, l.Generation, old.Generation)
				}
				before[e.Key] = l
			}
		})
	})
	return func() {
		cancel()
		wait.Wait()
	}
}

// Two replicas grant at once, while limits, weights and rebalances change. If this fails, replicas sell one permit twice.
func TestTwoReplicasGrantAtOnce(t *testing.T) {
	w, east, west := two(t, 2)
	stop := w.watchLedgers(200)
	var wait sync.WaitGroup
	for i, f := range []*fakeRegion{east, west} {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(i)))
			for range 60 {
				f.spend("acme/requests", random.Int64N(4))
				f.sync(w.replicas[random.IntN(2)])
			}
		})
	}
	for i := range 2 {
		wait.Go(func() {
			random := rand.New(rand.NewPCG(2, uint64(i)))
			for range 25 {
				r := w.replicas[i]
				_ = r.Settle(t.Context())
				if random.IntN(3) == 0 {
					w.ask(r, "POST", "/v1/rebalances", coordinator.RebalanceRequest{Budget: "acme/requests", From: "us-east", To: "eu-west", Units: 1 + random.Int64N(9)})
					continue
				}
				etag := w.request(r, "GET", "/v1/budgets/acme/requests", nil).Header().Get("ETag")
				status, answer := w.ask(r, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", fmt.Sprint(random.IntN(200))), "If-Match", etag)
				if status != 200 && status != 412 {
					t.Errorf("change answers %d %v", status, answer)
				}
			}
		})
	}
	wait.Wait()
	for range 4 {
		w.settle(w.replicas[0])
		east.untilQuiet(w.replicas[0])
		west.untilQuiet(w.replicas[1])
	}
	stop()
	w.conserved()
	for _, l := range w.replicas[0].Ledgers() {
		if l.Lowered(1) {
			t.Errorf("after all is settled, term %s has permits on their way: %+v", l.Periods.Start(), l.Entries)
		}
	}
}

// Calls and answers are lost, repeated and delayed at random. A late call is refused or changes nothing, an owner that is
// told so by an overtaken call still holds all its marks, and in the end everything is as promised.
func TestLostRepeatedReorderedCalls(t *testing.T) {
	w, east, west := two(t, 2)
	stop := w.watchLedgers(150)
	for seed := range uint64(3) {
		random := rand.New(rand.NewPCG(3, seed))
		var late []allocation.SyncCall
		for range 60 {
			f := []*fakeRegion{east, west}[random.IntN(2)]
			r := w.replicas[random.IntN(2)]
			f.spend("acme/requests", random.Int64N(3))
			call := f.call()
			late = append(late, call)
			switch random.IntN(6) {
			case 0: // the call is lost
			case 1: // the answer is lost
				if _, err := r.Sync(t.Context(), call); err != nil {
					t.Fatal(err)
				}
			case 2: // an old call comes again
				old := late[random.IntN(len(late))]
				a, err := r.Sync(t.Context(), old)
				if err != nil {
					t.Fatal(err)
				}
				if a.Refusal != "" && len(a.Contradicted) == 0 {
					t.Fatalf("a late call is refused for %s", a.Detail)
				}
			case 3:
				etag := w.request(r, "GET", "/v1/budgets/acme/requests", nil).Header().Get("ETag")
				w.ask(r, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", fmt.Sprint(50+random.IntN(100))), "If-Match", etag)
			default:
				a, err := r.Sync(t.Context(), call)
				if err != nil || a.Refusal != "" {
					t.Fatalf("seed %d: %v %s", seed, err, a.Detail)
				}
				f.apply(a)
			}
		}
	}
	for range 4 {
		w.settle(w.replicas[0])
		east.untilQuiet(w.replicas[0])
		west.untilQuiet(w.replicas[0])
	}
	stop()
	w.conserved()
	shares := get[coordinator.SharesAnswer](w, w.replicas[0], "/v1/shares/acme/requests")
	for _, s := range shares.Terms[1].Regions {
		if s.Granted-s.Returned != s.Target {
			t.Errorf("%s holds %d of the next term, target %d", s.Region, s.Granted-s.Returned, s.Target)
		}
	}
}

// An account of an older number must not undo a newer one: reports would understate what may still be spent.
func TestLateStatementsChangeNothing(t *testing.T) {
	w, east, _ := two(t, 1)
	r := w.replicas[0]
	east.spend("acme/requests", 10)
	old := east.call()
	east.spend("acme/requests", 20)
	east.sync(r)
	spent := func() int64 {
		return get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0].Regions[1].Spent
	}
	if spent() != 30 {
		t.Fatalf("stated %d", spent())
	}
	old.Marks = east.call().Marks // only the statements are late
	if a, err := r.Sync(t.Context(), old); err != nil || a.Refusal != "" {
		t.Fatalf("%v %s", err, a.Detail)
	}
	if spent() != 30 {
		t.Errorf("a late statement set what was spent to %d", spent())
	}
	w.must(r, 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "80"), "If-Match", `"1"`)
	generation := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0].Generation
	if a, err := r.Sync(t.Context(), old); err != nil || a.Refusal == "" {
		// Its marks are older than those of the calls since.
		if err != nil || len(a.Shares) == 0 {
			t.Fatalf("%v %+v", err, a)
		}
	}
	if got := get[coordinator.SharesAnswer](w, r, "/v1/shares/acme/requests").Terms[0].Generation; got != generation {
		t.Errorf("an account of an older generation made generation %s of %s", got, generation)
	}
}

// A held call is answered when something changes, not when its time is over: a lowered limit must not wait.
func TestHeldCallWakes(t *testing.T) {
	w, east, west := two(t, 2)
	for i, f := range []*fakeRegion{east, west} {
		call := f.call()
		call.WaitMillis = 60_000
		answered := make(chan allocation.SyncAnswer, 1)
		go func() {
			a, _ := w.replicas[i].Sync(t.Context(), call)
			answered <- a
		}()
		// The change is made on one replica, the call is held on it or on the other.
		w.must(w.replicas[0], 200, "PUT", "/v1/budgets/acme/requests", budgetJSON("acme/requests", "90"), "If-Match", fmt.Sprintf(`"%d"`, i+1))
		select {
		case a := <-answered:
			if len(a.Shares) == 0 || len(a.Budgets) == 0 {
				t.Errorf("answered without a word: %+v", a)
			}
			f.apply(a)
		case <-time.After(20 * time.Second):
			t.Fatal("the call is still held")
		}
		for _, r := range w.replicas {
			east.untilQuiet(r)
			west.untilQuiet(r)
			east.untilQuiet(r)
		}
	}
}

// A replica that does not know the base of a statement must not take a part for the whole.
func TestUnknownBaseAsksForTheWhole(t *testing.T) {
	w, east, _ := two(t, 1)
	east.spend("acme/requests", 5)
	other := w.start() // knows of what was stated to the first at most what that one has written meanwhile
	for range 3 {
		east.call() // lost
	}
	call := east.call()
	for i := range call.Statements {
		call.Statements[i].Base = call.Statements[i].Number - 1 // as if an answer had acknowledged it
	}
	a, err := other.Sync(t.Context(), call)
	if err != nil || len(a.Acknowledged) != 1 || !a.Acknowledged[0].Whole {
		t.Fatalf("%+v %v", a.Acknowledged, err)
	}
	east.apply(a)
	east.untilQuiet(other)
	if s := get[coordinator.SharesAnswer](w, other, "/v1/shares/acme/requests"); s.Terms[0].Regions[1].Spent != 5 {
		t.Errorf("%+v", s.Terms[0].Regions)
	}
}

// Without this a replica that ended before it wrote what it had acknowledged would leave what is stranded overstated for
// good: the owner would have nothing new to say.
func TestOnlyWhatIsInEtcdIsAcknowledged(t *testing.T) {
	w, east, _ := two(t, 1)
	east.spend("acme/requests", 5)
	call := east.call()
	acknowledged := func() int64 {
		a, err := w.replicas[0].Sync(t.Context(), call)
		if err != nil || len(a.Acknowledged) != 1 {
			t.Fatalf("%+v %v", a.Acknowledged, err)
		}
		return a.Acknowledged[0].Number
	}
	want := call.Statements[0].Number
	acknowledged()
	w.clock.move(3 * time.Second) // the shard may have been written just before, and is written every two seconds at most
	for deadline := time.Now().Add(20 * time.Second); acknowledged() != want; {
		if time.Now().After(deadline) {
			t.Fatalf("number %d is not acknowledged within 20 s", want)
		}
	}
	// A replica that starts now knows it, whatever becomes of the first.
	other := w.start()
	if s := get[coordinator.SharesAnswer](w, other, "/v1/shares/acme/requests"); s.Terms[0].Regions[1].Spent != 5 {
		t.Errorf("%+v", s.Terms[0].Regions)
	}
}

// What is only known reaches other replicas, and a replica that starts later.
func TestKnownIsPersisted(t *testing.T) {
	w, east, _ := two(t, 1)
	east.spend("acme/requests", 7)
	east.sync(w.replicas[0])
	w.persist(w.replicas[0])
	other := w.start()
	if s := get[coordinator.SharesAnswer](w, other, "/v1/shares/acme/requests"); s.Terms[0].Regions[1].Spent != 7 {
		t.Errorf("the other replica shows %+v", s.Terms[0].Regions)
	}
	if s := get[coordinator.RegionsList](w, other, "/v1/regions"); !s.Regions[1].InContact || s.Regions[1].Waiting != 0 {
		t.Errorf("the other replica shows %+v", s.Regions[1])
	}
	// It remembers the marks too.
	stale := east.call()
	stale.Marks[0].Count = 1
	if a, err := other.Sync(t.Context(), stale); err != nil || a.Refusal == "" {
		t.Errorf("a stale mark is taken: %+v %v", a, err)
	}
	if items, _, err := w.store.Range(t.Context(), coordinator.Root+"statements/us-east/"); err != nil || len(items) != 1 || !strings.Contains(string(items[0].Value), `"spent":7`) {
		t.Errorf("%d statements %v", len(items), err)
	}
}

// A replica whose clock is far ahead hears a region; later another one does. If this fails, what the region says from then
// on is not written before the wrong time comes: until then other replicas close no term of it, and know no newer mark.
func TestContactHeardByAWrongClock(t *testing.T) {
	w, east, _ := two(t, 2)
	say := func(r *replica) {
		east.sync(r)
		w.persist(r)
	}
	w.clock.move(40 * 24 * time.Hour)
	say(w.replicas[0])
	w.clock.move(-40 * 24 * time.Hour)
	east.closed = allocation.At(w.clock.now()) - 30
	say(w.replicas[1])
	items, _, err := w.store.Range(t.Context(), coordinator.Root+"contacts/"+east.name)
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	var c coordinator.Contact
	if err := json.Unmarshal(items[0].Value, &c); err != nil {
		t.Fatal(err)
	}
	if c.ClosedBefore != east.closed || c.At.After(w.clock.now()) {
		t.Errorf("the document says closed before %s, heard at %s; want %s, and no later than now", c.ClosedBefore, c.At, east.closed)
	}
}
