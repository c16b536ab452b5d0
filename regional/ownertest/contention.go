package ownertest

import (
	"context"
	"fmt"
	"math"
	"sync"

	"tranche/allocation"
	"tranche/regional"
)

// Whoever waited for a row must see it, and the ids, as they are after the wait: else one id is charged twice.
func testLockWait(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Spend, "zero", 1, a)
	for i := range 5 {
		name := fmt.Sprint("id-", i)
		first := o.begin(o.w, o.want(name, a))
		waiting := background(func() regional.Batch {
			b, err := o.Other.Begin(o.Context(), o.second, o.want(name, a))
			if err != nil {
				o.Error(err)
			}
			return b
		})
		o.othersGo()
		writes, _ := admission(first.Seen(), allocation.Spend, name, 1, a)
		o.must(first.Commit(o.Context(), writes))
		second := receive(o, waiting)
		if second == nil {
			return
		}
		seen := second.Seen()
		second.Abandon()
		if seen.Usage[a].Spent != int64(i+2) || seen.IDs[id(name)] == nil {
			o.Fatalf("after the wait: %+v, id %v", seen.Usage[a], seen.IDs[id(name)])
		}
	}
}

// Two batches that want the same rows must never stop each other for good.
func testLockOrder(o *owner) {
	budgets := []string{"a", "b", "c", "d"}
	o.joined(1000, budgets...)
	var parts sync.WaitGroup
	for n, w := range []regional.Writer{o.w, o.second} {
		parts.Go(func() {
			for i := range 10 {
				var keys []allocation.UsageKey
				for j := range budgets {
					keys = append(keys, o.key(budgets[(i+j)%len(budgets)], (i+n)%3))
				}
				if ok, err := o.charge(w, allocation.Spend, fmt.Sprint(n, "-", i), 1, keys...); err != nil || !ok {
					o.Errorf("admitted %v, %v", ok, err)
				}
			}
		})
	}
	parts.Wait()
	sum := int64(0)
	for minute := range 3 {
		for _, b := range budgets {
			sum += o.spent(o.key(b, minute))
		}
	}
	if sum != 2*10*4 {
		o.Fatalf("spent %d", sum)
	}
}

// One id that two nodes insert must be charged once, also where they have no row in common.
func testSameID(o *owner) {
	o.joined(10, "a", "b")
	a, b := o.key("a", 0), o.key("b", 0)
	first, second := o.begin(o.w, o.want("one", a)), o.begin(o.second, o.want("one", b))
	one, _ := admission(first.Seen(), allocation.Spend, "one", 1, a)
	two, _ := admission(second.Seen(), allocation.Spend, "one", 1, b)
	o.must(first.Commit(o.Context(), one))
	o.mustBe(second.Commit(o.Context(), two), regional.ErrRaced)
	if o.spent(a) != 1 || o.spent(b) != 0 {
		o.Fatalf("spent %d and %d", o.spent(a), o.spent(b))
	}
	if committed, err := o.second.Resolve(o.Context()); err != nil || committed {
		o.Fatal(committed, err)
	}
}

// A reservation must end in one way: settled and released at once would give its permits back and spend them.
func testSameIDChanged(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Reserve, "one", 4, a)
	want := regional.Want{IDs: []allocation.IDKey{id("one")}, Changes: math.MaxInt64}
	first, second := o.begin(o.w, want), o.begin(o.second, want)
	end := func(b regional.Batch, s allocation.State) error {
		a := b.Seen().IDs[id("one")]
		a.State = s
		return b.Commit(o.Context(), regional.Writes{Updated: []*allocation.Admission{a}})
	}
	o.must(end(first, allocation.StateReleased))
	o.mustBe(end(second, allocation.StateSettled), regional.ErrRaced)
	if got := o.found("one"); got.State != allocation.StateReleased {
		o.Fatalf("%+v", got)
	}
}

// However many try at once, no permit is spent twice, and none is left that somebody asked for.
func testMany(o *owner) {
	const permits, nodes, each = 25, 6, 8
	o.joined(permits, "a")
	a := o.key("a", 0)
	var parts sync.WaitGroup
	admitted := make([]int, nodes)
	for n := range nodes {
		w := o.writer(o.Owner)
		parts.Go(func() {
			for i := range each {
				ok, err := o.charge(w, allocation.Spend, fmt.Sprint(n, "-", i), 1, a)
				if err != nil {
					o.Error(err)
				}
				if ok {
					admitted[n]++
				}
			}
		})
	}
	parts.Wait()
	sum := 0
	for _, n := range admitted {
		sum += n
	}
	if sum != permits || o.spent(a) != permits {
		o.Fatalf("admitted %d, spent %d of %d", sum, o.spent(a), permits)
	}
}

// A caller that stops waiting for a commit must learn that it does not know, and then the truth; and until it knows, it
// must not go on.
func testUnknownOutcome(o *owner) {
	o.joined(1000, "a")
	a := o.key("a", 0)
	unknown, spent := 0, int64(0)
	for i := range 20 {
		name := fmt.Sprint("id-", i)
		batch := o.begin(o.w, o.want(name, a))
		writes, _ := admission(batch.Seen(), allocation.Spend, name, 1, a)
		ctx, cancel := context.WithCancel(o.Context())
		cancel()
		err := batch.Commit(ctx, writes)
		committed := err == nil
		if err != nil {
			o.mustBe(err, regional.ErrUnknownOutcome)
			unknown++
			ctx, cancel := o.later()
			committed, err = o.w.Resolve(ctx)
			o.must(err)
			cancel()
		}
		if committed {
			spent++
		}
		if (o.found(name) != nil) != committed || o.spent(a) != spent {
			o.Fatalf("told committed %v; spent %d of %d", committed, o.spent(a), spent)
		}
	}
	if unknown == 0 {
		o.Fatal("no outcome was unknown")
	}
}
