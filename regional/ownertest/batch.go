package ownertest

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"tranche/allocation"
	"tranche/regional"
)

func (o *owner) wanted(k allocation.UsageKey, make bool) regional.WantedUsage {
	return regional.WantedUsage{UsageKey: k, Until: k.Period + 60, Term: o.first, Make: make}
}

func (o *owner) want(name string, keys ...allocation.UsageKey) regional.Want {
	want := regional.Want{IDs: []allocation.IDKey{id(name)}, Changes: math.MaxInt64}
	for _, k := range slices.SortedFunc(slices.Values(keys), allocation.UsageKey.Compare) {
		want.Usage = append(want.Usage, o.wanted(k, true))
	}
	return want
}

func (o *owner) begin(w regional.Writer, want regional.Want) regional.Batch {
	o.Helper()
	b, err := o.of(w).Begin(o.Context(), w, want)
	o.must(err)
	return b
}

// of is the owner that a writer belongs to.
func (o *owner) of(w regional.Writer) regional.Owner {
	if w == o.second {
		return o.Other
	}
	return o.Owner
}

// admission charges n permits of each row that was wanted; false if one of them does not hold as many.
func admission(seen *regional.Seen, op allocation.Op, name string, n int64, keys ...allocation.UsageKey) (w regional.Writes, ok bool) {
	a := &allocation.Admission{
		IDKey: id(name), Payload: "0123456789abcdef", Op: op, State: allocation.StateSpent, At: seen.Now,
		First: allocation.Evidence{Incarnation: seen.Incarnation, Correlation: `"\{},`, Node: "n"},
	}
	if op == allocation.Reserve {
		a.State, a.ExpiresAt, a.Latest = allocation.StateReserved, seen.Now+60_000_000, seen.Now+120_000_000
	}
	for _, k := range slices.SortedFunc(slices.Values(keys), allocation.UsageKey.Compare) {
		u := seen.Usage[k]
		if u == nil || u.Spendable(math.MaxInt64) < n {
			return w, false
		}
		line := allocation.AdmissionLine{
			UsageKey: k, Until: u.Until, Unit: "requests", Version: 1, Generation: u.Generation, Limit: 10, Requested: n, OnLapse: "spend",
		}
		if op == allocation.Reserve {
			u.Reserved, line.Held = u.Reserved+n, n
		} else {
			u.Spent, line.Spent = u.Spent+n, n
		}
		line.Remaining = u.Spendable(math.MaxInt64)
		a.Lines = append(a.Lines, line)
		w.Usage = append(w.Usage, u)
	}
	w.Inserted = []*allocation.Admission{a}
	return w, true
}

// charge is one batch with one admission, tried again while others are faster. It says whether it was admitted.
func (o *owner) charge(w regional.Writer, op allocation.Op, name string, n int64, keys ...allocation.UsageKey) (bool, error) {
	for {
		b, err := o.of(w).Begin(o.Context(), w, o.want(name, keys...))
		if errors.Is(err, regional.ErrRaced) {
			continue
		}
		if err != nil {
			return false, err
		}
		writes, ok := admission(b.Seen(), op, name, n, keys...)
		if !ok || b.Seen().IDs[id(name)] != nil {
			b.Abandon()
			return false, nil
		}
		if err := b.Commit(o.Context(), writes); !errors.Is(err, regional.ErrRaced) {
			return err == nil, err
		}
	}
}

func (o *owner) mustCharge(op allocation.Op, name string, n int64, keys ...allocation.UsageKey) {
	o.Helper()
	if ok, err := o.charge(o.w, op, name, n, keys...); err != nil || !ok {
		o.Fatalf("%s %s: admitted %v, %v", op, name, ok, err)
	}
}

// What was admitted must be there for every node, whole, or a retry is charged again.
func testAdmit(o *owner) {
	o.joined(10, "a", "b")
	a, b := o.key("a", 0), o.key("b", 0)
	batch := o.begin(o.w, o.want("one", a, b))
	seen := batch.Seen()
	if len(seen.IDs) != 0 || seen.Unsafe != "" || seen.Now == 0 || seen.Incarnation != "life-1" || seen.Behind || seen.Home.System == "" {
		o.Fatalf("%+v", seen)
	}
	for _, k := range []allocation.UsageKey{a, b} {
		want := allocation.Usage{UsageKey: k, Until: k.Period + 60, Term: o.first, Version: 1, Generation: 1, Granted: 10, Target: 10}
		if u := seen.Usage[k]; u == nil || *u != want {
			o.Fatalf("%+v, want %+v", u, want)
		}
	}
	writes, _ := admission(seen, allocation.Spend, "one", 3, a, b)
	// One that shadow let through is part of the admission, and has no row.
	writes.Inserted[0].Lines = append(writes.Inserted[0].Lines, allocation.AdmissionLine{
		UsageKey: o.key("c", 0), Unit: "tokens", Version: 2, Requested: 7, OnLapse: "spend", Enforcement: allocation.Shadow, Would: allocation.NotHome,
	})
	want := *writes.Inserted[0]
	want.Lines = slices.Clone(want.Lines)
	o.must(batch.Commit(o.Context(), writes))
	writes.Usage[0].Spent, writes.Inserted[0].Lines[0].Spent = 9, 9 // the caller's own
	if o.spent(a) != 3 || o.spent(b) != 3 {
		o.Fatalf("spent %d and %d", o.spent(a), o.spent(b))
	}
	other := o.begin(o.second, o.want("one", a))
	defer other.Abandon()
	got := other.Seen().IDs[id("one")]
	if got == nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", want) {
		o.Fatalf("read back\n%+v\nwritten\n%+v", got, want)
	}
}

