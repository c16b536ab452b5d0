package ownertest

import (
	"fmt"
	"reflect"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

func (o *owner) statements(w regional.Writer, acknowledged map[int]int64) allocation.SyncCall {
	o.Helper()
	call, err := o.of(w).Statements(o.Context(), w, acknowledged)
	o.must(err)
	return call
}

// stated finds what a call states of a budget, and the statement that holds it.
func stated(call allocation.SyncCall, budget string) (allocation.Statement, *allocation.ShareStatement) {
	for _, st := range call.Statements {
		for i := range st.Shares {
			if st.Shares[i].Budget == budget {
				return st, &st.Shares[i]
			}
		}
	}
	return allocation.Statement{}, nil
}

// The coordinator knows of a region only what its statements say: each must be whole, numbered, and of one moment.
func testStatements(o *owner) {
	o.joined(10, "a", "b")
	o.mustCharge(allocation.Spend, "one", 2, o.key("a", 0))
	o.mustCharge(allocation.Reserve, "two", 3, o.key("a", 1))
	first := o.statements(o.w, nil)
	st, a := stated(first, "a")
	_, b := stated(first, "b")
	if a == nil || b == nil || st.Number != 1 || st.Base != 0 || st.Shard != allocation.ShardOf("a") {
		o.Fatalf("%+v", first.Statements)
	}
	want := []allocation.UsageStatement{
		{Period: o.first, Class: allocation.General, Spent: 2}, {Period: o.first + 60, Class: allocation.General, Reserved: 3},
	}
	if a.Term != o.first || a.Generation.Number != 1 || a.Generation.Stamp != "g1" || !slices.Equal(a.Usage, want) || len(a.Returned)+len(b.Usage) != 0 {
		o.Fatalf("%+v", a)
	}
	// Not acknowledged: the same again, under a higher number. Acknowledged: only what changed.
	again, a := stated(o.statements(o.w, nil), "a")
	if again.Number <= st.Number || again.Base != 0 || a == nil {
		o.Fatalf("%+v", again)
	}
	acknowledged := map[int]int64{allocation.ShardOf("a"): again.Number, allocation.ShardOf("b"): 0}
	o.mustCharge(allocation.Spend, "three", 1, o.key("a", 0))
	call := o.statements(o.w, acknowledged)
	third, a := stated(call, "a")
	if third.Number <= again.Number || third.Base != again.Number || a == nil || len(a.Usage) != 2 || a.Usage[0].Spent != 3 {
		o.Fatalf("%+v", third)
	}
	if whole, b := stated(call, "b"); b == nil || whole.Base != 0 {
		o.Fatalf("the shard that was asked for whole: %+v", whole)
	}
	o.statementsOfReturns(third.Number)
}

// statementsOfReturns goes on with what was returned, and with what the owner itself remembers as acknowledged.
func (o *owner) statementsOfReturns(number int64) {
	o.Helper()
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{o.grant("a", 2, 10, 4)}
	shardA, shardB := allocation.ShardOf("a"), allocation.ShardOf("b")
	answer.Acknowledged = []allocation.ShardAck{{Shard: shardA, Number: number}, {Shard: shardB, Number: 99}}
	o.apply(answer)
	st, a := stated(o.statements(o.second, nil), "a")
	if a == nil || st.Base != number {
		o.Fatalf("%+v", st)
	}
	share := o.share("a")
	if want := share.Statement(o.usagesOf("a"), nil); !reflect.DeepEqual(*a, want) || len(a.Returned) == 0 {
		o.Fatalf("stated %+v, want %+v", a, want)
	}
	quiet := o.statements(o.second, map[int]int64{shardA: st.Number})
	if _, a := stated(quiet, "a"); a != nil {
		o.Fatalf("nothing has changed: %+v", a)
	}
	for _, unknown := range []int64{st.Number + 1000, 1} {
		if st, a := stated(o.statements(o.second, map[int]int64{shardA: unknown}), "a"); a == nil || st.Base != 0 {
			o.Fatalf("after number %d, which this owner does not know any more: %+v", unknown, st)
		}
	}
}

func (o *owner) usagesOf(budget string) (list []allocation.Usage) {
	o.Helper()
	account, err := o.Owner.Export(o.Context(), "", 1000)
	o.must(err)
	for _, u := range account.Usage {
		if u.Budget == budget {
			list = append(list, u)
		}
	}
	return list
}

// Of two statements the higher number must have seen more, whoever made them and however they overlapped.
func testStatementsByTwo(o *owner) {
	const spends = 12
	o.joined(1000, "a")
	a := o.key("a", 0)
	numbers, last := map[int64]int64{}, int64(0)
	spent := background(func() error {
		w, err := o.Owner.NewWriter(o.Context(), "spender")
		for i := 0; i < spends && err == nil; i++ {
			_, err = o.charge(w, allocation.Spend, fmt.Sprint(i), 1, a)
		}
		return err
	})
	type made struct {
		number, spent int64
		err           error
	}
	make := func(w regional.Writer) func() made {
		return func() made {
			call, err := o.of(w).Statements(o.Context(), w, nil)
			st, share := stated(call, "a")
			m := made{number: st.Number, err: err}
			if share != nil && len(share.Usage) > 0 {
				m.spent = share.Usage[0].Spent
			}
			return m
		}
	}
	for range 6 {
		first, second := background(make(o.w)), background(make(o.second))
		for _, m := range []made{receive(o, first), receive(o, second)} {
			o.must(m.err)
			if _, twice := numbers[m.number]; twice || m.number == 0 {
				o.Fatalf("number %d twice", m.number)
			}
			numbers[m.number], last = m.spent, max(last, m.number)
		}
	}
	o.must(receive(o, spent))
	seen := int64(0)
	for n := int64(1); n <= last; n++ {
		at, known := numbers[n]
		if known && at < seen {
			o.Fatalf("number %d saw %d spent, an older one %d", n, at, seen)
		}
		seen = max(seen, at)
	}
	if _, share := stated(o.statements(o.w, nil), "a"); share.Usage[0].Spent != spends {
		o.Fatalf("%+v", share)
	}
}

// A template's instances are stated as sums: a call must not grow with the number of them.
func testStatementsOfTemplates(o *owner) {
	g := o.grant("t/{who}", 1, 5, 5)
	g.Template = true
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{g}
	o.apply(answer)
	for i, who := range []string{"x", "y", "z"} {
		k := o.key("t/{who}", 0)
		k.Instance = who
		o.mustCharge(allocation.Spend, who, int64(i+1), k)
	}
	_, share := stated(o.statements(o.w, nil), "t/{who}")
	want := []allocation.UsageStatement{{Period: o.first, Class: allocation.General, Spent: 6, Instances: 3}}
	if share == nil || !slices.Equal(share.Usage, want) || len(share.Returned) != 0 {
		o.Fatalf("%+v", share)
	}
	answer.Shares[0].Generation = allocation.Generation{Number: 2, Stamp: "g2"}
	answer.Shares[0].Entries = slices.Clone(answer.Shares[0].Entries)
	answer.Shares[0].Entries[0].Target = 1
	o.apply(answer)
	k := o.key("t/{who}", 0)
	k.Instance = "x"
	if u := o.usage(k); u.Target != 1 || u.Returned != 0 || u.Generation != 2 {
		o.Fatalf("an instance returns nothing: %+v", u)
	}
}

// What changes in a period that is closed, a settle or a return, must be stated all the same.
func testStatementsAfterClosing(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Reserve, "one", 3, a)
	closed, err := o.Owner.Close(o.Context(), o.w, o.first+300, 0)
	o.must(err)
	if closed != o.first+300 {
		o.Fatal(closed)
	}
	st, _ := stated(o.statements(o.w, nil), "a")
	want := o.want("one")
	want.OfIDs = want.IDs
	b := o.begin(o.w, want)
	u, one := b.Seen().Usage[a], b.Seen().IDs[id("one")]
	if u == nil || u.Reserved != 3 {
		o.Fatalf("the rows of an id are not locked: %+v", b.Seen())
	}
	u.Reserved, u.Spent = 0, 2
	one.State, one.Lines[0].Held, one.Lines[0].Spent = allocation.StateSettled, 0, 2
	one.Settled = map[string]int64{"requests": 2}
	o.must(b.Commit(o.Context(), regional.Writes{Usage: []*allocation.Usage{u}, Updated: []*allocation.Admission{one}}))
	_, share := stated(o.statements(o.w, map[int]int64{allocation.ShardOf("a"): st.Number}), "a")
	if share == nil || share.Usage[0].Spent != 2 || share.Usage[0].Reserved != 0 {
		o.Fatalf("%+v", share)
	}
	if got := o.found("one"); got.State != allocation.StateSettled || got.Settled["requests"] != 2 || got.Lines[0].Spent != 2 {
		o.Fatalf("%+v", got)
	}
}

