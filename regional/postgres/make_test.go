//go:build unix

package postgres

import (
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// If this failed a usage row could appear behind a seal that counted all rows of its share (invariant 9).
func TestUsageIsMadeUnderTheShareLock(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	c := o.conn()
	tx, err := c.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tranche.shares for update"); err != nil {
		t.Fatal(err)
	}
	// A row that exists is not held up: batches of running periods never wait for a share row.
	b, err := o.begin(o.store, o.w, nil, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	b.Abandon()
	done := make(chan error, 1)
	go func() {
		_, err := o.spend(o.store, o.w, "second", o.key("a", 11))
		done <- err
	}()
	look := o.conn()
	waitFor(t, "the batch to wait for the share row", func() bool { return o.waiters(look) == 1 })
	if n := o.number("select count(*) from tranche.usage"); n != 1 {
		t.Fatalf("%d usage rows", n)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// If this failed a template could grow past its bound, or be refused below it.
func TestOneInstanceTooManyIsFull(t *testing.T) {
	o := newOwner(t)
	g := o.grant("t", 1, 5, 5)
	g.Template = true
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{g}})
	want := func(instances ...string) regional.Want {
		w := regional.Want{Changes: noChanges}
		for _, i := range instances {
			k := o.key("t", 10)
			k.Instance = i
			u := o.wanted(k, true)
			u.MaxInstances = 3
			w.Usage = append(w.Usage, u)
		}
		return w
	}
	begin := func(keep bool, w regional.Want) regional.Seen {
		t.Helper()
		b, err := o.store.Begin(t.Context(), o.w, w)
		if err != nil {
			t.Fatal(err)
		}
		if !keep {
			b.Abandon()
		} else if err := b.Commit(t.Context(), regional.Writes{}); err != nil {
			t.Fatal(err)
		}
		return *b.Seen()
	}
	begin(false, want("x", "y", "z")) // rolled back, with its count
	if seen := begin(true, want("a", "b")); len(seen.Usage) != 2 || len(seen.Full) != 0 {
		t.Fatalf("two of three: %+v", seen)
	}
	peek, err := o.store.Peek(t.Context(), want("c", "d"))
	if err != nil || len(peek.Usage) != 1 || len(peek.Full) != 1 {
		t.Fatalf("a look at two more: %+v, %v", peek, err)
	}
	seen := begin(true, want("a", "c", "d"))
	full := o.key("t", 10)
	full.Instance = "d"
	if len(seen.Usage) != 2 || !seen.Full[full] || len(seen.Full) != 1 {
		t.Fatalf("one too many: %+v", seen)
	}
	if seen := begin(true, want("b", "c")); len(seen.Full) != 0 || len(seen.Usage) != 2 {
		t.Fatalf("those that exist: %+v", seen)
	}
}

// If this failed a node with a wrong idea of a period would write it down for good.
func TestOnlyPeriodsOfTheShareAreMade(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	for name, change := range map[string]func(*regional.WantedUsage){
		"off the grid":    func(w *regional.WantedUsage) { w.Period++ },
		"before the term": func(w *regional.WantedUsage) { w.Period = o.first - 60 },
		"after the term":  func(w *regional.WantedUsage) { w.Period = o.first + 3600 },
		"another term":    func(w *regional.WantedUsage) { w.Term -= 3600 },
		"another class":   func(w *regional.WantedUsage) { w.Class = allocation.Protected },
		"an instance":     func(w *regional.WantedUsage) { w.Instance = "x" },
	} {
		u := o.wanted(o.key("a", 10), true)
		change(&u)
		b, err := o.store.Begin(t.Context(), o.w, regional.Want{Usage: []regional.WantedUsage{u}, Changes: noChanges})
		if err != nil {
			t.Fatal(err)
		}
		if seen := b.Seen(); len(seen.Usage)+len(seen.Full) != 0 {
			t.Errorf("%s: made %+v", name, seen.Usage)
		}
		b.Abandon()
	}
}

// If this failed a term of uneven periods could not be spent, or to wrong ends.
func TestUnevenPeriodsEndWhereTheirTermSays(t *testing.T) {
	o := newOwner(t)
	g := o.grant("month", 1, 5, 5)
	g.Periods = allocation.Periods{Instants: []allocation.Instant{o.first, o.first + 1000, allocation.Never}}
	g.Entries[0].Until = allocation.Never
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{g}})
	for start, end := range map[allocation.Instant]allocation.Instant{o.first: o.first + 1000, o.first + 1000: allocation.Never} {
		k := allocation.UsageKey{Budget: "month", Period: start, Class: allocation.General}
		o.mustSpend(start.String(), k)
		if got := o.usage(k).Until; got != end {
			t.Errorf("the period from %s ends at %s, not %s", start, got, end)
		}
	}
}
