package allocation

import (
	"errors"
	"testing"
)

// held is what h has of the first period.
func held(l Ledger, h Holder) int64 {
	e := l.EntryAt(0)
	if a := e.find(h, General); a != nil {
		return a.Held()
	}
	return 0
}

func frozenAt(number int64) Standing {
	return Standing{History: History{Number: number - 1, Stamp: "h"}}.Contradict("a test", History{}, 10_000, "h")
}

// If a mark that stands were taken for lost, a healthy writer would stop; if a lost one were taken for held, permits
// would be sold twice.
func TestMarks(t *testing.T) {
	seven, eight := Mark{"w", 7, "a"}, Mark{"w", 8, "b"}
	for _, test := range []struct {
		memory MarkMemory
		now    Mark
		want   MarkFinding
	}{
		{MarkMemory{Left: seven}, seven, MarkHeld},
		{MarkMemory{Left: seven}, eight, MarkLost}, // nobody else can have left it
		{MarkMemory{Left: seven}, Mark{}, MarkLost},
		{MarkMemory{Left: seven}, Mark{"w", 7, "x"}, MarkLost},
		{MarkMemory{Left: seven, Tried: eight}, eight, MarkCommitted},
		{MarkMemory{Left: seven, Tried: eight}, seven, MarkHeld},
		{MarkMemory{Left: seven, Tried: eight}, Mark{"w", 8, "c"}, MarkLost},
		{MarkMemory{}, Mark{}, MarkHeld}, // before its first transaction
	} {
		if got := test.memory.Judge(test.now); got != test.want {
			t.Errorf("%+v finds %+v: %d, want %d", test.memory, test.now, got, test.want)
		}
	}
	if lost := LostMarks([]Mark{seven, {"gone", 1, "a"}, {"ended", 1, "a"}}, []Mark{eight}, []string{"ended"}); len(lost) != 1 || lost[0].Writer != "gone" {
		t.Errorf("lost: %+v", lost)
	}
	if WentOn([]Mark{seven, {"v", 3, "a"}}, []Mark{seven, {"v", 3, "a"}}, "w") || !WentOn([]Mark{seven, {"v", 3, "a"}}, []Mark{seven, {"v", 4, "b"}}, "w") {
		t.Error("a writer waits for every other one, and not for itself")
	}
}

// If a message of an older history counted on either side, one that was under way during a restore would unfreeze what
// nobody has stated (invariant 8).
func TestHistories(t *testing.T) {
	two := History{2, "x"}
	for said, want := range map[History]Descent{two: SameHistory, {1, "a"}: OlderHistory, {}: OlderHistory, {2, "y"}: OtherHistory, {3, "x"}: OtherHistory} {
		if got := two.Hear(said); got != want {
			t.Errorf("%s hears %s: %d, want %d", two, said, got, want)
		}
		stored, take := two.Heed(said)
		if take != (said == two) || (stored != two) != (said.Number > 2) {
			t.Errorf("%s heeds %s: stores %s, takes %t", two, said, stored, take)
		}
	}
	s := Standing{History: History{1, "a"}}.Contradict("", History{5, "q"}, 100, "z")
	if s.History != (History{6, "z"}) || !s.Frozen(99) || s.Frozen(100) {
		t.Errorf("standing: %+v", s)
	}
	if next := s.Contradict("", History{}, 50, "y"); next.History.Number != 7 || next.Freeze.Through != 100 {
		t.Errorf("the freeze shrank: %+v", next)
	}
	s, thawed := s.Stated(Holder{"here", "one"}, []string{"here", "there"})
	if thawed || s.Lose(Holder{"here", "one"}).Lost != nil || len(s.Lose(Holder{"there", "two"}).Lost) != 1 || len(s.Lose(Holder{"here", "zero"}).Lost) != 1 {
		t.Errorf("who has stated speaks for itself, and for nobody else: %+v", s)
	}
	if s, thawed = s.Stated(Holder{"there", "two"}, []string{"here", "there"}); !thawed || s.Freeze != nil {
		t.Errorf("all have stated: %+v", s)
	}
}