// A call says through which closing it is complete. If it had no room for all that changed it must not say so, or the
// record of a closed term is made before all is known that was spent in it.
func testStatementsComplete(o *owner) {
	o.joined(10, "a")
	if call := o.statements(o.w, nil); call.CompleteThrough != 0 {
		o.Fatalf("nothing is closed, and complete through %s", call.CompleteThrough)
	}
	o.mustCharge(allocation.Spend, "one", 2, o.key("a", 0))
	closed, err := o.Owner.Close(o.Context(), o.w, o.first+60, 0)
	o.must(err)
	call := o.statements(o.w, nil)
	if _, a := stated(call, "a"); call.CompleteThrough != closed || a == nil || len(a.Usage) != 1 {
		o.Fatalf("complete through %s, closed before %s: %+v", call.CompleteThrough, closed, call.Statements)
	}
	// More than one call holds. The rest is in the next one, and is not complete either: what the first stated has not been
	// acknowledged, and so would be stated again.
	answer := o.answer()
	for i := range allocation.MaxSharesPerCall + 1 {
		answer.Shares = append(answer.Shares, o.grant(fmt.Sprint("many-", i), 1, 1, 1))
	}
	o.apply(answer)
	acknowledged := map[int]int64{}
	for calls := 0; ; calls++ {
		call := o.statements(o.w, acknowledged)
		if full := calls == 0; full == (call.CompleteThrough == closed) || calls > 2 {
			o.Fatalf("call %d is complete through %s, and it states %d shards", calls, call.CompleteThrough, len(call.Statements))
		}
		if call.CompleteThrough == closed {
			return
		}
		for _, st := range call.Statements {
			acknowledged[st.Shard] = st.Number
		}
	}
}

