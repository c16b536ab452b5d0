//go:build unix

package postgres

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"tranche/allocation"
	"tranche/regional"
)

// If this failed a return would not be durable before the ledger hears of it (invariant 4), or permits would be given back
// twice.
func TestALoweringReturnsInTheSameCommit(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	for i := range 4 {
		o.mustSpend(fmt.Sprint("spent-", i), o.key("a", 10))
	}
	if _, err := o.charge(t.Context(), o.store, o.w, allocation.Reserve, "held", o.key("a", 11)); err != nil {
		t.Fatal(err)
	}
	before, err := o.store.Export(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{o.grant("a", 2, 10, 3)}})
	for minute, want := range map[int]allocation.Usage{
		10: {Granted: 10, Returned: 6, Target: 3, Spent: 4}, // more was spent than the target
		11: {Granted: 10, Returned: 7, Target: 3, Reserved: 1},
	} {
		got := o.usage(o.key("a", minute))
		if got.Granted != want.Granted || got.Returned != want.Returned || got.Target != want.Target || got.Spent != want.Spent || got.Reserved != want.Reserved || got.Generation != 2 {
			t.Errorf("minute %d: %+v", minute, got)
		}
	}
	call, err := o.store.Statements(t.Context(), o.w, nil)
	if err != nil {
		t.Fatal(err)
	}
	stated := call.Statements[0].Shares[0]
	// What the pure functions make of the account before and the grant is what must be stated.
	share, changed, err := before.Shares[0].Apply(o.grant("a", 2, 10, 3))
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	var used []allocation.Usage
	for _, u := range before.Usage {
		used = append(used, u.Take(share))
	}
	if want := share.Statement(used, nil); !reflect.DeepEqual(stated, want) {
		t.Fatalf("stated %+v, want %+v", stated, want)
	}
	// A period that is used from now on starts from what was returned of it.
	o.mustSpend("later", o.key("a", 12))
	if got := o.usage(o.key("a", 12)); got.Granted != 10 || got.Returned != 7 || got.Spent != 1 {
		t.Errorf("a new period: %+v", got)
	}
}

// If this failed an answer that is late, repeated or overtaken would move permits (invariant 8).
func TestAnswersInAnyOrderEndTheSame(t *testing.T) {
	limit := func(n int64) *int64 { return &n }
	var ends []regional.Account
	for seed := range uint64(4) {
		o := newOwner(t)
		o.first = 1_800_000_000
		o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{o.grant("a", 1, 10, 10)}})
		o.mustSpend("one", o.key("a", 10))
		var answers []allocation.SyncAnswer
		for g := int64(2); g <= 6; g++ {
			answers = append(answers, allocation.SyncAnswer{
				Incarnation: "life-1", Config: g, Revision: g,
				Shares: []allocation.ShareGrant{o.grant("a", g, 10+g, 10+g-4*(g%2)), o.grant("b", g, g, g)},
				Budgets: []allocation.ConfiguredBudget{{Version: g, Number: g, Budget: allocation.Budget{
					Name: "a", Unit: "requests", Limit: limit(10 * g), Window: allocation.Window{Every: 60},
				}}},
			})
		}
		last := len(answers) - 1
		order := []int{last} // the newest comes somewhere, and others after it
		random := rand.New(rand.NewPCG(seed, 0))
		for range 2 * last {
			order = append(order, random.IntN(last))
		}
		random.Shuffle(len(order)/2, func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, n := range order {
			if err := o.store.Apply(t.Context(), o.w, answers[n], int64(100+n)); err != nil {
				t.Fatal(err)
			}
		}
		l, err := o.store.Load(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if l.Config != 6 || l.Revision != 6 || l.ObservedAt != 104 || l.Budgets[0].Version != 6 || l.Budgets[0].Budget.LimitOrZero() != 60 {
			t.Fatalf("order %v: loaded %+v", order, l)
		}
		account, err := o.store.Export(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		account.Now = 0
		for i := range account.Shares {
			// What was returned on the way depends on which grants came; what is held does not fall below the newest.
			for j := range account.Shares[i].Entries {
				e := &account.Shares[i].Entries[j]
				if e.Granted-e.Returned > e.Target {
					t.Errorf("order %v: %+v", order, *e)
				}
				e.Returned = 0
			}
		}
		for i := range account.Usage {
			account.Usage[i].Returned = 0
		}
		ends = append(ends, account)
	}
	for _, e := range ends[1:] {
		if !reflect.DeepEqual(e, ends[0]) {
			t.Errorf("one order ends as\n%+v\nanother as\n%+v", ends[0], e)
		}
	}
}

// If this failed two lost histories could go unnoticed, or an old message could undo a newer one.
func TestAnswersThatDoNotFit(t *testing.T) {
	o := newOwner(t)
	first := allocation.SyncAnswer{
		Deployment: "d1", Incarnation: "life-1", History: allocation.History{Number: 3, Stamp: "h3"},
		Shares: []allocation.ShareGrant{o.grant("a", 5, 10, 10)},
	}
	o.apply(first) // its history is heeded, and no more
	o.apply(first)
	other := o.grant("a", 5, 99, 99)
	other.Generation.Stamp = "another"
	elsewhere := o.grant("a", 6, 99, 99)
	elsewhere.Periods.Count++
	newer := []allocation.ShareGrant{o.grant("a", 6, 99, 99)}
	good := allocation.SyncAnswer{Deployment: "d1", Incarnation: "life-1", History: allocation.History{Number: 3, Stamp: "h3"}, Shares: newer}
	change := func(f func(*allocation.SyncAnswer)) allocation.SyncAnswer {
		a := good
		f(&a)
		return a
	}
	for name, c := range map[string]struct {
		answer allocation.SyncAnswer
		want   error
	}{
		"another deployment":                     {change(func(a *allocation.SyncAnswer) { a.Deployment = "d2" }), allocation.ErrContradicted},
		"another incarnation":                    {change(func(a *allocation.SyncAnswer) { a.Incarnation = "life-2" }), allocation.ErrContradicted},
		"an older history":                       {change(func(a *allocation.SyncAnswer) { a.History = allocation.History{Number: 2, Stamp: "h2"} }), nil},
		"the same history number, another stamp": {change(func(a *allocation.SyncAnswer) { a.History.Stamp = "other" }), allocation.ErrContradicted},
		"the same generation, another stamp":     {change(func(a *allocation.SyncAnswer) { a.Shares = []allocation.ShareGrant{other} }), allocation.ErrContradicted},
		"other periods":                          {change(func(a *allocation.SyncAnswer) { a.Shares = []allocation.ShareGrant{elsewhere} }), allocation.ErrContradicted},
		"periods that are none":                  {change(func(a *allocation.SyncAnswer) { a.Shares = []allocation.ShareGrant{{Budget: "a"}} }), errAny},
	} {
		err := o.store.Apply(t.Context(), o.w, c.answer, 7)
		if c.want == errAny && err == nil || c.want != errAny && !isAny(err, c.want) && err != c.want {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if n := o.number("select max(granted) from tranche.share_entries"); n != 10 {
			t.Fatalf("%s: it was applied", name)
		}
	}
	o.apply(good)
	if n := o.number("select max(granted) from tranche.share_entries"); n != 99 {
		t.Fatal("the good one was not applied")
	}
}

var errAny = fmt.Errorf("any error")

// If this failed the coordinator's refusal would be forgotten at a restart, or a batch in flight would slip past it.
func TestARefusalStops(t *testing.T) {
	o := newOwner(t)
	o.give("a", 10)
	o.mustSpend("first", o.key("a", 10))
	b, err := o.begin(o.store, o.w, []string{"second"}, o.key("a", 10))
	if err != nil {
		t.Fatal(err)
	}
	w := o.writer(o.store)
	done := make(chan error, 1)
	go func() {
		done <- o.store.Apply(t.Context(), w, allocation.SyncAnswer{Incarnation: "life-1", Refusal: "frozen", Detail: "why"}, 1)
	}()
	look := o.conn()
	waitFor(t, "the refusal to wait for the batch", func() bool { return o.waiters(look) == 1 })
	writes, _ := chargeAll(b.Seen(), allocation.Spend, "second", []allocation.UsageKey{o.key("a", 10)})
	if err := b.Commit(t.Context(), writes); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Refusal: "no_allocation", Detail: "later"})
	l, err := o.store.Load(t.Context(), 0)
	if err != nil || l.Stopped != allocation.Frozen || l.Detail != "why" {
		t.Fatalf("stopped %q %q, %v", l.Stopped, l.Detail, err)
	}
}

