package allocation

import (
	"encoding/json"
	"slices"
	"testing"
)

var (
	holderA = Holder{Region: "a", Incarnation: "a1"}
	holderB = Holder{Region: "b", Incarnation: "b1"}
)

// sixtyForty are the books of a limit of 100, split 60 to 40, over three minutes. Region a spent 10 and holds 5 in the
// first, b spent 40 there.
func sixtyForty(name string, policy Policy) Books {
	limit := int64(100)
	b := Budget{Name: name, Unit: "requests", Limit: &limit, Window: Window{Every: Minute}, Allocation: policy}
	members := Members{Regions: []string{"a", "b"}, Holders: []Holder{holderA, holderB}}
	l := OpenLedger(b, 1, Periods{First: 600, Step: 60, Count: 3}, members, Generation{Number: 1, Stamp: "s1"})
	books := Books{Earlier: []Ledger{l}, Later: []Ledger{l}, Now: 610}
	instance := ""
	if b.IsTemplate() {
		instance = "x"
	}
	for h, counts := range map[Holder][2]int64{holderA: {10, 5}, holderB: {40, 0}} {
		share, _, err := Share{}.Apply(l.GrantTo(h))
		if err != nil {
			panic(err)
		}
		u, _ := share.Usage(UsageKey{Budget: name, Instance: instance, Period: 600, Class: General})
		u.Spent, u.Reserved = counts[0], counts[1]
		books.Owners = append(books.Owners, OwnerAccount{Region: h.Region, Incarnation: h.Incarnation, Shares: []Share{share}, Usage: []Usage{u}})
	}
	slices.SortFunc(books.Owners, func(x, y OwnerAccount) int { return compare(x.Region, y.Region) })
	return books
}

var weights6040 = Policy{Policy: PolicyFixed, Weights: map[string]int64{"a": 60, "b": 40}}

