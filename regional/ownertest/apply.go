package ownertest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

func budget(name string, limit int64) allocation.Budget {
	return allocation.Budget{
		Name: name, Unit: "requests", Limit: &limit, Window: allocation.Window{Every: 60},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{Region: 1}},
	}.WithDefaults()
}

// share is a share as the owner stores it.
func (o *owner) share(budget string) allocation.Share {
	o.Helper()
	account, err := o.Owner.Export(o.Context(), "", 1000)
	o.must(err)
	for _, s := range account.Shares {
		if s.Budget == budget {
			return s
		}
	}
	o.Fatalf("no share of %s", budget)
	return allocation.Share{}
}

// A node that misses a change, or half of one, decides by budgets that never were.
func testChanges(o *owner) {
	answer := o.answer()
	answer.Config = 7
	answer.Budgets = []allocation.ConfiguredBudget{
		{Budget: budget("a", 10), Version: 1, Number: 5}, {Budget: budget("b", 20), Version: 1, Number: 6}, {Budget: budget("a", 11), Version: 2, Number: 7},
	}
	answer.Shares = []allocation.ShareGrant{o.grant("a", 1, 10, 10)}
	answer.Elsewhere = []allocation.Elsewhere{{Budget: "a", Period: o.first, Unallocated: 3}}
	answer.Revision = 42
	o.must(o.Owner.Apply(o.Context(), o.w, answer, 5))
	all, err := o.Other.Load(o.Context(), 0)
	o.must(err)
	if all.Config != 7 || all.Revision != 42 || all.ObservedAt != 5 || all.Deployment != "d" || all.History.Stamp != "h1" || all.Incarnation != "life-1" {
		o.Fatalf("%+v", all)
	}
	if !slices.Equal(all.Elsewhere, answer.Elsewhere) || len(all.Budgets) != 2 || len(all.Terms) != 1 {
		o.Fatalf("%+v", all)
	}
	slices.SortFunc(all.Budgets, func(a, b allocation.ConfiguredBudget) int { return int(a.Number - b.Number) })
	if got := all.Budgets[1]; got.Version != 2 || !reflect.DeepEqual(got.Budget, budget("a", 11)) {
		o.Fatalf("%+v", got)
	}
	if got, g := all.Terms[0], answer.Shares[0]; got.Budget != "a" || !reflect.DeepEqual(got.Periods, g.Periods) || !reflect.DeepEqual(got.Policy, g.Policy) || !slices.Equal(got.Regions, g.Regions) {
		o.Fatalf("%+v", got)
	}
	// What is older, and what is known, changes nothing; evidence that is older neither.
	answer.Budgets, answer.Config, answer.Revision = answer.Budgets[:1], 5, 41
	o.must(o.Owner.Apply(o.Context(), o.w, answer, 4))
	same, err := o.Owner.Load(o.Context(), all.Changes)
	o.must(err)
	if same.Changes != all.Changes || same.Config != 7 || same.Revision != 42 || same.ObservedAt != 5 || len(same.Budgets)+len(same.Terms) != 0 {
		o.Fatalf("%+v", same)
	}
	answer.Budgets = []allocation.ConfiguredBudget{{Budget: budget("b", 20), Version: 2, Number: 8, Deleted: true}}
	answer.Config, answer.Shares, answer.Closed = 8, nil, []allocation.ShareRef{o.ref("a"), {Budget: "never", Term: 60}}
	o.apply(answer)
	next, err := o.Owner.Load(o.Context(), all.Changes)
	o.must(err)
	if next.Changes <= all.Changes || len(next.Budgets) != 1 || !next.Budgets[0].Deleted || len(next.Terms) != 0 || !slices.Equal(next.Gone, answer.Closed[:1]) {
		o.Fatalf("%+v", next)
	}
	o.behind(next.Changes)
}

// behind checks what a batch reads of changes: all, or nothing and that the node is too far behind.
func (o *owner) behind(changes int64) {
	o.Helper()
	read := func(after int64) (int, bool) {
		b := o.begin(o.w, o.want("x"))
		b.Abandon()
		want := o.want("x")
		want.Changes = after
		b = o.begin(o.w, want)
		defer b.Abandon()
		return len(b.Seen().Budgets), b.Seen().Behind
	}
	answer := o.answer()
	for i := range 100 {
		answer.Budgets = append(answer.Budgets, allocation.ConfiguredBudget{Budget: budget(fmt.Sprint("many/", i), 1), Version: 1, Number: 9})
	}
	o.apply(answer)
	if n, behind := read(changes); n != 100 || behind {
		o.Fatalf("%d changes, behind %v", n, behind)
	}
	answer.Budgets = []allocation.ConfiguredBudget{{Budget: budget("one/more", 1), Version: 1, Number: 10}}
	o.apply(answer)
	if n, behind := read(changes); n != 0 || !behind {
		o.Fatalf("%d changes, behind %v", n, behind)
	}
	if n, behind := read(changes + 1); n != 1 || behind {
		o.Fatalf("%d changes, behind %v", n, behind)
	}
}