// If this failed the two ways of entering a grant, in Go and in SQL for the many rows of a template, would part.
func TestInstancesTakeGrantsAsThePureFunctionSays(t *testing.T) {
	o := newOwner(t)
	grant := func(generation, granted, target int64) allocation.ShareGrant {
		g := o.grant("t", generation, granted, target)
		g.Template = true
		later := g.Entries[0]
		g.Entries[0].Until, later.From = o.first+660, o.first+660
		later.Granted, later.Target = granted+1, target+1
		g.Entries = append(g.Entries, later)
		return g
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{grant(1, 10, 10)}})
	for _, instance := range []string{"x", "y"} {
		for _, minute := range []int{10, 11} {
			k := o.key("t", minute)
			k.Instance = instance
			o.mustSpend(fmt.Sprint(instance, minute), k)
		}
	}
	for _, next := range []allocation.ShareGrant{grant(2, 12, 5), grant(3, 12, 0), grant(2, 50, 50), grant(4, 20, 20)} {
		before, err := o.store.Export(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		share, _, err := before.Shares[0].Apply(next)
		if err != nil {
			t.Fatal(err)
		}
		o.apply(allocation.SyncAnswer{Incarnation: "life-1", Shares: []allocation.ShareGrant{next}})
		after, err := o.store.Export(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		var want []allocation.Usage
		for _, u := range before.Usage {
			want = append(want, u.Take(share))
		}
		if !slices.Equal(after.Usage, want) || !reflect.DeepEqual(after.Shares[0], share) {
			t.Fatalf("generation %d: %+v, want %+v", next.Generation.Number, after.Usage, want)
		}
	}
}

// If this failed an incarnation could be stored in a database other than the one that the coordinator recorded.
func TestAnIncarnationIsForTheHomeThatAsked(t *testing.T) {
	o := newOwner(t)
	o.exec("update tranche.owner set incarnation = ''")
	o.exec("delete from tranche.incarnations")
	if _, err := o.store.Statements(t.Context(), o.w, nil); err != nil {
		t.Fatal(err)
	}
	o.w.(*writer).asked.home.Timeline++ // as after a promotion between the call and its answer
	err := o.store.Apply(t.Context(), o.w, allocation.SyncAnswer{Incarnation: "life-2"}, 1)
	mustBe(t, err, allocation.ErrContradicted)
	if _, err := o.store.Statements(t.Context(), o.w, nil); err != nil {
		t.Fatal(err)
	}
	o.apply(allocation.SyncAnswer{Incarnation: "life-2", Elsewhere: []allocation.Elsewhere{{Budget: "a", Period: 60, Stranded: 4}}})
	l, err := o.store.Load(t.Context(), 0)
	if err != nil || l.Incarnation != "life-2" || len(l.Elsewhere) != 1 || l.Elsewhere[0].Stranded != 4 {
		t.Fatalf("%+v, %v", l, err)
	}
}
