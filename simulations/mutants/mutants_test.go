package mutants

import (
	"context"
	"strings"
	"testing"
)

// fast are mutants of every kind of hunt, whose hunts are short.
var fast = []string{
	// Walks.
	"skip-node-mark", "keep-incarnation", "two-homes", "admit-without-vouching", "ignore-generation", "seal-without-share-lock", "open-while-frozen",
	// The fleet, with something in between, and with a twin that leaves a rule out.
	"charge-one-of-two", "admit-unknown-commit", "replay-released", "refuse-replay-from-memory", "old-configuration", "count-return-early",
	"regrant-on-timeout", "reopen-closed-ledger", "statements-by-last-writer", "recall-is-return", "chunk-above-unallocated", "forget-ids-after-restart", "look-up-open-table-only", "accept-warnings",
	"write-off-gives-away", "remove-with-permits", "forget-removed",
	// Drills.
	"compare-revision-only", "coordinator-mark-outside", "node-mark-outside",
}

// fastest is a hunt of each kind, for the race detector.
var fastest = []string{"skip-node-mark", "charge-one-of-two", "count-return-early", "reopen-closed-ledger", "accept-warnings", "node-mark-outside", "coordinator-mark-outside"}

// A mutant that is not caught is a hole in the checkers; a control that finds something says that what is caught may have
// other reasons.
func TestFast(t *testing.T) {
	if raceEnabled {
		huntAll(t, fastest)
		return
	}
	huntAll(t, fast)
}

func huntAll(t *testing.T, only []string) {
	r, err := Hunt(context.Background(), Options{Only: only, Seed: 1, Progress: func(c Caught) { t.Log(c) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Mutants {
		if !c.Caught {
			t.Errorf("%s is not caught: %s %s", c.Name, c.Violation, c.Breaks)
		}
	}
	for _, c := range r.Controls {
		t.Logf("%-60s %d runs, %d states, %s", c.World, c.Runs, c.States, c.Took)
		if c.Violation != "" {
			t.Errorf("%s, without a mutant, seed %d: invariant %d: %s\n%s", c.World, c.Seed, c.Invariant, c.Violation, strings.Join(c.Trace, "\n"))
		}
	}
}

// If two mutants had one name, or one said of itself nothing that can be looked up, nobody could tell what was caught.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range All() {
		if seen[m.Name] || m.Name == "" || m.Breaks == "" || len(m.Invariants) == 0 || m.Hunter == "" {
			t.Errorf("%+v", m)
		}
		seen[m.Name] = true
		for _, n := range m.Invariants {
			if n < 0 || n > 13 { // 0: it never comes right
				t.Errorf("%s breaks invariant %d, and there is none", m.Name, n)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("%d mutants", len(seen))
	}
}

// A name that is mistyped must not be a hunt of nothing.
func TestUnknownName(t *testing.T) {
	_, err := Hunt(context.Background(), Options{Only: []string{"skip-node-marks"}})
	if err == nil || !strings.Contains(err.Error(), "skip-node-mark,") && !strings.Contains(err.Error(), "skip-node-mark") {
		t.Error(err)
	}
}
