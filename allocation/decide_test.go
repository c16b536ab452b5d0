package allocation

import (
	"fmt"
	"slices"
	"testing"
)

// faulty is a request with some faults, and the owner that it comes to.
type faulty struct {
	*Locked
	r      Request
	budget map[string]*granted
	late   []func() // applied to the owner when it was made
}

// fault is one thing that can be wrong, and how that is answered.
type fault struct {
	name   string
	reason Reason
	make   func(*faulty)
	not    string // the fault that it cannot be had with; "row": those that leave no row
}

// The order of decisions: a request with any two of these faults is answered by the one that stands first.
var faultsInOrder = []fault{
	{"blocked", Blocked, withDocuments(blockOf("b-1", Block{Match: Labels{"tenant": "acme"}, Until: firstMinute + 3600})), ""},
	{"key unknown", KeyUnknown, func(f *faulty) { f.r.Presented, _ = Present(KeyText("acme", "another")) }, ""},
	{"key revoked", KeyRevoked, withKey(func(k *Key) { k.Revoked = &Lifted{At: 1, By: "op"} }), ""},
	{"out of scope", ScopeDenied, withKey(func(k *Key) { k.Capabilities = []string{"export"} }), "key revoked"},
	{"stopped", UnsafeSettings, func(f *faulty) { f.late = append(f.late, func() { f.Stopped = UnsafeSettings }) }, ""},
	{"no id", AdmissionIDMissing, func(f *faulty) { f.r.Key.ID = "" }, ""},
	{"known id, other labels", AdmissionIDConflict, knownAs(StateSpent, "other"), "no id"},
	{"known id, released", AdmissionIDReleased, knownAs(StateReleased, ""), "no id"},
	{"label missing", LabelMissing, func(f *faulty) { delete(f.r.Labels, "caller") }, ""},
	{"too many budgets", TooManyBudgets, func(f *faulty) {
		for i := range 8 {
			name := fmt.Sprint("z", i)
			f.budget[name] = &granted{testBudget(name, "requests", 1000), 1000}
		}
	}, ""},
	{"cost unknown", CostUnknown, func(f *faulty) { delete(f.r.Costs, "tokens") }, "too many budgets"},
	{"id of the node's making", AdmissionIDMissing, func(f *faulty) { f.r.Generated = true }, ""},
	{"stale", EvidenceStale, func(f *faulty) { f.budget["d"].MaxEvidenceAge = Minute }, ""},
	{"not home", NotHome, func(f *faulty) {
		f.budget["A"].Allocation = Policy{Policy: PolicyHome, Region: "there"}
	}, ""},
	{"no allocation", NoAllocation, func(f *faulty) {
		f.late = append(f.late, func() {
			f.Catalogue = f.Catalogue.With(2, nil, nil, []ShareRef{{Budget: "A", Term: firstMinute}})
		})
	}, ""},
	{"full", TooManyInstances, func(f *faulty) {
		k := UsageKey{Budget: "A", Period: firstMinute, Class: General}
		f.late = append(f.late, func() { delete(f.Usage, k); f.Full[k] = true })
	}, ""},
	{"in no share", NoAllocation, func(f *faulty) {
		k := UsageKey{Budget: "A", Period: firstMinute, Class: General}
		f.late = append(f.late, func() { delete(f.Usage, k); f.None = map[UsageKey]bool{k: true} })
	}, ""},
	{"sealed", Sealed, func(f *faulty) { f.late = append(f.late, func() { f.row("A").Sealed = true }) }, "row"},
	{"closed", ClockBehind, func(f *faulty) { f.late = append(f.late, func() { f.ClosedBefore = firstMinute + 60 }) }, ""},
	{"never fits", CostExceedsLimit, func(f *faulty) { f.r.Costs["tokens"] = 101 }, "cost unknown"},
	{"spent", RegionShareSpent, func(f *faulty) { f.late = append(f.late, func() { f.row("A").Spent = 45 }) }, "row"},
	{"protected", OnlyProtectedLeft, func(f *faulty) { f.late = append(f.late, func() { f.row("a").Protected = 1000 }) }, ""},
	{"refused by the ladder", LadderRefused, func(f *faulty) {
		f.r.Priority = Batch
		f.late = append(f.late, func() { f.row("d").Spent = 20 })
		f.budget["d"].Ladder = &Ladder{Batch: &Rungs{RefuseAt: 40}}
	}, ""},
	{"deferred", Deferred, func(f *faulty) {
		f.r.Priority = Batch
		f.late = append(f.late, func() { f.row("a").Spent = 100 })
		f.budget["a"].Ladder = &Ladder{Batch: &Rungs{DeferAt: 10}}
	}, ""},
}

