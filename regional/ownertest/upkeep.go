package ownertest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/regional"
)

// A reservation that no list shows never lapses, and its permits are lost until the period ends.
func testReservations(o *owner) {
	o.joined(100, "a")
	a := o.key("a", 0)
	for i := range 5 {
		o.mustCharge(allocation.Reserve, fmt.Sprint("r", i), 1, a)
	}
	o.mustCharge(allocation.Spend, "spent", 1, a)
	first, err := o.Owner.Reservations(o.Context(), allocation.IDKey{}, 3)
	o.must(err)
	rest, err := o.Owner.Reservations(o.Context(), first[len(first)-1].IDKey, 3)
	o.must(err)
	var names []string
	for _, r := range slices.Concat(first, rest) {
		names = append(names, r.ID)
	}
	if !slices.Equal(names, []string{"r0", "r1", "r2", "r3", "r4"}) || len(first) != 3 || len(first[0].Lines) != 1 {
		o.Fatalf("%v", names)
	}
	lapsed, err := o.Owner.Lapsed(o.Context(), 10)
	o.must(err)
	if len(lapsed) != 0 {
		o.Fatalf("%v", lapsed)
	}
	o.expire("r3", 5)
	o.expire("r1", 9)
	for limit, want := range map[int][]allocation.IDKey{10: {id("r3"), id("r1")}, 1: {id("r3")}} {
		if lapsed, err = o.Owner.Lapsed(o.Context(), limit); err != nil || !slices.Equal(lapsed, want) {
			o.Fatalf("%v, %v", lapsed, err)
		}
	}
}

// expire makes a reservation's time end so many microseconds after 1970.
func (o *owner) expire(name string, at int64) {
	o.Helper()
	b := o.begin(o.w, o.want(name))
	a := b.Seen().IDs[id(name)]
	a.ExpiresAt = at
	o.must(b.Commit(o.Context(), regional.Writes{Updated: []*allocation.Admission{a}}))
}

// What is closed stays closed, and never more of it than the database's own clock allows.
func testClose(o *owner) {
	o.joined(10, "a")
	first, err := o.Owner.Close(o.Context(), o.w, o.first+60, 0)
	o.must(err)
	lower, err := o.Other.Close(o.Context(), o.second, o.first, 0)
	o.must(err)
	if first != o.first+60 || lower != first {
		o.Fatalf("closed before %s, then %s", first, lower)
	}
	before := o.now()
	far, err := o.Owner.Close(o.Context(), o.w, o.first+365*86400, 30)
	o.must(err)
	if after := o.now(); far < before-30 || far > after-30 {
		o.Fatalf("closed before %s, at %s to %s", far, before, after)
	}
	b := o.begin(o.w, o.want("one", o.key("a", 0)))
	defer b.Abandon()
	if b.Seen().ClosedBefore != far {
		o.Fatalf("a batch sees %s", b.Seen().ClosedBefore)
	}
	if call := o.statements(o.second, nil); call.ClosedBefore != far {
		o.Fatalf("a call says %s", call.ClosedBefore)
	}
}

// A batch that was decided before a period was closed must not commit after it: the statement that closes it would miss
// what it spent.
func testCloseWaits(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	running := o.begin(o.w, o.want("one", a))
	closed := background(func() error {
		_, err := o.Other.Close(o.Context(), o.second, o.first+300, 0)
		return err
	})
	o.othersGo()
	select {
	case err := <-closed:
		o.Fatalf("closed while a batch may still commit: %v", err)
	default:
	}
	writes, _ := admission(running.Seen(), allocation.Spend, "one", 1, a)
	o.must(running.Commit(o.Context(), writes))
	o.must(receive(o, closed))
	if got := o.peek(o.want("one", a)); got.ClosedBefore != o.first+300 || got.Usage[a].Spent != 1 {
		o.Fatalf("%+v", got)
	}
}

// Two nodes that both think it is their turn do everything twice; a turn that is never free, nobody does anything.
func testTurn(o *owner) {
	turn := func(node string, lasts time.Duration) bool {
		mine, err := o.Owner.Turn(o.Context(), node, lasts)
		o.must(err)
		return mine
	}
	for i, test := range []struct {
		node  string
		lasts time.Duration
		mine  bool
	}{{"one", time.Hour, true}, {"two", time.Hour, false}, {"one", time.Microsecond, true}, {"two", time.Hour, true}, {"one", time.Hour, false}} {
		if mine := turn(test.node, test.lasts); mine != test.mine {
			o.Fatalf("%d: node %s: %v", i, test.node, mine)
		}
	}
}