// What a call says besides its statements is what the coordinator judges the region by.
func testCall(o *owner) {
	answer := o.answer()
	answer.Config = 7
	answer.Shares = []allocation.ShareGrant{o.grant("ladder", 1, 100, 100), o.grant("low", 1, 100, 100), o.grant("much", 1, 100, 100), o.grant("a-nothing", 1, 0, 0), o.grant("unasked", 1, 0, 0)}
	limit := int64(100)
	answer.Budgets = []allocation.ConfiguredBudget{{Version: 1, Number: 7, Budget: allocation.Budget{
		Name: "ladder", Unit: "requests", Limit: &limit, Window: allocation.Window{Every: allocation.Minute},
		Allocation: allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{Region: 1}},
		Ladder:     &allocation.Ladder{Preset: allocation.LadderStandard},
	}}}
	o.apply(answer)
	running := int(o.now()-o.first) / 60
	o.must(o.begin(o.w, o.want("none", o.key("a-nothing", running))).Commit(o.Context(), regional.Writes{}))
	o.mustCharge(allocation.Spend, "one", 95, o.key("low", running))
	o.mustCharge(allocation.Spend, "two", 50, o.key("much", running))
	o.mustCharge(allocation.Spend, "five", 1, o.key("ladder", running))
	o.mustCharge(allocation.Spend, "three", 99, o.key("much", running-2))
	o.mustCharge(allocation.Reserve, "four", 1, o.key("much", running))
	call := o.statements(o.w, nil)
	l, err := o.Owner.Load(o.Context(), 0)
	o.must(err)
	if call.Region != Region || call.Deployment != "d" || call.Incarnation != "life-1" || call.History != l.History || call.Home != l.Home || call.Config != 7 || call.Clock == 0 {
		o.Fatalf("%+v", call)
	}
	late := int(o.now()-o.first)/60 != running // the minute has changed meanwhile
	if !late && !slices.Equal(call.Low, []string{"low", "ladder", "a-nothing"}) {
		o.Fatalf("low %v", call.Low)
	}
	four := o.found("four")
	if call.OpenReservations != 1 || call.OldestReservation != four.At || l.OpenReservations != 1 || l.OldestReservation != four.At {
		o.Fatalf("%+v", call)
	}
}
