package mutants

import (
	"context"
	"fmt"
	"strings"

	"tranche/simulations/walk"
)

// walkHunt goes through every interleaving of a small world in which one rule is switched off.
type walkHunt struct {
	config walk.Config
	rule   walk.Rule
}

// world names the world, with what is off in it besides the mutant.
func (h walkHunt) world() string {
	name := "walk: " + h.config.Name
	for _, r := range walk.Rules() {
		if h.config.Off[r] && r != h.rule {
			name += ", without: " + string(r)
		}
	}
	return name
}

func (h walkHunt) find(ctx context.Context, _ uint64, _ int, counts func(int) bool) (found, error) {
	r := walk.Walk(h.config, func(int, int, int) bool { return ctx.Err() == nil })
	f := ofWalk(r)
	f.caught = f.violation != "" && counts(f.invariant)
	return f, ctx.Err()
}

// control walks the same world with the rule on, at least twice as many states as its mutants took: it is breadth first, so
// all that is as near as the violation is walked.
func (h walkHunt) control(ctx context.Context, _ uint64, far found) (found, error) {
	c := h.config
	off := map[walk.Rule]bool{}
	for r := range c.Off {
		off[r] = r != h.rule && c.Off[r]
	}
	c.Off, c.MaxStates = off, max(2*far.states, 2000)
	return ofWalk(walk.Walk(c, func(int, int, int) bool { return ctx.Err() == nil })), ctx.Err()
}

func ofWalk(r walk.Result) found {
	return found{violation: r.Violation, invariant: numberIn(r.Violation), states: r.States, trace: r.Trace}
}

// numberIn is the invariant that a violation's words name, as in "the cap (2): …"; 0: none.
func numberIn(words string) (n int) {
	_, rest, ok := strings.Cut(words, "(")
	if ok {
		_, _ = fmt.Sscanf(rest, "%d)", &n)
	}
	return n
}

// breakOf says for each rule of the walk what the mutant is called, and which invariants it may be seen to violate.
var breakOf = map[walk.Rule]struct {
	name, breaks string
	invariants   []int
}{
	walk.NodeChecksMark:       {"skip-node-mark", "a node does not compare its mark, and writes on into a database that went back", []int{2}},
	walk.CoordinatorChecks:    {"skip-coordinator-mark", "a coordinator does not compare its mark, and writes on into an etcd that went back", []int{2}},
	walk.StatedMarks:          {"ignore-stated-marks", "the coordinator never looks at the marks that an owner states", []int{2}},
	walk.NewIncarnation:       {"keep-incarnation", "an owner that lost history goes on as it is", []int{2}},
	walk.HoldsNothing:         {"keep-shares", "a new incarnation keeps the shares of the one before it", []int{2}},
	walk.NoSpeakingFor:        {"speak-for-the-replaced", "a new incarnation speaks for the one that it replaced", []int{2}},
	walk.FormerIgnored:        {"hear-a-former-incarnation", "statements of a former incarnation count", []int{2, 8}},
	walk.HomeRecorded:         {"two-homes", "a second database may act as the incarnation", []int{2, 3}},
	walk.NodesAreVouchedFor:   {"admit-without-vouching", "a node without memory admits at once", []int{2}},
	walk.BrokenConnections:    {"trust-a-new-connection", "a node whose connection broke goes on by its own mark alone", []int{2}},
	walk.ColdIsFrozen:         {"trust-etcd-cold", "a coordinator without memory trusts etcd", []int{2}},
	walk.ColdBeginsHistory:    {"cold-start-in-old-history", "a cold start waits for all regions under the old history", []int{2}},
	walk.SameHistoryCounts:    {"reconcile-another-history", "a statement of another history counts as reconciliation", []int{2}},
	walk.OwnerHeedsHistory:    {"grant-of-another-history", "an owner takes a grant of an older history", []int{2}},
	walk.NoGrantWhileFrozen:   {"grant-while-frozen", "counts and grants go on while frozen", []int{2}},
	walk.NoOpenWhileFrozen:    {"open-while-frozen", "a term is opened while frozen", []int{2}},
	walk.AllTermsFrozen:       {"freeze-running-only", "the freeze reaches the running period only, not the terms opened ahead", []int{2}},
	walk.AllRegionsState:      {"thaw-on-first", "the first region to state thaws the ledgers", []int{2}},
	walk.StampsCompared:       {"ignore-stamps", "the ledger takes any stamp as its own", []int{2}},
	walk.LedgersStamp:         {"echo-owners-stamp", "an answer echoes the owner's stamp", []int{2}},
	walk.ReconcileByMaximum:   {"keep-restored-counters", "a restored ledger's counters stand, whatever regions state that they hold", []int{2}},
	walk.ReturnsAreDurable:    {"state-return-first", "a return is stated before it is durable, and its commit is lost", []int{1, 2, 4}},
	walk.NoRegrantOnAbsence:   {"regrant-on-silence", "what a silent region holds is taken back", []int{2}},
	walk.NoTaking:             {"take-from-giver", "a lower target takes permits from the giver in the ledger, at once", []int{1, 2}},
	walk.GenerationsRise:      {"ignore-generation", "a message of an older generation overwrites the share", []int{1, 2, 8}},
	walk.StatementsOnlyRaise:  {"returns-by-last-writer", "the last statement overwrites what the ledger counted as returned", []int{1, 2, 8}},
	walk.EndedBeforeSeal:      {"seal-unannounced", "an incarnation is sealed that nobody ended before", []int{2}},
	walk.SealLocksShares:      {"seal-without-share-lock", "a seal does not lock the share row: only usage rows that exist are sealed", []int{2, 9}},
	walk.SealFromHome:         {"seal-from-a-copy", "a seal counts that was read from a copy", []int{2}},
	walk.SealShowsMarks:       {"seal-without-marks", "a seal counts from a database that lost commits", []int{2}},
	walk.SealLeavesReserved:   {"seal-takes-reserved", "a seal counts what is reserved as returned", []int{2}},
	walk.SealedTakesNoGrant:   {"grant-to-sealed", "a sealed share takes a grant", []int{2, 9}},
	walk.AnnouncedBeforeGrant: {"grant-unannounced", "a region is granted permits before the others know that it exists", []int{2}},
}

// walkMutants are the walk's rules, each switched off in the world that the walk's own tests name for it.
func walkMutants() []Mutant {
	var all []Mutant
	for _, c := range walk.Mutants() {
		rule := walk.Rule(c.Why)
		b, known := breakOf[rule]
		if !known {
			b.name, b.breaks, b.invariants = strings.ReplaceAll(string(rule), " ", "-"), "without: "+string(rule), []int{1, 2, 3, 8, 9}
		}
		h := walkHunt{config: c.Config, rule: rule}
		all = append(all, Mutant{Name: b.name, Breaks: b.breaks, Invariants: b.invariants, Hunter: h.world(), hunt: h})
	}
	return all
}