// copyOf is a deep copy, so that a mutant harms only itself.
func copyOf(t *testing.T, b Books) Books {
	t.Helper()
	text, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var out Books
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// Each permit is in one class, and periods that nobody used stand in one line.
func TestVerifyAddsUp(t *testing.T) {
	r := Verify(sixtyForty("acme/requests", weights6040))
	if !r.Conserved() || len(r.Unread) != 0 || r.Moving() {
		t.Fatalf("violations %v, unread %v", r.Violations, r.Unread)
	}
	if len(r.Lines) != 2 || r.Lines[1].Periods != 2 {
		t.Fatalf("lines: %+v", r.Lines)
	}
	l := r.Lines[0]
	if l.Spent != 50 || l.Reserved != 5 || l.Spendable != 45 || l.Unallocated != 0 || l.InTransit != 0 || l.Stranded != 0 {
		t.Errorf("first period: %+v", l)
	}
	if l := r.Lines[1]; l.Spendable != 100 {
		t.Errorf("unused periods: %+v", l)
	}
}

// What an owner that was not read holds is stranded, and its region is named.
func TestVerifyUnread(t *testing.T) {
	books := sixtyForty("acme/requests", weights6040)
	books.Owners = books.Owners[1:]
	r := Verify(books)
	if !r.Conserved() || !slices.Equal(r.Unread, []string{"a"}) || r.Lines[0].Stranded != 60 || r.Lines[0].Spent != 40 {
		t.Errorf("violations %v, unread %v, line %+v", r.Violations, r.Unread, r.Lines[0])
	}
	// The same holds for a former incarnation of a region that was read.
	books = sixtyForty("acme/requests", weights6040)
	books.Owners[0] = OwnerAccount{Region: "a", Incarnation: "a2"}
	if r := Verify(books); !r.Conserved() || r.Lines[0].Stranded != 60 {
		t.Errorf("violations %v, line %+v", r.Violations, r.Lines[0])
	}
}

// A limit that is lowered, a return that is stated, and the grant that follows it, between the readings of a busy system:
// at no moment may a check that is taken in the right order cry wolf, and when all is still the classes add up.
func TestVerifyWhileReturnsMove(t *testing.T) {
	books := sixtyForty("acme/requests", weights6040)
	l := books.Later[0]
	moved, err := l.Move(holderA, holderB, 20, 0, Generation{Number: 2, Stamp: "s2"})
	if err != nil {
		t.Fatal(err)
	}
	books.Later[0] = moved
	if r := Verify(books); !r.Conserved() || !r.Moving() {
		t.Fatalf("before the owner heard: %v", r.Violations)
	}
	share, _, err := books.Owners[0].Shares[0].Apply(moved.GrantTo(holderA))
	if err != nil {
		t.Fatal(err)
	}
	books.Owners[0].Shares[0] = share
	books.Owners[0].Usage[0] = books.Owners[0].Usage[0].Take(share)
	books.Earlier[0] = moved
	r := Verify(books)
	if line := r.Lines[0]; !r.Conserved() || line.InTransit != 20 || line.Spendable != 25 {
		t.Fatalf("returned, not counted: %v, %+v", r.Violations, line)
	}
	statement := share.Statement(books.Owners[0].Usage, nil)
	counted, _, err := moved.Count(holderA, statement, Generation{Number: 3, Stamp: "s3"})
	if err != nil {
		t.Fatal(err)
	}
	books.Later[0] = counted
	r = Verify(books)
	if line := r.Lines[0]; !r.Conserved() || line.InTransit != 20 || !line.Moving {
		t.Errorf("counted and granted on, not stored: %v, %+v", r.Violations, line)
	}
}

// A checker that has never been seen to fail proves nothing: each mutant breaks one promise, and must be caught by name.
func TestVerifyMutants(t *testing.T) {
	for name, mutant := range map[string]struct {
		rule string
		harm func(*Books)
	}{
		"one spent beyond the share": {RuleShare, func(b *Books) { b.Owners[1].Usage[0].Spent++ }},
		"negative reserved":          {RuleShare, func(b *Books) { b.Owners[0].Usage[0].Reserved = -1 }},
		"owner made itself a grant":  {RuleGranted, func(b *Books) { b.Owners[0].Usage[0].Granted++ }},
		"share row made itself one":  {RuleGranted, func(b *Books) { b.Owners[0].Shares[0].Entries[0].Granted++ }},
		"owner lost a return": {RuleGiverFirst, func(b *Books) {
			b.Earlier[0].Entries[0].Allocations[0].Returned = 5
			b.Later[0].Entries[0].Allocations[0].Returned = 5
		}},
		"granted twice in the ledger": {RuleLedger, func(b *Books) { b.Later[0].Entries[0].Allocations[1].Granted += 10 }},
		"spent above the limit": {RuleCap, func(b *Books) {
			b.Later[0].Entries[0].Allocations[0].Granted = 61
			b.Owners[0].Usage[0].Granted, b.Owners[0].Usage[0].Spent, b.Owners[0].Usage[0].Reserved = 61, 61, 0
		}},
		"ledger is gone":   {RuleUnknown, func(b *Books) { b.Earlier, b.Later = nil, nil }},
		"usage, no share":  {RuleUnknown, func(b *Books) { b.Owners[0].Shares = nil; b.Later, b.Earlier = nil, nil }},
		"ledger says none": {RuleGranted, func(b *Books) { b.Later[0].Entries[0].Allocations = b.Later[0].Entries[0].Allocations[1:] }},
	} {
		books := copyOf(t, sixtyForty("acme/requests", weights6040))
		mutant.harm(&books)
		r := Verify(books)
		if !slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Rule == mutant.rule }) {
			t.Errorf("%s: want a violation of %s, got %v", name, mutant.rule, r.Violations)
		}
	}
}

// A term that is over may be gone from etcd while owners still remember it.
func TestVerifyForgivesClosedTerms(t *testing.T) {
	books := sixtyForty("acme/requests", weights6040)
	books.Earlier, books.Later, books.Now = nil, nil, 10_000
	if r := Verify(books); !r.Conserved() || r.Closed != 2 {
		t.Errorf("violations %v, closed %d", r.Violations, r.Closed)
	}
}

// Of a template each instance has the whole limit, and with policy home in one region only.
func TestVerifyTemplates(t *testing.T) {
	r := Verify(sixtyForty("acme/{caller}", weights6040))
	if !r.Conserved() || len(r.Lines) != 1 || r.Lines[0].Instance != "x" || r.Lines[0].Spent != 50 {
		t.Fatalf("fixed: %v %+v", r.Violations, r.Lines)
	}
	books := sixtyForty("acme/{caller}", Policy{Policy: PolicyHome, HashOf: "caller"})
	r = Verify(books)
	if len(r.Violations) != 1 || r.Violations[0].Rule != RuleHome {
		t.Fatalf("both regions spent one instance: %v", r.Violations)
	}
	home, _ := Budget{Name: "acme/{caller}", Allocation: Policy{Policy: PolicyHome, HashOf: "caller"}}.Home("x", nil, []string{"a", "b"})
	books.Owners = slices.DeleteFunc(books.Owners, func(o OwnerAccount) bool { return o.Region != home })
	if r = Verify(books); !r.Conserved() || r.Lines[0].Limit != 100 {
		t.Errorf("home: %v %+v", r.Violations, r.Lines)
	}
}