func knownAs(s State, other string) func(*faulty) {
	return func(f *faulty) {
		f.late = append(f.late, func() {
			if a := f.IDs[f.r.Key]; a != nil {
				a.State = s
				return
			}
			r := f.r
			r.Labels = Labels{"route": other}
			a := &Admission{IDKey: f.r.Key, Op: f.r.Op, State: s, Payload: f.r.PayloadHash(), Lines: make([]AdmissionLine, 1)}
			if other != "" {
				a.Payload = r.PayloadHash()
			}
			f.IDs[f.r.Key] = a
		})
	}
}

func (f *faulty) row(budget string) *Usage {
	return f.Usage[UsageKey{Budget: budget, Period: firstMinute, Class: General}]
}

// newFaulty has four budgets, of which A and d count tokens. The faults of one budget's judgement are all A's, which is
// the first by name, so that their order comes from the judgement only.
func newFaulty(op Op, faults ...fault) *faulty {
	f := &faulty{
		r: request(op, "x", map[string]int64{"requests": 1, "tokens": 10}),
		budget: map[string]*granted{
			"a": {testBudget("a", "requests", 1000), 1000}, "b/{caller}": {testBudget("b/{caller}", "requests", 1000), 1000},
			"A": {testBudget("A", "tokens", 100), 50}, "d": {testBudget("d", "tokens", 100), 50},
		},
	}
	for _, fault := range faults {
		fault.make(f)
	}
	var all []granted
	for _, g := range f.budget {
		all = append(all, *g)
	}
	f.Locked = newOwner(all...)
	for _, change := range f.late {
		change()
	}
	return f
}

// First match decides. If this fails, a caller is told to wait where nothing can help, or to go away where waiting
// would; and the order that the documentation promises is not the one in force.
func TestOrderOfDecisions(t *testing.T) {
	for i, first := range faultsInOrder {
		for j, second := range faultsInOrder[i:] {
			if second.not == first.name || second.not == "row" && (first.name == "full" || first.name == "in no share") {
				continue
			}
			f := newFaulty(Spend, first, second)
			before := f.everything()
			d := f.put(f.r)
			if d.Reason != first.reason || d.Admitted() || d.Action != map[bool]string{true: ActionDeferred, false: ActionRefused}[d.Reason == Deferred] {
				t.Errorf("%s and %s: %s, want %s", first.name, faultsInOrder[i+j].name, d.Reason, first.reason)
			}
			if f.everything() != before || len(f.ChangedUsage)+len(f.Inserted)+len(f.Updated) != 0 {
				t.Errorf("%s and %s: the refusal changed something", first.name, second.name)
			}
		}
	}
	if d := newFaulty(Spend).put(newFaulty(Spend).r); !d.Admitted() || d.Action != ActionPreferred {
		t.Errorf("without a fault: %s", d.Reason)
	}
}

// A check answers as a spend of a new id would, needs no id, and charges nothing. If this fails `tranche check` lies, or costs.
func TestCheckSpendsNothing(t *testing.T) {
	for _, fault := range faultsInOrder {
		f := newFaulty(Check, fault)
		before := f.everything()
		d := f.put(f.r)
		want := fault.reason
		switch want {
		case AdmissionIDMissing, AdmissionIDConflict, AdmissionIDReleased:
			want = Allow
		}
		if d.Reason != want || f.everything() != before {
			t.Errorf("%s: a check answers %s, want %s", fault.name, d.Reason, want)
		}
	}
}

// All budgets are listed, the first refusing one by name is reported, and nothing is charged to those that would admit
// (invariant 7). If this fails callers are sent after the wrong budget.
func TestFirstRefusingBudgetIsReported(t *testing.T) {
	names := []string{"a", "B", "a/b", "a.b", "b"}
	sorted := slices.Sorted(slices.Values(names))
	for mask := range 1 << len(names) {
		var all []granted
		first := ""
		for i, name := range sorted {
			g := granted{testBudget(name, "requests", 100), 50}
			if mask>>i&1 == 1 {
				g.units = 4
				if first == "" {
					first = name
				}
			}
			all = append(all, g)
		}
		l := newOwner(all...)
		d := l.ask(Spend, "x", requests(5))
		if d.Blames != first || d.Admitted() != (first == "") || len(d.Budgets) != len(names) {
			t.Fatalf("%05b: %s by %q, want %q; %d are listed", mask, d.Reason, d.Blames, first, len(d.Budgets))
		}
		for i, b := range d.Budgets {
			charged := int64(0)
			if first == "" {
				charged = 5
			}
			if b.Budget != sorted[i] || (b.Reason == Allow) == (mask>>i&1 == 1) || b.Charged != charged || l.account(b.Budget) != fmt.Sprintf("%d/0/0", charged) {
				t.Fatalf("%05b: %s is listed as %+v", mask, sorted[i], b)
			}
		}
	}
}