// An id must be found after its table was closed, until its retention is over by both clocks; or a retry is charged again.
func testTables(o *owner) {
	o.joined(100, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Spend, "old", 1, a)
	never := func(int) allocation.Duration { return 0 }
	long := func(int) allocation.Duration { return math.MaxInt32 }
	tidy := func(retention allocation.Duration, monotonic func(int) allocation.Duration) string {
		did, err := o.Owner.Tidy(o.Context(), o.w, retention, monotonic)
		o.must(err)
		return did
	}
	if did := tidy(86400, long); did != "" {
		o.Fatalf("a table that was just opened: %s", did)
	}
	if did := tidy(0, func(int) allocation.Duration { return -1 }); !strings.Contains(did, "switched") {
		o.Fatalf("%q", did)
	}
	if o.found("old") == nil {
		o.Fatal("an id is not found after the switch")
	}
	if ok, err := o.charge(o.w, allocation.Spend, "old", 1, a); err != nil || ok {
		o.Fatal("charged again:", ok, err)
	}
	o.mustCharge(allocation.Spend, "new", 1, a)
	o.expireOld()
	if did := tidy(86400, never); did != "" {
		o.Fatalf("not known for long enough: %s", did)
	}
	tidy(0, long)
	if o.found("old") != nil {
		o.Fatal("an id is there after its retention")
	}
	if o.found("new") == nil || o.spent(a) != 2 {
		o.Fatal("an id is gone within its retention")
	}
	o.keepsReserved(tidy, long)
}

// expireOld changes an id in a closed table.
func (o *owner) expireOld() {
	o.Helper()
	b := o.begin(o.w, o.want("old"))
	old := b.Seen().IDs[id("old")]
	old.Latest = 1
	o.must(b.Commit(o.Context(), regional.Writes{Updated: []*allocation.Admission{old}}))
	if got := o.found("old"); got.Latest != 1 {
		o.Fatalf("%+v", got)
	}
}

// keepsReserved checks that a table in which something is reserved outlives its retention.
func (o *owner) keepsReserved(tidy func(allocation.Duration, func(int) allocation.Duration) string, long func(int) allocation.Duration) {
	o.Helper()
	o.mustCharge(allocation.Reserve, "held", 1, o.key("a", 0))
	for range 6 {
		tidy(0, long)
		if o.found("held") == nil {
			o.Fatal("a reservation is gone")
		}
	}
}

// Terms that nothing speaks of must go, or the tables grow for ever; what is reserved, or not stated, must stay.
func testClosedTerms(o *owner) {
	o.joined(100, "a", "b")
	long := func(int) allocation.Duration { return math.MaxInt32 }
	past := o.grant("past", 1, 10, 10)
	past.Periods = allocation.Periods{First: o.first - 86400*30, Step: 60, Count: 60}
	past.Entries[0].From, past.Entries[0].Until = past.Periods.Start(), past.Periods.End()
	ref := allocation.ShareRef{Budget: "past", Term: past.Periods.Start()}
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{past}
	o.apply(answer)
	exported := func() bool {
		account, err := o.Owner.Export(o.Context(), "", 1000)
		o.must(err)
		return slices.ContainsFunc(account.Shares, func(s allocation.Share) bool { return s.Budget == "past" })
	}
	tidy := func() {
		if _, err := o.Owner.Tidy(o.Context(), o.w, 86400, long); err != nil {
			o.Fatal(err)
		}
	}
	answer.Closed = []allocation.ShareRef{ref}
	answer.Shares = nil
	o.apply(answer)
	if tidy(); !exported() {
		o.Fatal("a term was forgotten before it was stated")
	}
	answer.Shares = []allocation.ShareGrant{past} // a closed ledger is never opened again
	o.apply(answer)
	st, _ := stated(o.statements(o.w, map[int]int64{}), "past")
	if st.Number == 0 {
		// What is closed is not stated whole any more; state the shard, which is acknowledged as it is.
		for _, s := range o.statements(o.w, map[int]int64{allocation.ShardOf("past"): 0}).Statements {
			if s.Shard == allocation.ShardOf("past") {
				st = s
			}
		}
	}
	answer = o.answer()
	answer.Acknowledged = []allocation.ShardAck{{Shard: st.Shard, Number: st.Number}}
	o.apply(answer)
	if tidy(); exported() {
		o.Fatal("a closed term that is stated and long over is still there")
	}
	if o.share("a").Budget != "a" || o.share("b").Budget != "b" {
		o.Fatal("others went with it")
	}
}

// Reports must show what stands in the database, all of it.
func testReports(o *owner) {
	o.joined(100, "a", "b", "c")
	running := int(o.now()-o.first) / 60
	o.mustCharge(allocation.Spend, "one", 10, o.key("a", running))
	o.mustCharge(allocation.Spend, "two", 90, o.key("b", running))
	o.mustCharge(allocation.Spend, "three", 99, o.key("c", running-2))
	fullest, err := o.Owner.Fullest(o.Context(), 10)
	o.must(err)
	if int(o.now()-o.first)/60 == running && (len(fullest) != 2 || fullest[0].Budget != "b" || fullest[1].Spent != 10) {
		o.Fatalf("%+v", fullest)
	}
	if one, err := o.Owner.Fullest(o.Context(), 1); err != nil || len(one) > 1 {
		o.Fatal(one, err)
	}
	first, err := o.Owner.Export(o.Context(), "", 2)
	o.must(err)
	rest, err := o.Owner.Export(o.Context(), "b", 2)
	o.must(err)
	if !first.More || rest.More || first.Region != Region || first.Incarnation != "life-1" || len(first.Shares) != 2 || len(rest.Shares) != 1 || len(first.Usage) != 2 || len(rest.Usage) != 1 {
		o.Fatalf("%+v\n%+v", first, rest)
	}
	if u := rest.Usage[0]; u != *o.usage(o.key("c", running-2)) {
		o.Fatalf("%+v", u)
	}
}