// A message of an older generation must change nothing; one that contradicts what is stored says that one side lost its
// history (invariant 8).
func testGenerations(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Spend, "one", 4, a)
	grant := func(g allocation.ShareGrant) error {
		answer := o.answer()
		answer.Shares = []allocation.ShareGrant{g}
		return o.Owner.Apply(o.Context(), o.w, answer, 1)
	}
	o.must(grant(o.grant("a", 3, 30, 30)))
	o.must(grant(o.grant("a", 2, 20, 0)))
	o.must(grant(o.grant("a", 3, 99, 99))) // the same generation, whatever it says
	if s := o.share("a"); s.Generation.Number != 3 || s.Entries[0].Granted != 30 || s.Entries[0].Returned != 0 {
		o.Fatalf("%+v", s)
	}
	if u := o.usage(a); u.Granted != 30 || u.Generation != 3 || u.Spent != 4 || u.Returned != 0 {
		o.Fatalf("%+v", u)
	}
	before := o.share("a")
	other := o.grant("a", 3, 30, 30)
	other.Generation.Stamp = "another"
	o.mustBe(grant(other), allocation.ErrContradicted)
	counted := o.grant("a", 4, 30, 30)
	counted.Entries[0].Returned = 5
	o.mustBe(grant(counted), allocation.ErrContradicted)
	longer := o.grant("a", 5, 30, 30)
	longer.Periods.Count++
	o.mustBe(grant(longer), allocation.ErrContradicted)
	if after := o.share("a"); !reflect.DeepEqual(before, after) {
		o.Fatalf("%+v, before %+v", after, before)
	}
}

// The giver lowers first: what a lowered target leaves free must be returned in the commit that stores it, and what is
// spent or reserved must not (invariant 4).
func testReturns(o *owner) {
	o.joined(10, "a")
	used, full, unused := o.key("a", 0), o.key("a", 1), o.key("a", 2)
	o.mustCharge(allocation.Spend, "one", 2, used)
	o.mustCharge(allocation.Reserve, "two", 3, used)
	o.mustCharge(allocation.Spend, "three", 9, full)
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{o.grant("a", 2, 10, 4)}
	o.apply(answer)
	for k, returned := range map[allocation.UsageKey]int64{used: 5, full: 1} {
		if u := o.usage(k); u.Returned != returned || u.Target != 4 || u.Spent+u.Reserved > u.Granted-u.Returned {
			o.Fatalf("%+v, want %d returned", u, returned)
		}
	}
	if s := o.share("a"); s.Entries[0].Returned != 6 {
		o.Fatalf("%+v", s)
	}
	b := o.begin(o.w, o.want("four", unused))
	defer b.Abandon()
	if u := b.Seen().Usage[unused]; u.Granted != 10 || u.Returned != 6 || u.Target != 4 {
		o.Fatalf("made later: %+v", u)
	}
}

// A grant, and a seal after it, must see every row that is made under its share: one that it missed would keep what the
// ledger gives to others (invariant 9).
func testGrantWaits(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	making := o.begin(o.w, o.want("one", a))
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{o.grant("a", 2, 10, 4)}
	applied := background(func() error { return o.Other.Apply(o.Context(), o.second, answer, 1) })
	o.othersGo()
	select {
	case err := <-applied:
		o.Fatalf("applied while a row was being made: %v", err)
	default:
	}
	writes, _ := admission(making.Seen(), allocation.Spend, "one", 3, a)
	o.must(making.Commit(o.Context(), writes))
	o.must(receive(o, applied))
	if u := o.usage(a); u.Generation != 2 || u.Returned != 6 || u.Spent != 3 {
		o.Fatalf("%+v", u)
	}
}