// Zero means none (invariant 13): a limit of 0 and a deleted budget refuse what costs nothing too, also where permits
// are still held. If this fails a budget that was shut off lets free requests through.
func TestLimitZeroRefusesAll(t *testing.T) {
	for _, cost := range []int64{0, 1, MaxUnits} {
		l := newOwner(granted{testBudget("a", "requests", 0), 100})
		for _, op := range []Op{Spend, Reserve, Check} {
			if d := l.ask(op, "x", requests(cost)); d.Reason != CeilingReached {
				t.Errorf("%s of %d: %s", op, cost, d.Reason)
			}
		}
	}
	l := newOwner(granted{testBudget("a", "requests", 10), 0})
	if d := l.ask(Spend, "x", requests(0)); !d.Admitted() {
		t.Errorf("what costs nothing, with an empty share: %s", d.Reason)
	}
	if d := l.ask(Spend, "y", requests(1)); d.Reason != RegionShareSpent {
		t.Errorf("1, with an empty share: %s", d.Reason)
	}
}

// A cost that no door should let in never gives permits back, nor overflows.
func TestImpossibleCosts(t *testing.T) {
	for _, cost := range []int64{-1, MaxUnits + 1, 1<<63 - 1, -1 << 63} {
		l := newOwner(granted{testBudget("a", "requests", MaxUnits), MaxUnits})
		before := l.everything()
		if d := l.ask(Spend, "x", requests(cost)); d.Reason != CostUnknown || l.everything() != before {
			t.Errorf("a cost of %d: %s", cost, d.Reason)
		}
	}
}

// Why a share is spent rests on what is known of the others, for this very period. If this fails a caller waits an hour
// for what a neighbour could give at once, or hammers a budget that is used up.
func TestSpentReasons(t *testing.T) {
	for name, c := range map[string]struct {
		cost  int64
		other *Elsewhere
		want  Reason
	}{
		"nothing known":       {10, nil, RegionShareSpent},
		"of another period":   {10, &Elsewhere{Period: secondMinute}, RegionShareSpent},
		"under another limit": {10, &Elsewhere{Period: firstMinute, Limit: 99}, RegionShareSpent},
		"of an older ledger":  {10, &Elsewhere{Period: firstMinute, Generation: -1}, RegionShareSpent},
		"unallocated":         {10, &Elsewhere{Period: firstMinute, Unallocated: 5, Stranded: 5}, RegionShareSpent},
		"others hold some":    {10, &Elsewhere{Period: firstMinute, Spendable: 5, Stranded: 5}, RegionShareSpent},
		"the rest is cut off": {10, &Elsewhere{Period: firstMinute, Stranded: 5}, CapacityStranded},
		"others hold too little, the rest is cut off": {10, &Elsewhere{Period: firstMinute, Spendable: 1, Stranded: 5}, CapacityStranded},

		"the rest is kept":                  {10, &Elsewhere{Period: firstMinute, Unallocated: 5, Kept: 5}, RegionShareSpent},
		"the rest is cut off, some is kept": {10, &Elsewhere{Period: firstMinute, Unallocated: 5, Kept: 5, Stranded: 5}, CapacityStranded},
		"more than what is kept is free":    {10, &Elsewhere{Period: firstMinute, Unallocated: 10, Kept: 5, Stranded: 5}, RegionShareSpent},
		"some may come back":                {10, &Elsewhere{Period: firstMinute, Spendable: 1, Reserved: 4}, RegionShareSpent},
		"all are spent":                     {10, &Elsewhere{Period: firstMinute}, CeilingReached},
		"all together are too few":          {10, &Elsewhere{Period: firstMinute, Unallocated: 1, Spendable: 1, Reserved: 1, Stranded: 1}, CeilingReached},
		"spent here":                        {61, nil, CeilingReached}, // 40 are spent of 100
	} {
		l := newOwner(granted{testBudget("a", "requests", 100), 45})
		l.ask(Spend, "first", requests(40))
		if c.other != nil {
			e := *c.other
			if e.Limit == 0 {
				e.Limit = 100
			}
			e.Generation++ // the rows are of generation 1
			l.Elsewhere["a"] = e
		}
		if d := l.ask(Spend, "x", requests(c.cost)); d.Reason != c.want {
			t.Errorf("%s: %s, want %s", name, d.Reason, c.want)
		}
	}
}