// What was abandoned, or ended in an error, must leave nothing, and free its locks and its writer.
func testAbandon(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	batch := o.begin(o.w, o.want("one", a))
	batch.Abandon()
	batch.Abandon() // again is no error
	if err := batch.Commit(o.Context(), regional.Writes{}); err == nil {
		o.Fatal("an abandoned batch was committed")
	}
	if o.usage(a) != nil || o.found("one") != nil {
		o.Fatal("something is there")
	}
	o.mustCharge(allocation.Spend, "one", 1, a)
}

// A row without a share would be permits out of nothing.
func testMake(o *owner) {
	o.joined(10, "a")
	a, before, between := o.key("a", 0), o.key("a", -1), o.key("a", 1)
	between.Period += 30
	none := o.key("none", 0)
	keys := []allocation.UsageKey{a, before, between, none}
	peeked := o.peek(o.want("one", keys...))
	batch := o.begin(o.w, o.want("one", keys...))
	batch.Abandon()
	for _, seen := range []*regional.Seen{&peeked, batch.Seen()} {
		if len(seen.Usage) != 1 || seen.Usage[a] == nil || len(seen.Full) != 0 {
			o.Fatalf("%+v, full %+v", seen.Usage, seen.Full)
		}
	}
	want := regional.Want{Usage: []regional.WantedUsage{o.wanted(a, false)}, Changes: math.MaxInt64}
	batch = o.begin(o.w, want)
	defer batch.Abandon()
	if len(batch.Seen().Usage) != 0 {
		o.Fatal("a row was made that nobody asked for")
	}
}

// Instances of a template are made by whoever sends a label: they must be bounded.
func testInstances(o *owner) {
	g := o.grant("t/{who}", 1, 5, 5)
	g.Template = true
	answer := o.answer()
	answer.Shares = []allocation.ShareGrant{g}
	o.apply(answer)
	want := o.want("one")
	for _, who := range []string{"", "a", "b", "c"} {
		k := o.key("t/{who}", 0)
		k.Instance = who
		u := o.wanted(k, true)
		u.MaxInstances = 2
		want.Usage = append(want.Usage, u)
	}
	keys := func(i ...int) (out []allocation.UsageKey) {
		for _, n := range i {
			out = append(out, want.Usage[n].UsageKey)
		}
		return out
	}
	batch := o.begin(o.w, want)
	seen := batch.Seen()
	if len(seen.Usage) != 2 || seen.Usage[keys(1)[0]] == nil || len(seen.Full) != 1 || !seen.Full[keys(3)[0]] {
		o.Fatalf("%+v, full %+v", seen.Usage, seen.Full)
	}
	if u := seen.Usage[keys(1)[0]]; !u.Template || u.Granted != 5 {
		o.Fatalf("%+v", u)
	}
	writes, _ := admission(seen, allocation.Spend, "one", 5, keys(1, 2)...)
	o.must(batch.Commit(o.Context(), writes))
	if seen := o.peek(want); len(seen.Usage) != 2 || !seen.Full[keys(3)[0]] {
		o.Fatalf("%+v, full %+v", seen.Usage, seen.Full)
	}
}

// An id that is committed without its charge, or a charge beyond the share, would be permits out of nothing.
func testExactly(o *owner) {
	o.joined(10, "a")
	a, missing := o.key("a", 0), o.key("a", 1)
	o.mustCharge(allocation.Spend, "zero", 1, a)
	for name, change := range map[string]func(w *regional.Writes){
		"no such row":     func(w *regional.Writes) { w.Usage[0].UsageKey = missing },
		"another grant":   func(w *regional.Writes) { w.Usage[0].Granted++ },
		"beyond":          func(w *regional.Writes) { w.Usage[0].Spent = 11 },
		"below 0":         func(w *regional.Writes) { w.Usage[0].Reserved = -1 },
		"an id not found": func(w *regional.Writes) { w.Updated, w.Inserted = w.Inserted, nil },
	} {
		batch := o.begin(o.w, o.want("one", a))
		writes, _ := admission(batch.Seen(), allocation.Spend, "one", 1, a)
		change(&writes)
		err := batch.Commit(o.Context(), writes)
		if err == nil || errors.Is(err, regional.ErrUnknownOutcome) || errors.Is(err, regional.ErrHistoryLost) {
			o.Fatalf("%s: %v", name, err)
		}
		if o.spent(a) != 1 || o.usage(missing) != nil || o.found("one") != nil {
			o.Fatalf("%s: something was written", name)
		}
	}
	o.mustCharge(allocation.Spend, "one", 1, a)
}

// A node that stands still between its two round trips must not hold the region, and what it decided must not count.
func testIdle(o *owner) {
	o.joined(10, "a")
	a := o.key("a", 0)
	o.mustCharge(allocation.Spend, "zero", 1, a)
	still := o.begin(o.w, o.want("one", a))
	writes, _ := admission(still.Seen(), allocation.Spend, "one", 5, a)
	if ok, err := o.charge(o.second, allocation.Spend, "two", 2, a); err != nil || !ok {
		o.Fatal(ok, err)
	}
	err := still.Commit(o.Context(), writes)
	if errors.Is(err, regional.ErrUnknownOutcome) {
		var committed bool
		if committed, err = o.w.Resolve(o.Context()); err != nil || committed {
			o.Fatal(committed, err)
		}
	} else if err == nil {
		o.Fatal("it was committed")
	}
	if o.spent(a) != 3 || o.found("one") != nil {
		o.Fatalf("spent %d", o.spent(a))
	}
	o.mustCharge(allocation.Spend, "one", 1, a)
}