// Whatever a decision rests on must be read from the row as it is after the wait for its lock.
func testReadAfterWait(o *owner) {
	o.joined(100, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Spend, "zero", 1, a)
	applier := o.writer(o.Owner)
	for generation := int64(2); generation < 7; generation++ {
		name := fmt.Sprint("id-", generation)
		want := o.want(name, a)
		want.Usage[0].Make = false // else the share's lock would be waited for, not the row's
		holding := o.begin(o.w, want)
		answer := o.answer()
		answer.Shares, answer.Revision = []allocation.ShareGrant{o.grant("a", generation, 100+generation, 100+generation)}, generation
		applied := background(func() error { return o.Owner.Apply(o.Context(), applier, answer, generation) })
		o.othersGo() // it waits first, most likely; either order must do
		waiting := background(func() *regional.Seen {
			b, err := o.Other.Begin(o.Context(), o.second, want)
			if err != nil {
				o.Error(err)
				return nil
			}
			defer b.Abandon()
			return b.Seen()
		})
		o.othersGo()
		writes, _ := admission(holding.Seen(), allocation.Spend, name, 1, a)
		o.must(holding.Commit(o.Context(), writes))
		seen := receive(o, waiting)
		o.must(receive(o, applied))
		if seen == nil {
			return
		}
		// The owner's row is read under the lock, so it tells which grants the locked row must show.
		u := seen.Usage[a]
		if known := max(1, seen.Revision); u.Spent != generation || u.Generation != known || known > 1 && u.Granted != 100+known {
			o.Fatalf("generation %d: %+v", generation, u)
		}
	}
}

// An answer for somebody else would let two databases spend one share (invariant 3).
func testWhoseAnswer(o *owner) {
	first := o.answer()
	first.History.Number = 5
	first.Shares = []allocation.ShareGrant{o.grant("a", 1, 10, 10)}
	o.apply(first)
	for name, test := range map[string]struct {
		change func(a *allocation.SyncAnswer)
		err    error
	}{
		"another deployment":    {func(a *allocation.SyncAnswer) { a.Deployment = "e" }, allocation.ErrContradicted},
		"another incarnation":   {func(a *allocation.SyncAnswer) { a.Incarnation = "life-2" }, allocation.ErrContradicted},
		"another stamp":         {func(a *allocation.SyncAnswer) { a.History.Stamp = "x" }, allocation.ErrContradicted},
		"an older history":      {func(a *allocation.SyncAnswer) { a.History.Number, a.History.Stamp = 4, "x" }, nil},
		"an older one's demand": {func(a *allocation.SyncAnswer) { a.History.Number, a.Refusal = 4, "history_lost" }, nil},
	} {
		answer := first
		answer.Shares = []allocation.ShareGrant{o.grant("a", 2, 99, 99)}
		test.change(&answer)
		if err := o.Owner.Apply(o.Context(), o.w, answer, 1); test.err == nil {
			o.must(err)
		} else {
			o.mustBe(err, test.err)
		}
		if s := o.share("a"); s.Generation.Number != 1 {
			o.Fatalf("%s: %+v", name, s)
		}
	}
	newer := first
	newer.History = allocation.History{Number: 6, Stamp: "h6"}
	o.apply(newer)
	l, err := o.Owner.Load(o.Context(), 0)
	o.must(err)
	if l.History != newer.History || l.Incarnation != "life-1" || l.Stopped != "" {
		o.Fatalf("%+v", l)
	}
}

// A region that was told to stop must not go on, on any node, and must say the first reason.
func testStop(o *owner) {
	o.joined(10, "a")
	running := o.begin(o.w, o.want("one", o.key("a", 0)))
	stopped := background(func() error {
		lost, err := o.Other.Lose(o.Context(), "whoever", "first")
		if err == nil && !lost {
			return errors.New("nothing was lost")
		}
		return err
	})
	o.othersGo()
	select {
	case err := <-stopped:
		o.Fatalf("it returned while a batch may still commit: %v", err)
	default:
	}
	writes, _ := admission(running.Seen(), allocation.Spend, "one", 1, o.key("a", 0))
	o.must(running.Commit(o.Context(), writes))
	o.must(receive(o, stopped))
	_, err := o.Owner.Lose(o.Context(), "another", "second")
	o.must(err)
	answer := o.answer()
	answer.Refusal, answer.Detail, answer.Shares = "frozen", "third", []allocation.ShareGrant{o.grant("a", 2, 99, 99)}
	o.apply(answer)
	answer.Refusal = ""
	o.apply(answer)
	b := o.begin(o.w, o.want("two", o.key("a", 0)))
	defer b.Abandon()
	if s := b.Seen(); s.Stopped != allocation.HistoryLost || !s.Lost || s.Detail != "first" || s.Usage[o.key("a", 0)].Granted != 10 {
		o.Fatalf("%+v", s)
	}
}
