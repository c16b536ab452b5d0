//go:build unix

package postgres

import (
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// If this failed nothing of a batch would be as it was written.
func TestBatchWritesAndReadsBack(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.give("b", 10)
	a, b := o.key("a", 10), o.key("b", 10)
	o.mustSpend("one", a, b)
	seen, err := o.store.Peek(t.Context(), regional.Want{IDs: []allocation.IDKey{id("none"), id("one")}, OfIDs: []allocation.IDKey{id("one")}})
	if err != nil {
		t.Fatal(err)
	}
	got := seen.IDs[id("one")]
	if got == nil || len(seen.IDs) != 1 || len(got.Lines) != 2 || got.Lines[0].UsageKey != a || got.Lines[1].UsageKey != b ||
		got.Lines[0].Remaining != 9 || got.First.Correlation != `"\{}` || got.Payload != "0123456789abcdef" || got.State != allocation.StateSpent {
		t.Fatalf("read back %+v", got)
	}
	if len(seen.Usage) != 2 || seen.Usage[a].Spent != 1 || seen.Usage[b].Spent != 1 {
		t.Fatalf("usage %+v", seen.Usage)
	}
	if len(seen.Terms) != 2 || seen.Changes != 2 || seen.Unsafe != "" || seen.Incarnation != "life-1" || seen.Home.System == "" || seen.Home.Timeline != 1 {
		t.Fatalf("seen %+v", seen.Loaded)
	}
	if ok, err := o.spend(o.store, o.w, "one", a); ok || err != nil {
		t.Fatalf("the id was admitted again: %v, %v", ok, err)
	}
}

// begin starts a batch over some existing rows and ids.
func (o *owner) begin(s *Store, w regional.Writer, names []string, keys ...allocation.UsageKey) (regional.Batch, error) {
	want := regional.Want{Changes: noChanges}
	for _, n := range names {
		want.IDs = append(want.IDs, id(n))
	}
	for _, k := range keys {
		want.Usage = append(want.Usage, o.wanted(k, false))
	}
	return s.Begin(o.t.Context(), w, want)
}

// begun is a batch that begins in the background.
type begun struct {
	batch regional.Batch
	err   error
}

func (o *owner) beginLater(s *Store, w regional.Writer, names []string, keys ...allocation.UsageKey) <-chan begun {
	out := make(chan begun, 1)
	go func() {
		b, err := o.begin(s, w, names, keys...)
		out <- begun{b, err}
	}()
	return out
}

// If this failed a batch that waited would decide on what it saw before the wait: spend a permit twice, admit an id twice.
func TestWhatWasCommittedDuringTheWaitIsSeen(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	held, err := o.begin(o.store, o.w, []string{"second"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	look := o.conn()
	waits := o.beginLater(o.store, o.writer(o.store), []string{"second"}, o.key("a", 10))
	waitFor(t, "the second batch to wait", func() bool { return o.waiters(look) == 1 })
	writes, _ := chargeAll(held.Seen(), allocation.Spend, "second", []allocation.UsageKey{o.key("a", 10)})
	if err := held.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	got := <-waits
	if got.err != nil {
		t.Fatal(got.err)
	}
	defer got.batch.Abandon()
	seen := got.batch.Seen()
	if seen.Usage[o.key("a", 10)].Spent != 2 || seen.IDs[id("second")] == nil {
		t.Fatalf("saw spent %d, the id %v", seen.Usage[o.key("a", 10)].Spent, seen.IDs)
	}
	if seen.Now < seen.IDs[id("second")].At {
		t.Fatal("the clock was read before the locks")
	}
}

// If this failed one id could be charged by two nodes at once.
func TestOneIDInTwoStoresIsAdmittedOnce(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.give("b", 10)
	other := open(t, o.url)
	w := o.writer(other)
	o.mustSpend("make-a", o.key("a", 10))
	o.mustSpend("make-b", o.key("b", 10))
	one, err := o.begin(o.store, o.w, []string{"same"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	two, err := o.begin(other, w, []string{"same"}, o.key("b", 10))
	if err != nil {
		t.Fatal(err)
	}
	first, _ := chargeAll(one.Seen(), allocation.Spend, "same", []allocation.UsageKey{o.key("a", 10)})
	second, _ := chargeAll(two.Seen(), allocation.Spend, "same", []allocation.UsageKey{o.key("b", 10)})
	if err := one.Commit(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	mustBe(t, two.Commit(t.Context(), second), regional.ErrRaced)
	if ok, err := o.spend(other, w, "same", o.key("b", 10)); ok || err != nil {
		t.Fatalf("after the race: %v, %v", ok, err)
	}
	if o.usage(o.key("b", 10)).Spent != 1 || o.idCount("same") != 1 {
		t.Fatal("the batch that was raced left something")
	}
}

// If this failed ids could be committed with nothing charged, as after a rollover or with another search_path.
func TestWritesThatMatchNoRowAbortAll(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	for name, change := range map[string]func(*regional.Writes){
		"no such row": func(w *regional.Writes) { w.Usage[0].Period += 60 },
		"another grant": func(w *regional.Writes) {
			w.Usage[0].Granted++
		},
		"an id that exists": func(w *regional.Writes) { w.Inserted[0].IDKey = id("first") },
	} {
		b, err := o.begin(o.store, o.w, []string{name}, o.key("a", 10))
		if err != nil {
			t.Fatal(err)
		}
		writes, _ := chargeAll(b.Seen(), allocation.Spend, name, []allocation.UsageKey{o.key("a", 10)})
		change(&writes)
		mustBe(t, b.Commit(t.Context(), writes), regional.ErrRaced)
		if o.usage(o.key("a", 10)).Spent != 1 || o.idCount(name) != 0 {
			t.Fatalf("%s: something was written", name)
		}
	}
	o.mustSpend("after", o.key("a", 10)) // and the connection is as good as new
}

// If this failed a bug in a decision could break the cap (invariant 2): the database itself refuses.
func TestChecksRepeatTheInvariants(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	c := o.conn()
	for _, set := range []string{"spent = 11", "reserved = 10", "spent = -1", "returned = 10", "returned = -1", "granted = 0", "overdraft = -1", "class = 'other'"} {
		if _, err := c.Exec(t.Context(), "update tranche.usage set "+set); err == nil {
			t.Errorf("%s was accepted", set)
		}
	}
	b, err := o.begin(o.store, o.w, nil, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	u := b.Seen().Usage[o.key("a", 10)]
	u.Spent = 11
	if err := b.Commit(t.Context(), regional.Writes{Usage: []*allocation.Usage{u}}); err == nil {
		t.Fatal("a batch spent more than its share")
	}
}

// If this failed one bad request would leave a half-written batch, or break the writer.
func TestOneBadRowCommitsNothing(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	b, err := o.begin(o.store, o.w, []string{"good", "bad"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "good", []allocation.UsageKey{o.key("a", 10)})
	bad := *writes.Inserted[0]
	bad.ID = "bad\x00"
	writes.Inserted = append(writes.Inserted, &bad)
	err = b.Commit(t.Context(), writes)
	if err == nil || isAny(err, regional.ErrRaced, regional.ErrUnknownOutcome, regional.ErrHistoryLost) {
		t.Fatalf("got %v, want a plain error", err)
	}
	if o.idCount("good") != 0 {
		t.Fatal("a neighbour was committed")
	}
	o.mustSpend("good", o.key("a", 10))
}

// If this failed a node could decide on budgets that it never heard of, or miss some for ever.
func TestANodeFarBehindIsTold(t *testing.T) {
	o := newOwner(t)
	var budgets []allocation.ConfiguredBudget
	limit := int64(5)
	for i := range regional.MaxChanges + 1 {
		name := string(rune('a'+i%26)) + string(rune('a'+i/26))
		budgets = append(budgets, allocation.ConfiguredBudget{Version: 1, Number: 1, Budget: allocation.Budget{
			Name: name, Unit: "requests", Limit: &limit, Window: allocation.Window{Every: 60},
		}})
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Budgets: budgets, Config: 7})
	b, err := o.store.Begin(t.Context(), o.w, regional.Want{})
	if err != nil {
		t.Fatal(err)
	}
	b.Abandon()
	if seen := b.Seen(); !seen.Behind || len(seen.Budgets) != 0 || seen.Changes != 1 {
		t.Fatalf("seen %+v", seen)
	}
	l, err := o.store.Load(t.Context(), 0)
	if err != nil || len(l.Budgets) != len(budgets) || l.Config != 7 || l.Changes != 1 {
		t.Fatalf("loaded %d budgets of %d, %v", len(l.Budgets), len(budgets), err)
	}
	if b := l.Budgets[0].Budget; b.LimitOrZero() != 5 || b.Window.Every != 60 {
		t.Fatalf("loaded %+v", b)
	}
	if l, err = o.store.Load(t.Context(), l.Changes); err != nil || len(l.Budgets) != 0 {
		t.Fatalf("loaded again: %+v, %v", l, err)
	}
}
