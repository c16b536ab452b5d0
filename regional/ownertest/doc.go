// Package ownertest holds every regional.Owner to the contract that nodes rest on. The store on Postgres and the
// simulator's twin run the same suite, so that what is proven in simulation holds for what is run:
//
//	ownertest.Run(t, func(t *testing.T) ownertest.Opened { … })
//
// Each test gets a database of its own. Nothing here sleeps: a test waits for what it asks for, at most patience long.
package ownertest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/regional"
)

// patience is how long a test waits for what must happen, on a slow machine.
const patience = 60 * time.Second

// writerName is what the writers of the suite are registered by.
const writerName = "test"

// Region is the region whose owners are to be opened.
const Region = "eu"

// Opened is a new, empty owner of Region, as two nodes reach it.
type Opened struct {
	Owner regional.Owner
	Other regional.Owner // the same database, for another node
	// Idle says that a transaction which stands idle is ended soon, and not only after the test's patience.
	Idle bool
}

// Run runs the suite. Open returns a new owner and ends it with the test. The owners' lock timeout must be longer than the
// suite's patience, unless Idle is set: then about a second.
func Run(t *testing.T, open func(t *testing.T, idle bool) Opened) {
	for _, test := range []struct {
		name string
		idle bool
		run  func(o *owner)
	}{
		{"a new owner", false, testNew},
		{"writers and marks", false, testMarks},
		{"a writer whose mark is gone", false, testMarkGone},
		{"an ended writer is remembered", false, testEndedIsRemembered},
		{"an ended writer is missed", false, testEndedIsMissed},
		{"a context that ended before", false, testEndedContext},
		{"an unknown outcome", false, testUnknownOutcome},
		{"admit", false, testAdmit},
		{"abandon", false, testAbandon},
		{"made under the share", false, testMake},
		{"instances", false, testInstances},
		{"a lock that is waited for", false, testLockWait},
		{"rows in any order", false, testLockOrder},
		{"one id twice", false, testSameID},
		{"many ids", false, testLarge},
		{"one of many ids twice", false, testLargeSameID},
		{"one id changed twice", false, testSameIDChanged},
		{"exactly what was decided", false, testExactly},
		{"idle in a batch", true, testIdle},
		{"many at once", false, testMany},
		{"reservations", false, testReservations},
		{"charged", false, testCharged},
		{"changes", false, testChanges},
		{"documents", false, testDocuments},
		{"documents that are to be stated", false, testUntold},
		{"generations", false, testGenerations},
		{"returns", false, testReturns},
		{"protected", false, testProtected},
		{"a grant waits for rows being made", false, testGrantWaits},
		{"a row is read after the wait", false, testReadAfterWait},
		{"whose answer", false, testWhoseAnswer},
		{"stop", false, testStop},
		{"close", false, testClose},
		{"close waits for batches", false, testCloseWaits},
		{"turn", false, testTurn},
		{"statements", false, testStatements},
		{"statements by two", false, testStatementsByTwo},
		{"statements of templates", false, testStatementsOfTemplates},
		{"statements after closing", false, testStatementsAfterClosing},
		{"complete statements", false, testStatementsComplete},
		{"what a call says", false, testCall},
		{"id tables", false, testTables},
		{"closed terms", false, testClosedTerms},
		{"reports", false, testReports},
		{"look", false, testLook},
		{"resume", false, testResume},
		{"an older history", false, testHeed},
		{"state what is held", false, testStateHeld},
		{"refusals", false, testRefusals},
		{"start over", false, testStartOver},
		{"nothing to lose", false, testNothingToLose},
		{"seal", false, testSeal},
		{"hand over", false, testHandOver},
		{"hand over waits for batches", false, testHandOverWaits},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newOwner(t, open(t, test.idle))) })
	}
}

// owner is a database in a test, with an incarnation, and what it takes to play coordinator and node.
type owner struct {
	*testing.T
	Opened
	w      regional.Writer
	second regional.Writer // of Other
	first  allocation.Instant
}

func newOwner(t *testing.T, opened Opened) *owner {
	t.Helper()
	o := &owner{T: t, Opened: opened}
	o.w, o.second = o.writer(o.Owner), o.writer(o.Other)
	now := o.now()
	o.first = now - now%60 - 600
	return o
}

