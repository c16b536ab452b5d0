package ownertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

// A database that claims to be an owner before the coordinator said so would spend what nobody granted.
func testNew(o *owner) {
	l, err := o.Owner.Load(o.Context(), 0)
	o.must(err)
	if l.Region != Region || l.Incarnation != "" || l.Deployment != "" || l.Stopped != "" || l.ClosedBefore != 0 || l.Home.System == "" || l.Home.Timeline == 0 {
		o.Fatalf("%+v", l)
	}
	if len(l.Budgets)+len(l.Terms)+len(l.Gone)+len(l.Elsewhere) != 0 {
		o.Fatalf("%+v", l)
	}
	b := o.begin(o.w, o.want("one", o.key("a", 0)))
	defer b.Abandon()
	if s := b.Seen(); len(s.Usage)+len(s.IDs)+len(s.Full) != 0 || s.Incarnation != "" || s.Region != Region {
		o.Fatalf("%+v", s)
	}
}

// A mark that does not change with every commit could not show that commits were lost.
func testMarks(o *owner) {
	o.joined(100, "a")
	a := o.key("a", 0)
	values := map[string]bool{}
	for i := range 5 {
		before := o.w.Mark()
		o.mustCharge(allocation.Spend, fmt.Sprint(i), 1, a)
		after := o.w.Mark()
		if after.Writer != before.Writer || after.Count != before.Count+1 || values[after.Value] || !before.Holds(after) {
			o.Fatalf("%+v after %+v", after, before)
		}
		values[after.Value] = true
	}
	if o.w.Mark().Writer == o.second.Mark().Writer {
		o.Fatal("two writers are one")
	}
	before := o.w.Mark()
	b := o.begin(o.w, o.want("x", a))
	b.Abandon()
	if o.w.Mark() != before {
		o.Fatal("an abandoned batch left a mark")
	}
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	found := false
	for _, m := range call.Marks {
		found = found || m == before || m == o.w.Mark()
	}
	if !found || len(call.Marks) != 2 {
		o.Fatalf("%+v", call.Marks)
	}
	if committed, err := o.w.Resolve(o.Context()); err != nil || !committed {
		o.Fatal(committed, err)
	}
}

// The one way to learn that a database lost history: a writer's own mark is not there. It must never write again.
func testMarkGone(o *owner) {
	o.joined(100, "a")
	a := o.key("a", 0)
	w := o.writer(o.Owner)
	if ok, err := o.charge(w, allocation.Spend, "zero", 1, a); err != nil || !ok {
		o.Fatal(ok, err)
	}
	o.must(w.End(o.Context()))
	call, err := o.Owner.Statements(o.Context(), o.w, nil)
	o.must(err)
	if len(call.Ended) != 1 || call.Ended[0] != w.Mark().Writer {
		o.Fatalf("ended %+v", call.Ended)
	}
	answer := o.answer()
	answer.EndedAcknowledged = []string{w.Mark().Writer, o.second.Mark().Writer} // the second one has not ended: it stays
	o.apply(answer)
	batch, err := o.Owner.Begin(o.Context(), w, o.want("one", a))
	if err == nil {
		writes, _ := admission(batch.Seen(), allocation.Spend, "one", 1, a)
		err = batch.Commit(o.Context(), writes)
	}
	o.mustBe(err, regional.ErrHistoryLost)
	if o.spent(a) != 1 || o.found("one") != nil {
		o.Fatal("it wrote all the same")
	}
	_, err = o.Owner.Begin(o.Context(), w, o.want("one", a))
	o.mustBe(err, regional.ErrHistoryLost)
	_, err = w.Resolve(o.Context())
	o.mustBe(err, regional.ErrHistoryLost)
	if ok, err := o.charge(o.second, allocation.Spend, "two", 1, a); err != nil || !ok {
		o.Fatal("another writer is lost, too:", ok, err)
	}
}

// A writer has ended, that was acknowledged, and its row is gone. Then etcd goes back to before it, and its mark is missed. An owner
// that took that for lost history would begin anew, with nothing, after each restore of an etcd from before its nodes were restarted.
func testEndedIsRemembered(o *owner) {
	o.joined(100, "a")
	w := o.writer(o.Owner)
	early := w.Mark()
	if ok, err := o.charge(w, allocation.Spend, "zero", 1, o.key("a", 0)); err != nil || !ok {
		o.Fatal(ok, err)
	}
	o.must(w.End(o.Context()))
	last := w.Mark()
	acknowledged := o.answer()
	acknowledged.EndedAcknowledged = []string{last.Writer}
	ended := func() []string {
		o.Helper()
		call, err := o.Owner.Statements(o.Context(), o.w, nil)
		o.must(err)
		return call.Ended
	}
	miss := o.answer()
	miss.Refusal, miss.Detail = "history_lost", "a mark is gone"
	for _, m := range []allocation.Mark{last, early, last} {
		o.apply(acknowledged)
		if list := ended(); len(list) != 0 {
			o.Fatalf("ended %v, after that was acknowledged", list)
		}
		miss.Contradicted = []allocation.Mark{m, o.second.Mark()}
		o.apply(miss)
		if l := o.load(); l.Lost || l.Stopped != "" {
			o.Fatalf("it has lost nothing: %+v", l)
		}
		if list := ended(); len(list) != 1 || list[0] != last.Writer {
			o.Fatalf("ended %v: nobody hears why the mark is gone", list)
		}
	}
	o.apply(acknowledged)
	seal, err := o.Owner.Seal(o.Context(), "")
	o.must(err)
	if !slices.Contains(seal.Marks, last) || !slices.Contains(seal.Ended, last.Writer) {
		o.Fatalf("the seal shows %+v, ended %v", seal.Marks, seal.Ended)
	}
}

// One that the writer left later than the row says was committed, and is lost.
func testEndedIsMissed(o *owner) {
	o.joined(100, "a")
	w := o.writer(o.Owner)
	o.must(w.End(o.Context()))
	answer := o.answer()
	answer.EndedAcknowledged = []string{w.Mark().Writer}
	o.apply(answer)
	more := w.Mark()
	more.Count++
	miss := o.answer()
	miss.Refusal, miss.Contradicted = "history_lost", []allocation.Mark{more}
	o.apply(miss)
	if l := o.load(); !l.Lost {
		o.Fatalf("%+v", l)
	}
}

// Of a call that was never made, nothing may be unknown.
func testEndedContext(o *owner) {
	o.joined(10, "a")
	ctx, cancel := context.WithCancel(o.Context())
	cancel()
	for name, err := range map[string]error{
		"begin": func() error { _, err := o.Owner.Begin(ctx, o.w, o.want("one", o.key("a", 0))); return err }(),
		"load":  func() error { _, err := o.Owner.Load(ctx, 0); return err }(),
		"peek":  func() error { _, err := o.Owner.Peek(ctx, regional.Want{}); return err }(),
		"apply": o.Owner.Apply(ctx, o.w, o.answer(), 1),
	} {
		if err == nil || errors.Is(err, regional.ErrUnknownOutcome) {
			o.Errorf("%s: %v", name, err)
		}
	}
	o.mustCharge(allocation.Spend, "one", 1, o.key("a", 0))
	want := regional.Want{Changes: math.MaxInt64, IDs: make([]allocation.IDKey, regional.MaxBatchRequests+1)}
	if _, err := o.Owner.Begin(o.Context(), o.w, want); err == nil {
		o.Error("a batch beyond its bounds was begun")
	}
}