// What this region gave back and the ledger has not counted yet is nowhere, and will be somewhere: nobody is told that all is
// used up because of it.
func TestReturnedOnItsWay(t *testing.T) {
	for counted, want := range map[int64]Reason{0: RegionShareSpent, 7: RegionShareSpent, 10: CeilingReached} {
		l := newOwner(granted{testBudget("a", "requests", 100), 50})
		l.ask(Spend, "first", requests(40))
		for _, u := range l.Usage {
			u.Returned, u.Target = 10, 40
		}
		l.Elsewhere["a"] = Elsewhere{Period: firstMinute, Limit: 100, Generation: 1, Returned: counted}
		if d := l.ask(Spend, "x", requests(2)); d.Reason != want {
			t.Errorf("%d of 10 counted: %s, want %s", counted, d.Reason, want)
		}
	}
}

// The owner's clock, read after the locks, chooses the period; a plan from before a boundary or from other budgets is
// made anew, and goes to the next batch where its rows are not locked (invariant 10).
func TestPlansAreMadeAnew(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 100})
	plan := l.Catalogue.Plan(request(Spend, "x", requests(1)), l.now())
	l.Now = int64(secondMinute) * 1_000_000
	if d := l.Decide(plan).Decision; !d.Admitted() || d.Budgets[0].Period != secondMinute {
		t.Errorf("planned in the first minute, decided in the second: %s, period %s", d.Reason, d.Budgets[0].Period)
	}
	l.Now += 60e6
	if out := l.Decide(l.Catalogue.Plan(request(Spend, "y", requests(1)), secondMinute)); !out.Again || len(l.IDs) != 1 {
		t.Errorf("a row that is not locked: %+v", out)
	}
	l.LookedUp = func(IDKey) bool { return false }
	if out := l.Decide(l.Catalogue.Plan(request(Spend, "x", requests(1)), l.now())); !out.Again {
		t.Errorf("an id that was not looked up: %+v", out)
	}

	l = newOwner(granted{testBudget("a", "requests", 100), 100})
	plan = l.Catalogue.Plan(request(Spend, "x", requests(1)), l.now())
	deleted := ConfiguredBudget{Budget: testBudget("a", "requests", 100), Version: 2, Deleted: true}
	l.Catalogue = l.Catalogue.With(2, []ConfiguredBudget{deleted}, nil, nil)
	if d := l.Decide(plan).Decision; d.Reason != NoBudget || l.account("a") != "0/0/0" {
		t.Errorf("planned before the budget was deleted: %s", d.Reason)
	}

	// Planned when no term was open yet, for a home that the term does not name.
	home := testBudget("a", "requests", 100)
	home.Allocation = Policy{Policy: PolicyHome, Region: "there"}
	l = newOwner(granted{testBudget("a", "requests", 100), 100})
	l.Catalogue = l.Catalogue.With(2, []ConfiguredBudget{{Budget: home, Version: 2}}, nil, nil)
	if d := l.Decide(l.Catalogue.Plan(request(Spend, "x", requests(1)), firstMinute-1)).Decision; !d.Admitted() {
		t.Errorf("planned before the term: %s, home %q", d.Reason, d.Home)
	}
}