// joined is an owner with an incarnation and with budgets, each with so many permits in each minute.
func (o *owner) joined(permits int64, budgets ...string) {
	o.Helper()
	a := o.answer()
	for _, b := range budgets {
		a.Shares = append(a.Shares, o.grant(b, 1, permits, permits))
	}
	o.apply(a)
}

func (o *owner) writer(in regional.Owner) regional.Writer {
	o.Helper()
	w, err := in.NewWriter(o.Context(), writerName)
	o.must(err)
	return w
}

func (o *owner) must(err error) {
	o.Helper()
	if err != nil {
		o.Fatal(err)
	}
}

func (o *owner) mustBe(err, want error) {
	o.Helper()
	if !errors.Is(err, want) {
		o.Fatalf("got error %v, want %v", err, want)
	}
}

// now is the database's clock.
func (o *owner) now() allocation.Instant {
	o.Helper()
	return allocation.At(time.UnixMicro(o.peek(regional.Want{Changes: math.MaxInt64}).Now))
}

func (o *owner) peek(want regional.Want) regional.Seen {
	o.Helper()
	seen, err := o.Owner.Peek(o.Context(), want)
	o.must(err)
	return seen
}

// answer is one of the coordinator's that says nothing new.
func (o *owner) answer() allocation.SyncAnswer {
	return allocation.SyncAnswer{
		Format: allocation.SyncFormat, Deployment: "d", History: allocation.History{Number: 1, Stamp: "h1"}, Incarnation: "life-1",
	}
}

func (o *owner) apply(a allocation.SyncAnswer) {
	o.Helper()
	o.must(o.Owner.Apply(o.Context(), o.w, a, 1))
}

// grant is a share of minute periods, from ten minutes ago to fifty minutes ahead.
func (o *owner) grant(budget string, generation, granted, target int64) allocation.ShareGrant {
	periods := allocation.Periods{First: o.first, Step: 60, Count: 60}
	return allocation.ShareGrant{
		Budget: budget, Version: generation, Regions: []string{Region}, Periods: periods,
		Policy:     allocation.Policy{Policy: allocation.PolicyFixed, Weights: map[string]int64{Region: 1}},
		Generation: allocation.Generation{Number: generation, Stamp: fmt.Sprint("g", generation)},
		Entries: []allocation.GrantEntry{{
			From: o.first, Until: periods.End(), Class: allocation.General, Limit: granted, Granted: granted, Target: target,
		}},
	}
}

func (o *owner) key(budget string, minute int) allocation.UsageKey {
	return allocation.UsageKey{Budget: budget, Period: o.first + allocation.Instant(60*minute), Class: allocation.General}
}

func (o *owner) ref(budget string) allocation.ShareRef {
	return allocation.ShareRef{Budget: budget, Term: o.first}
}

func id(name string) allocation.IDKey {
	return allocation.IDKey{Credential: "gateway", Tenant: "acme", ID: name}
}

// usage is a row as it stands; nil if there is none.
func (o *owner) usage(k allocation.UsageKey) *allocation.Usage {
	o.Helper()
	return o.peek(regional.Want{Usage: []regional.WantedUsage{o.wanted(k, false)}, Changes: math.MaxInt64}).Usage[k]
}

func (o *owner) spent(k allocation.UsageKey) int64 {
	o.Helper()
	if u := o.usage(k); u != nil {
		return u.Spent
	}
	return 0
}

func (o *owner) found(name string) *allocation.Admission {
	o.Helper()
	return o.peek(regional.Want{IDs: []allocation.IDKey{id(name)}, Changes: math.MaxInt64}).IDs[id(name)]
}

// othersGo gives what runs in the background the time of some calls, for it to come to its end wrongly, or to wait. A
// reader waits for nobody.
func (o *owner) othersGo() {
	o.Helper()
	for range 20 {
		o.peek(o.want("none", o.key("none", 0)))
	}
}

// later is a context that ends when the test has no more patience.
func (o *owner) later() (context.Context, context.CancelFunc) {
	return context.WithTimeout(o.Context(), patience)
}

// receive waits for a value.
func receive[T any](o *owner, from <-chan T) (value T) {
	o.Helper()
	select {
	case value = <-from:
	case <-time.After(patience):
		o.Fatal("nothing came")
	}
	return value
}

// background runs f beside the test.
func background[T any](f func() T) <-chan T {
	out := make(chan T, 1)
	go func() { out <- f() }()
	return out
}