// A ledger that went back to before a's return and b's grant is what its owners say, and then grants only what is free. If
// this fails, a restored etcd grants twice.
func TestReconcile(t *testing.T) {
	b := testBudget("a", "requests", 10)
	here, there := Holder{"here", "one"}, Holder{"there", "two"}
	m := Members{Number: 4, Regions: []string{"here", "there"}, Holders: []Holder{here, there}}
	before := OpenLedger(b, 1, tenMinutes, m, genOf(1))
	lost, err := before.Move(here, there, 3, 0, genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	var mine, theirs Share
	mine, _, _ = mine.Apply(lost.GrantTo(here))
	mine.Entries[0].Returned = 3
	lost, _, err = lost.Count(here, mine.Statement(nil, nil), genOf(3))
	if err != nil {
		t.Fatal(err)
	}
	theirs, _, _ = theirs.Apply(lost.GrantTo(there))

	s := frozenAt(2)
	l := before
	for _, o := range []struct {
		Holder
		Share
	}{{there, theirs}, {here, mine}} {
		if l, _, err = l.Reconcile(o.Holder, o.Share, o.Share.Statement(nil, nil), "new"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := l.Settle(s, "new"); !errors.Is(err, ErrFrozen) {
			t.Fatalf("settled while frozen: %v", err)
		}
		if l.Contradicts(o.Generation) || l.Generation.Number <= o.Generation.Number {
			t.Errorf("generation %s is not known at %s", o.Generation, l.Generation)
		}
	}
	if l.Unallocated(0) != 0 || held(l, here) != 2 || held(l, there) != 8 {
		t.Errorf("reconciled: %+v", l.Entries)
	}
	if again, changed, err := l.Reconcile(here, mine, mine.Statement(nil, nil), "newer"); changed || err != nil || again.Generation != l.Generation {
		t.Errorf("the same statement changes it again: %v", err)
	}
	if mine.Entries[0].Returned = 0; true {
		if _, _, err := l.Reconcile(here, mine, mine.Statement(nil, nil), "newer"); !errors.Is(err, ErrContradicted) {
			t.Errorf("an owner that forgot a return is believed: %v", err)
		}
	}
	if l.Members != 0 {
		t.Errorf("the targets are those of what was lost, and it follows members %d already", l.Members)
	}
	rebuilt, _, err := RebuildLedger(theirs, "requests").Reconcile(there, theirs, theirs.Statement(nil, nil), "new")
	if err != nil || rebuilt.Conserved() != nil || held(rebuilt, there) != 8 || rebuilt.Unallocated(0) != 2 {
		t.Errorf("rebuilt: %+v, %v", rebuilt, err)
	}
}

// What was returned in a line that is lost is granted to those who lack it, once nothing is frozen. If this fails, it lies
// there unallocated to the term's end: an owner states a return once.
func TestReconcileThenFollow(t *testing.T) {
	b := testBudget("a", "requests", 10)
	here, there := Holder{"here", "one"}, Holder{"there", "two"}
	m := Members{Number: 4, Regions: []string{"here", "there"}, Holders: []Holder{here, there}}
	l, err := OpenLedger(b, 1, tenMinutes, m, genOf(1)).Move(here, there, 3, 0, genOf(2))
	if err != nil {
		t.Fatal(err)
	}
	var mine, theirs Share
	mine, _, _ = mine.Apply(l.GrantTo(here))
	mine.Entries[0].Returned = 3
	theirs, _, _ = theirs.Apply(l.GrantTo(there))
	s := frozenAt(2)
	if l, _, err = l.Reconcile(there, theirs, theirs.Statement(nil, nil), "new"); err != nil || l.Members != m.Number {
		t.Fatalf("nothing came back, and it follows members %d: %v", l.Members, err)
	}
	if l, _, err = l.Reconcile(here, mine, mine.Statement(nil, nil), "new"); err != nil || l.Members == m.Number {
		t.Fatalf("3 came back, and it follows members %d already: %v", l.Members, err)
	}
	s.Freeze = nil
	if l, _, err = l.Settle(s, "new"); err != nil || held(l, here) != 2 || held(l, there) != 5 {
		t.Fatalf("settled: %+v, %v", l.Entries, err)
	}
	if l, err = l.Follow(b, 1, 0, m, genOf(9)); err != nil || held(l, here) != 2 || held(l, there) != 8 {
		t.Errorf("it follows: %+v, %v", l.Entries, err)
	}
}

// What an incarnation may hold that nobody speaks for is granted to nobody else, also of terms that are opened anew. If
// this fails, a new incarnation speaks for the one before it.
func TestLostHolders(t *testing.T) {
	b := testBudget("a", "requests", 10)
	here, there := Holder{"here", "one"}, Holder{"there", "two"}
	m := Members{Regions: []string{"here", "there"}, Holders: []Holder{here}}
	s := frozenAt(2).Lose(there)
	s.Freeze = nil
	l, changed, err := OpenLedger(b, 1, tenMinutes, m, genOf(1)).Settle(s, "new")
	if err != nil || !changed || !l.Settled(s) || l.Unallocated(0) != 0 || held(l, there) != 5 {
		t.Errorf("settled: %+v, %v", l, err)
	}
	opened, err := OpenUnproven(b, 1, tenMinutes, m, s, genOf(1))
	if err != nil || held(opened, here) != 0 || held(opened, there) != 10 || opened.Conserved() != nil {
		t.Errorf("opened: %+v, %v", opened, err)
	}
	s.Lost[0].Through = 6000
	if opened, err = OpenUnproven(b, 1, tenMinutes, m, s, genOf(1)); err != nil || held(opened, here) != 5 {
		t.Errorf("a term that cannot have been opened is stranded: %+v, %v", opened, err)
	}
}

// If a residence judged otherwise, two databases could act as one incarnation, or a former one come back.
func TestResidence(t *testing.T) {
	old, elsewhere := Home{"s", 1, 1}, Home{"s", 2, 1}
	r := Residence{Incarnation: "b", Home: old, Confirmed: true, Former: []string{"a"}}
	fresh := Residence{Incarnation: "b", Home: old, Former: []string{"a"}}
	for _, test := range []struct {
		r               Residence
		incarnation     string
		home            Home
		lost, inContact bool
		want            Claim
	}{
		{Residence{}, "", old, false, false, ClaimNew},
		{fresh, "", old, false, true, ClaimAgain},
		{fresh, "a", old, true, true, ClaimAgain},
		{fresh, "a", old, false, true, ClaimFormer}, // it does not know yet that it was replaced
		{r, "b", old, false, true, ClaimFits},
		{r, "b", elsewhere, false, true, ClaimSecondHome},
		{r, "b", elsewhere, false, false, ClaimMove},
		{r, "", elsewhere, false, true, ClaimSecondHome},
		{r, "", elsewhere, false, false, ClaimNew},
		{r, "b", old, true, true, ClaimNew},
		{r, "a", old, false, true, ClaimFormer},
		{r, "a", old, true, true, ClaimNew},
		{r, "z", old, false, true, ClaimUnheard},
		{r.End(), "b", old, false, true, ClaimFormer},
		{r.End(), "b", old, true, true, ClaimNew},
	} {
		if got := test.r.Judge(test.incarnation, test.home, test.lost, test.inContact); got != test.want {
			t.Errorf("%+v, %q at %v, lost %t, in contact %t: %d, want %d", test.r, test.incarnation, test.home, test.lost, test.inContact, got, test.want)
		}
	}
	a := Admission{State: StateReserved, Lines: []AdmissionLine{{Held: 3}}}
	if over := a.StartOver(); over.State != StateLapsedSpent || over.Lines[0].Spent != 3 || over.Lines[0].Held != 0 || a.Lines[0].Held != 3 {
		t.Errorf("an open reservation of a lost incarnation: %+v", over)
	}
}

// A seal frees what was neither spent nor reserved, to the permit, and only from the recorded home. If this fails, either
// permits are granted twice or a sealed region strands them for nothing.
func TestSeal(t *testing.T) {
	b := testBudget("a", "requests", 10)
	here, there := Holder{"here", "one"}, Holder{"there", "two"}
	m := Members{Regions: []string{"here", "there"}, Holders: []Holder{here, there}}
	l := OpenLedger(b, 1, tenMinutes, m, genOf(1))
	var share Share
	share, _, _ = share.Apply(l.GrantTo(here))
	share = share.Seal()
	used, _ := share.Usage(UsageKey{Budget: "a", Period: 6060, Class: General})
	used.Spent, used.Reserved = 2, 1
	home := Home{"s", 1, 1}
	residence := Residence{Incarnation: "one", Home: home, Confirmed: true}
	seal := Seal{Holder: here, Home: home, Marks: []Mark{{"w", 7, "a"}}, Shares: []SealedShare{{Share: share, Used: []Usage{used}}}}
	for what, err := range map[string]error{
		"before it was ended": seal.Proves(residence, nil),
		"from elsewhere":      Seal{Holder: here, Shares: seal.Shares}.Proves(residence.End(), nil),
		"without a mark":      seal.Proves(residence.End(), []Mark{{"w", 8, "a"}}),
		"not sealed":          Seal{Holder: here, Home: home, Shares: []SealedShare{{Share: Share{}}}}.Proves(residence.End(), nil),
	} {
		if !errors.Is(err, ErrNoProof) {
			t.Errorf("a seal %s is proof: %v", what, err)
		}
	}
	if err := seal.Proves(residence.End(), seal.Marks); err != nil {
		t.Fatal(err)
	}
	sealed, changed, err := l.CountSeal(here, seal.Shares[0], genOf(2))
	if err != nil || !changed || sealed.Unallocated(0) != 5 || sealed.Unallocated(1) != 2 || sealed.Conserved() != nil {
		t.Errorf("counted: %+v, %v", sealed, err)
	}
	if l.Unallocated(0) != 0 {
		t.Error("the ledger before was changed in place")
	}
	if _, changed, err := sealed.CountSeal(here, seal.Shares[0], genOf(3)); changed || err != nil {
		t.Errorf("the same seal counts twice: %v", err)
	}
	if after, changed, err := share.Apply(sealed.GrantTo(here)); changed || err != nil || !after.Sealed {
		t.Errorf("a sealed share takes a grant: %v", err)
	}
}

// If a node without memory were vouched for by an answer to an earlier call, or while etcd's own memory is in doubt, it
// would admit on a database that lost commits.
func TestVouching(t *testing.T) {
	own := Mark{"w", 1, "a"}
	call := SyncCall{History: History{1, "a"}, Incarnation: "one", Marks: []Mark{{"w", 2, "b"}}}
	answer := SyncAnswer{History: History{1, "a"}, Incarnation: "one"}
	if !answer.Vouches(call, own) {
		t.Fatal("a plain answer does not vouch")
	}
	for what, change := range map[string]func(a *SyncAnswer, c *SyncCall){
		"refused":             func(a *SyncAnswer, _ *SyncCall) { a.Refusal = "history_lost" },
		"frozen":              func(a *SyncAnswer, _ *SyncCall) { a.Frozen = true },
		"another history":     func(a *SyncAnswer, _ *SyncCall) { a.History.Number = 2 },
		"another incarnation": func(a *SyncAnswer, _ *SyncCall) { a.Incarnation = "two" },
		"an earlier call":     func(_ *SyncAnswer, c *SyncCall) { c.Marks = []Mark{{"v", 9, "b"}} },
		"lost":                func(_ *SyncAnswer, c *SyncCall) { c.Lost = true },
	} {
		a, c := answer, call
		if change(&a, &c); a.Vouches(c, own) {
			t.Errorf("%s: it vouches", what)
		}
	}
	s := Standing{History: History{1, "a"}}
	by := Vouch{By: Mark{"x", 3, "b"}, For: "w", History: s.History}
	if s.Trusts("w", nil) || !s.Trusts("w", []Vouch{by}) || s.Trusts("x", []Vouch{by}) || frozenAt(2).Trusts("w", []Vouch{by}) {
		t.Error("a coordinator trusts etcd without a voucher, or not with one")
	}
}

// Where two lines of descent hold different versions, the stricter one wins.
func TestStricter(t *testing.T) {
	a, b := ConfiguredBudget{Budget: testBudget("a", "requests", 5), Version: 3}, ConfiguredBudget{Budget: testBudget("a", "requests", 9), Version: 4}
	for _, got := range []ConfiguredBudget{Stricter(a, b), Stricter(b, a)} {
		if *got.Budget.Limit != 5 || got.Version != 5 {
			t.Errorf("stricter: limit %d, version %d", *got.Budget.Limit, got.Version)
		}
	}
	if got := Stricter(a, a); got.Version != 3 {
		t.Errorf("the same version became %d", got.Version)
	}
}