// A budget decides for itself whether it takes ids of a node's making, and evidence of what age.
func TestBudgetsOwnConditions(t *testing.T) {
	generated := testBudget("a", "requests", 100)
	generated.AdmissionID = AdmissionIDGenerated
	r := request(Spend, "x", requests(1))
	r.Generated = true
	if d := newOwner(granted{generated, 10}).put(r); !d.Admitted() {
		t.Errorf("a generated id: %s", d.Reason)
	}
	if d := newOwner(granted{generated, 10}, granted{testBudget("b", "requests", 100), 10}).put(r); d.Reason != AdmissionIDMissing || d.Blames != "b" {
		t.Errorf("one of two budgets requires an id: %s of %q", d.Reason, d.Blames)
	}
	for _, c := range []struct {
		age     int64 // microseconds; 0: never observed
		on      string
		allowed bool
	}{
		{60e6, "", true},
		{60e6 + 1, "", false},
		{60e6 + 1, OnStaleRefuse, false},
		{60e6 + 1, OnStaleAdmit, true},
		{0, "", false},
		{0, OnStaleAdmit, true},
		{-5e6, "", true}, // the clock was put back; it is no older for that
	} {
		b := testBudget("a", "requests", 100)
		b.MaxEvidenceAge, b.OnStaleEvidence = Minute, c.on
		l := newOwner(granted{b, 10})
		if c.age != 0 {
			l.ObservedAt = l.Now - c.age
		}
		if d := l.ask(Spend, "x", requests(1)); d.Admitted() != c.allowed || !c.allowed && d.Reason != EvidenceStale {
			t.Errorf("evidence of age %d, %q: %s", c.age, c.on, d.Reason)
		}
	}
	b := testBudget("a", "requests", 100)
	b.MaxEvidenceAge = MaxMaxEvidenceAge
	if d := newOwner(granted{b, 10}).ask(Spend, "x", requests(1)); d.Reason != EvidenceStale {
		t.Errorf("never observed, where any age since 1970 would do: %s", d.Reason)
	}
}

// A replay has the first answer and the present state, whatever changed since, and an estimate may change between two
// tries (invariant 6). If this fails retries are charged twice, or refused by a budget that is used up meanwhile.
func TestReplay(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 10}, granted{testBudget("b/{caller}", "requests", 100), 50})
	first := l.ask(Spend, "x", requests(10))
	gone := ConfiguredBudget{Budget: testBudget("a", "requests", 100), Version: 2, Deleted: true}
	l.Catalogue = l.Catalogue.With(2, []ConfiguredBudget{gone}, nil, nil)
	l.Now, l.ClosedBefore, l.Revision = l.Now+86400e6, secondMinute+60, 9
	before := l.everything()
	again := l.ask(Spend, "x", requests(3))
	if !again.Replayed || again.State != StateSpent || again.At != first.At || again.Evidence != first.Evidence || len(again.Budgets) != 2 {
		t.Errorf("the replay answers %+v", again)
	}
	for i, b := range again.Budgets {
		f := first.Budgets[i]
		if b.UsageKey != f.UsageKey || b.Charged != f.Charged || b.Remaining != f.Remaining || b.Generation != f.Generation || b.Version != f.Version || b.Limit != f.Limit {
			t.Errorf("the replay answers %+v, the first answer was %+v", b, f)
		}
	}
	if l.everything() != before {
		t.Error("a replay changed something")
	}
	l = newOwner(granted{testBudget("a", "requests", 100), 50})
	l.ask(Reserve, "x", requests(10))
	if d := l.ask(Reserve, "x", requests(10)); !d.Replayed || d.Budgets[0].Charged != 10 || d.Expires != l.Now+3600e6 || d.State != StateReserved {
		t.Errorf("the replay of a reservation answers %+v", d)
	}
	l.ask(Settle, "x", requests(4))
	if d := l.ask(Reserve, "x", requests(10)); !d.Replayed || d.Budgets[0].Charged != 4 || d.Expires != 0 || d.State != StateSettled {
		t.Errorf("the replay of what was settled answers %+v", d)
	}
}

// An id is bound to what it was first used for, and to one credential and tenant. If this fails one id admits two
// different requests, or one tenant's retry gets another's answer.
func TestIDsAreBound(t *testing.T) {
	l := newOwner(granted{testBudget("a", "requests", 100), 10})
	l.ask(Spend, "x", requests(10))
	before := l.everything()
	other := request(Spend, "x", requests(10))
	other.Labels = Labels{"tenant": "acme"}
	for name, r := range map[string]Request{
		"another op": request(Reserve, "x", requests(10)), "another unit": request(Spend, "x", map[string]int64{"tokens": 1}), "other labels": other,
	} {
		if d := l.put(r); d.Reason != AdmissionIDConflict {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
	if l.everything() != before {
		t.Error("a conflict changed something")
	}
	for _, key := range []IDKey{{"gateway", "other", "x"}, {"other", "acme", "x"}} {
		r := request(Spend, "x", requests(1))
		if r.Key = key; l.put(r).Replayed {
			t.Errorf("%v replays another's admission", key)
		}
	}
}
