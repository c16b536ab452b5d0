package ownertest

import (
	"errors"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

func (o *owner) load() regional.Loaded {
	o.Helper()
	l, err := o.Owner.Load(o.Context(), 0)
	o.must(err)
	return l
}

func (o *owner) look(w regional.Writer) regional.Look {
	o.Helper()
	l, err := o.of(w).Look(o.Context(), w)
	o.must(err)
	return l
}

func markOf(l regional.Look, w regional.Writer) regional.WriterMark {
	for _, m := range l.Marks {
		if m.Writer == w.Mark().Writer {
			return m
		}
	}
	return regional.WriterMark{}
}

// A mark that says "vouched for" too long would let a node in that nobody vouches for; one that never says so would keep
// it out.
func testLook(o *owner) {
	before := o.load().Lineage
	if l := o.look(o.w); before == "" || l.Lineage != before || l.Home != o.load().Home || len(l.Marks) != 2 {
		o.Fatalf("lineage %q: %+v", before, l)
	}
	o.joined(10, "a")
	after := o.load().Lineage
	if b := o.begin(o.w, o.want("x", o.key("a", 0))); b.Seen().Lineage != after || after == before {
		o.Fatalf("lineage %q, then %q, and a batch sees %q", before, after, b.Seen().Lineage)
	} else {
		b.Abandon()
	}
	if call, err := o.of(o.w).Statements(o.Context(), o.w, nil); err != nil || call.Lineage != after {
		o.Fatalf("lineage %q, and a call is made in %q: %v", after, call.Lineage, err)
	}
	if call, _, err := o.of(o.w).StateHeld(o.Context(), o.w, 0); err != nil || call.Lineage != after {
		o.Fatalf("lineage %q, and all is stated in %q: %v", after, call.Lineage, err)
	}
	first := o.look(o.second)
	o.w.Vouch(before) // the incarnation is another since
	o.mustCharge(allocation.Spend, "one", 1, o.key("a", 0))
	if m := markOf(o.look(o.second), o.w); m.Vouched || m.Count <= markOf(first, o.w).Count || m.Mark != o.w.Mark() {
		o.Fatalf("%+v", m)
	}
	o.w.Vouch(after)
	if m := markOf(o.look(o.second), o.w); m.Vouched {
		o.Fatalf("vouched for before it wrote: %+v", m)
	}
	o.mustCharge(allocation.Spend, "two", 1, o.key("a", 0))
	if m := markOf(o.look(o.second), o.w); !m.Vouched || m.Ended || m.Name != writerName {
		o.Fatalf("%+v", m)
	}
	o.w.Vouch("")
	o.look(o.w)
	if m := markOf(o.look(o.second), o.w); m.Vouched {
		o.Fatalf("%+v", m)
	}
	o.must(o.w.End(o.Context()))
	if m := markOf(o.look(o.second), o.w); !m.Ended {
		o.Fatalf("%+v", m)
	}
}

// A writer that resumes must be the only one with its mark, and must be told if the mark is not there.
func testResume(o *owner) {
	o.joined(10, "a")
	mark := o.w.Mark()
	w := o.Other.ResumeWriter(mark)
	committed, err := w.Resolve(o.Context())
	if err != nil || !committed || !mark.Holds(w.Mark()) || w.Mark() == mark {
		o.Fatal(committed, err, w.Mark())
	}
	if ok, err := o.chargeIn(o.Other, w, allocation.Spend, "one", 1, o.key("a", 0)); err != nil || !ok {
		o.Fatal(ok, err)
	}
	_, err = o.charge(o.w, allocation.Spend, "two", 1, o.key("a", 0))
	o.mustBe(err, regional.ErrHistoryLost)
	_, err = o.Other.ResumeWriter(mark).Resolve(o.Context())
	o.mustBe(err, regional.ErrHistoryLost)
}

func (o *owner) chargeIn(in regional.Owner, w regional.Writer, op allocation.Op, name string, cost int64, keys ...allocation.UsageKey) (bool, error) {
	one := *o
	one.Owner = in
	return one.charge(w, op, name, cost, keys...)
}

// An older history must take nothing from a newer one, a grant that was on its way least of all (invariant 8).
func testHeed(o *owner) {
	o.joined(10, "a")
	before, _ := stated(o.statements(o.w, nil), "a")
	known := o.answer()
	known.Acknowledged = []allocation.ShardAck{{Shard: before.Shard, Number: before.Number}}
	known.Config, known.DocumentsThrough = 12, 12
	known.Budgets = []allocation.ConfiguredBudget{{Budget: budget("c", 50), Version: 3, Number: 12}}
	o.apply(known)
	if l := o.load(); l.Config != 12 || l.DocumentsThrough != 12 {
		o.Fatalf("%d, %d", l.Config, l.DocumentsThrough)
	}
	if st, _ := stated(o.statements(o.w, nil), "a"); st.Shard != 0 {
		o.Fatalf("it is acknowledged, and stated again: %+v", st)
	}
	newer := o.answer()
	newer.History = allocation.History{Number: 2, Stamp: "h2"}
	newer.Shares, newer.Config = []allocation.ShareGrant{o.grant("a", 2, 99, 99)}, 9
	newer.Regions = []string{"us"}
	o.apply(newer)
	// What was given out under numbers up to 12 in the history before may have them again in this one: all is to be told.
	if l := o.load(); l.History != newer.History || l.Config != 0 || l.DocumentsThrough != 0 || o.share("a").Generation.Number != 1 {
		o.Fatalf("%+v", l)
	}
	late := o.answer()
	late.Shares = newer.Shares
	o.apply(late)
	if o.share("a").Generation.Number != 1 {
		o.Fatal("it took a grant of the history before")
	}
	o.apply(newer)
	again := newer
	again.Regions = []string{"eu", "us"}
	// An etcd that had gone back gave version 3 out a second time, under a lower number, before anybody noticed.
	again.Budgets = []allocation.ConfiguredBudget{{Budget: budget("c", 80), Version: 3, Number: 7}}
	o.apply(again)
	o.hasBudget(again.Budgets[0])
	older := again
	older.Budgets = []allocation.ConfiguredBudget{{Budget: budget("c", 90), Version: 2, Number: 8}}
	o.apply(older)
	o.hasBudget(again.Budgets[0])
	if o.share("a").Generation.Number != 2 {
		o.Fatal("it took nothing of the present history")
	}
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	if st, _ := stated(call, "a"); st.Base != 0 {
		o.Fatalf("what was acknowledged in the history before counts: %+v", st)
	}
	if !slices.Equal(call.Regions, []string{"eu", "us"}) || call.History != newer.History {
		o.Fatalf("%+v, %v", call.History, call.Regions)
	}
	o.forgetsRemoved(again)
}

// hasBudget says whether a budget is stored as it was told.
func (o *owner) hasBudget(want allocation.ConfiguredBudget) {
	all, err := o.Other.Load(o.Context(), 0)
	o.must(err)
	i := slices.IndexFunc(all.Budgets, func(b allocation.ConfiguredBudget) bool { return b.Budget.Name == want.Budget.Name })
	if i < 0 || all.Budgets[i].Version != want.Version || all.Budgets[i].Number != want.Number || all.Budgets[i].Budget.LimitOrZero() != want.Budget.LimitOrZero() {
		o.Fatalf("%+v, and it was told %+v", all.Budgets, want)
	}
}

// A refusal stops the region until it is lifted; one that tells of lost marks, or of another incarnation, is not lifted.
func testRefusals(o *owner) {
	o.joined(10, "a")
	stop := o.answer()
	stop.Refusal, stop.Detail = "history_lost", "a second home"
	o.apply(stop)
	if l := o.load(); l.Stopped != allocation.Starting || l.Detail != "a second home" || l.Lost {
		o.Fatalf("%+v", l)
	}
	o.must(o.Owner.Lift(o.Context(), o.w, allocation.Frozen)) // it is stopped for another reason
	if l := o.load(); l.Stopped != allocation.Starting {
		o.Fatalf("%+v", l)
	}
	o.must(o.Owner.Lift(o.Context(), o.w, allocation.Starting))
	if l := o.load(); l.Stopped != "" || l.Detail != "" {
		o.Fatalf("%+v", l)
	}
	held := stop
	held.Contradicted = []allocation.Mark{o.w.Mark()}
	o.apply(held)
	if l := o.load(); l.Stopped != "" {
		o.Fatalf("a refusal for a mark that is there: %+v", l)
	}
	former := stop
	former.Incarnation = "life-2"
	o.apply(former)
	if l := o.load(); !l.Lost || l.Stopped != allocation.HistoryLost {
		o.Fatalf("%+v", l)
	}
	o.must(o.Owner.Lift(o.Context(), o.w, allocation.HistoryLost))
	grant := o.answer()
	grant.Shares = []allocation.ShareGrant{o.grant("a", 2, 99, 99)}
	o.apply(grant)
	if l := o.load(); !l.Lost || l.Stopped != allocation.HistoryLost || o.share("a").Generation.Number != 1 {
		o.Fatalf("%+v", l)
	}
	_, err := o.Owner.Seal(o.Context(), "")
	o.mustBe(err, regional.ErrHistoryLost)
}

// lostCall is the call of an owner that asks for a new incarnation.
func (o *owner) lostCall() allocation.SyncCall {
	l := o.load()
	return allocation.SyncCall{History: l.History, Incarnation: l.Incarnation, Home: l.Home, Lost: true}
}

// A new incarnation that held anything would sell it twice; one that forgot ids would not answer for what was told.
func testStartOver(o *owner) {
	o.joined(10, "a", "b")
	a := o.key("a", 10) // the running minute, or near it
	o.mustCharge(allocation.Spend, "spent", 2, a)
	o.mustCharge(allocation.Reserve, "open", 3, a)
	answer := o.answer()
	answer.Incarnation = "life-2"
	call := o.lostCall()
	over, err := o.Owner.StartOver(o.Context(), call, answer)
	if o.must(err); over.Incarnation != "" {
		o.Fatalf("an owner that lost nothing started over: %+v", over)
	}
	lost, err := o.Owner.Lose(o.Context(), o.w.Mark().Writer, "why")
	if o.must(err); !lost {
		o.Fatal("nothing was lost")
	}
	for name, test := range map[string]struct {
		call   func(c *allocation.SyncCall)
		answer func(a *allocation.SyncAnswer)
		err    error
	}{
		"of another incarnation": {call: func(c *allocation.SyncCall) { c.Incarnation = "life-0" }},
		"of another home":        {call: func(c *allocation.SyncCall) { c.Home.Timeline += 7 }, err: allocation.ErrContradicted},
		"no incarnation":         {answer: func(a *allocation.SyncAnswer) { a.Incarnation = "" }},
		"the same":               {answer: func(a *allocation.SyncAnswer) { a.Incarnation = "life-1" }},
		"a refusal":              {answer: func(a *allocation.SyncAnswer) { a.Refusal = "starting" }},
		"another deployment":     {answer: func(a *allocation.SyncAnswer) { a.Deployment = "e" }, err: allocation.ErrContradicted},
		"an older history":       {answer: func(a *allocation.SyncAnswer) { a.History.Number = 0 }},
	} {
		c, a := call, answer
		if test.call != nil {
			test.call(&c)
		}
		if test.answer != nil {
			test.answer(&a)
		}
		if over, err := o.Owner.StartOver(o.Context(), c, a); over.Incarnation != "" || !errors.Is(err, test.err) {
			o.Fatalf("%s: %+v, %v", name, over, err)
		}
	}
	newer := answer
	newer.History = allocation.History{Number: 2, Stamp: "h2"}
	if over, err = o.Owner.StartOver(o.Context(), call, newer); err != nil || over.Incarnation != "" || o.load().History != newer.History {
		o.Fatalf("a newer history: %+v, %v, %+v", over, err, o.load().History)
	}
	before := o.load()
	over, err = o.Owner.StartOver(o.Context(), call, newer)
	if o.must(err); over.Incarnation != "life-2" || over.Open != 1 {
		o.Fatalf("%+v", over)
	}
	if l := o.load(); l.Incarnation != "life-2" || l.Lost || l.Stopped != "" || l.Lineage == before.Lineage || l.Changes <= before.Changes || len(l.Terms) != 0 {
		o.Fatalf("%+v", l)
	}
	o.startsWithNothing(a)
}

// startsWithNothing checks an owner that has started over as life-2 under history 2.
func (o *owner) startsWithNothing(a allocation.UsageKey) {
	o.Helper()
	_, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.mustBe(err, regional.ErrHistoryLost)
	if lost, err := o.Owner.Lose(o.Context(), o.w.Mark().Writer, "again"); err != nil || lost || o.load().Lost {
		o.Fatalf("a writer of the former incarnation ended the new one: %v, %v", lost, err)
	}
	o.w, o.second = o.writer(o.Owner), o.writer(o.Other)
	if u := o.usage(a); u == nil || *u != (allocation.Usage{UsageKey: a, Until: u.Until, Term: u.Term, Version: u.Version}) {
		o.Fatalf("%+v", u)
	}
	open, spent := o.found("open"), o.found("spent")
	if open == nil || open.State != allocation.StateLapsedSpent || open.Lines[0].Held != 0 || open.Lines[0].Spent != 3 || spent == nil || spent.State != allocation.StateSpent {
		o.Fatalf("%+v %+v", open, spent)
	}
	if account, err := o.Owner.Export(o.Context(), "", 100); err != nil || len(account.Shares) != 0 {
		o.Fatalf("%+v, %v", account.Shares, err)
	}
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	if o.must(err); len(call.Statements) != 0 || len(call.Marks) != 2 || call.Incarnation != "life-2" {
		o.Fatalf("%+v", call)
	}
	late := o.answer()
	late.History, late.Shares = call.History, []allocation.ShareGrant{o.grant("a", 3, 50, 50)}
	o.apply(late) // of the former incarnation
	if account, _ := o.Owner.Export(o.Context(), "", 100); len(account.Shares) != 0 {
		o.Fatalf("%+v", account.Shares)
	}
	late.Incarnation = "life-2"
	o.apply(late)
	if u := o.usage(a); u.Granted != 50 || u.Spent != 0 {
		o.Fatalf("%+v", u)
	}
	o.mustCharge(allocation.Spend, "new", 4, a)
	call, err = o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	if st := call.Statements; len(st) != 1 || st[0].Base != 0 || len(st[0].Shares) != 1 || len(st[0].Shares[0].Usage) != 1 || st[0].Shares[0].Usage[0].Spent != 4 {
		o.Fatalf("%+v", st)
	}
}

// An empty database has nothing to lose: a writer that is not there is registered anew, and nothing is recorded.
func testNothingToLose(o *owner) {
	if lost, err := o.Owner.Lose(o.Context(), "whoever", "why"); err != nil || lost {
		o.Fatal(lost, err)
	}
	if l := o.load(); l.Lost || l.Stopped != "" {
		o.Fatalf("%+v", l)
	}
	_, err := o.Owner.Seal(o.Context(), "")
	if err == nil {
		o.Fatal("an owner without incarnation was sealed")
	}
}

// Sealed is sealed (invariant 9): also a period that nobody had used yet, and one whose row is being made just now.
func testSeal(o *owner) {
	o.joined(10, "a", "b")
	a, unused := o.key("a", 0), o.key("a", 1)
	o.mustCharge(allocation.Spend, "spent", 2, a)
	o.mustCharge(allocation.Reserve, "open", 3, a)
	if _, err := o.Owner.Seal(o.Context(), "life-0"); err == nil || o.load().Stopped != "" {
		o.Fatal("another incarnation was sealed", err)
	}
	making := o.begin(o.w, o.want("making", o.key("b", 0)))
	sealed := background(func() error { _, err := o.Other.Seal(o.Context(), "life-1"); return err })
	o.othersGo()
	select {
	case err := <-sealed:
		o.Fatalf("sealed while a row was being made: %v", err)
	default:
	}
	writes, _ := admission(making.Seen(), allocation.Spend, "making", 1, o.key("b", 0))
	o.must(making.Commit(o.Context(), writes))
	o.must(receive(o, sealed))
	b := o.begin(o.w, o.want("late", unused, a))
	if s := b.Seen(); s.Stopped != allocation.Sealed || s.Usage[unused] == nil || !s.Usage[unused].Sealed || !s.Usage[a].Sealed {
		o.Fatalf("%+v", s)
	}
	b.Abandon()
	grant := o.answer()
	grant.Shares = []allocation.ShareGrant{o.grant("a", 2, 99, 99), o.grant("c", 1, 9, 9)}
	o.apply(grant)
	seal, err := o.Owner.Seal(o.Context(), "life-1")
	o.must(err)
	l := o.load()
	if seal.Incarnation != "life-1" || seal.Region != Region || seal.Home != l.Home || len(seal.Marks) != 2 || len(seal.Shares) != 2 {
		o.Fatalf("%+v", seal)
	}
	residence := allocation.Residence{Incarnation: "life-1", Home: l.Home, Confirmed: true}.End()
	o.must(seal.Proves(residence, []allocation.Mark{o.w.Mark()}))
	if s := seal.Shares[0]; s.Share.Generation.Number != 1 || len(s.Used) != 1 || s.Used[0].Spent != 2 || s.Used[0].Reserved != 3 {
		o.Fatalf("%+v", s)
	}
	if s := seal.Shares[1]; len(s.Used) != 1 || s.Used[0].Spent != 1 {
		o.Fatalf("%+v", s)
	}
	if lost, err := o.Owner.Lose(o.Context(), "whoever", "too late"); err != nil || !lost || o.load().Stopped != allocation.Sealed {
		o.Fatal("sealed, and then lost:", lost, err)
	}
	if _, err := o.Owner.Seal(o.Context(), "life-1"); !errors.Is(err, regional.ErrHistoryLost) {
		o.Fatal(err)
	}
	answer := o.answer()
	answer.Incarnation = "life-2"
	if over, err := o.Owner.StartOver(o.Context(), o.lostCall(), answer); err != nil || over.Incarnation != "life-2" || o.usage(a).Sealed {
		o.Fatalf("%+v, %v", over, err)
	}
}
