package main

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"tranche/cmd/tranche/internal/stage"
)

// The test binary stands in for tranche: scripts run it, and so do stages, whose coordinators and nodes are children of it.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tranche": main})
}

// exits runs a command that must end with a certain status: exits 2 tranche … It is run again while a node has not decided: whoever
// asks by the same id does so.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	for tries := 1; ; tries++ {
		got = 0
		if err := ts.Exec(args[1], args[2:]...); err != nil {
			exit, ok := err.(*exec.ExitError)
			if !ok {
				ts.Fatalf("run %s: %v", args[1], err)
			}
			got = exit.ExitCode()
		}
		if tries == truthTries || !slices.Contains(args, "check") || !matches(`(database_unavailable|overloaded|outcome_unknown)`, ts.ReadFile("stdout")) {
			break
		}
		<-time.After(retryEvery)
	}
	if got != want {
		ts.Fatalf("%v ended with status %d, not %d", args[1:], got, want)
	}
}

// eventually repeats a command until it succeeds and its output matches: eventually 'PATTERN' tranche …
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually PATTERN COMMAND…")
	}
	err := stage.Until(context.Background(), 20*time.Second, args[0], func() (bool, error) {
		err := ts.Exec(args[1], args[2:]...)
		return err == nil && matches(args[0], ts.ReadFile("stdout")), err
	})
	if err != nil {
		ts.Fatalf("%v: %v", args[1:], err)
	}
}

var commands = map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "eventually": eventually}

// What a newcomer meets first: help, and what is wrong with what was typed or written in a file. Nothing runs.
func TestOffline(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{Dir: "testdata/offline", Cmds: commands, RequireExplicitExec: true})
}

// The administration against a real deployment: an etcd, a coordinator, two regions with a Postgres and a node each.
func TestDeployment(t *testing.T) {
	s, err := stage.Start(t.Context(), stage.Options{Regions: []string{"us-east", "eu-west"}, NodesEach: 1, Coordinators: 1, Unreachable: 3 * time.Second})
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("too much", func(t *testing.T) { testTooMuch(t, s) })
	t.Run("explain", func(t *testing.T) { testExplain(t, s) })
	t.Run("match by key", func(t *testing.T) { testMatchByKey(t, s) })
	t.Run("estimates", func(t *testing.T) { testEstimates(t, s) })
	t.Run("legacy", func(t *testing.T) { testLegacy(t, s) })
	t.Run("unfit node", func(t *testing.T) { testUnfitNode(t, s) })
	// One folder after the other: when regions come and go, all ledgers follow, and what others rebalanced with them.
	for _, folder := range []string{"deployment", "members", "partition", "recovery"} {
		t.Run(folder, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir: filepath.Join("testdata", folder), Cmds: with(s), RequireExplicitExec: true,
				Setup: func(e *testscript.Env) error {
					e.Setenv("TRANCHE_COORDINATOR", s.Coordinators[0].Address)
					e.Setenv("TRANCHE_TOKEN", s.AdminToken)
					e.Setenv("TRANCHE_NODE", s.Regions["us-east"].Nodes[0].Address)
					e.Setenv("TRANCHE_NODE_TOKEN", s.Gateways[stage.Edge1])
					e.Setenv("US_EAST_DATABASE", s.Regions["us-east"].Database)
					e.Setenv("EU_WEST_DATABASE", s.Regions["eu-west"].Database)
					e.Setenv("EU_WEST", s.Regions["eu-west"].Nodes[0].Address)
					return nil
				},
			})
		})
	}
	if err := s.Failure(); err != nil {
		t.Error(err)
	}
}

// with adds the commands that harm a deployment, and mend it: cut REGION, heal REGION, crash REGION (its first node),
// restart REGION.
func with(s *stage.Stage) map[string]func(*testscript.TestScript, bool, []string) {
	all := maps.Clone(commands)
	for name, do := range map[string]func(*stage.Region){
		"cut": (*stage.Region).Cut, "heal": (*stage.Region).Heal, "crash": func(r *stage.Region) { r.Nodes[0].Kill() },
	} {
		all[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) != 1 || s.Regions[args[0]] == nil {
				ts.Fatalf("usage: %s REGION", name)
			}
			do(s.Regions[args[0]])
		}
	}
	all["restart"] = func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 1 || s.Regions[args[0]] == nil {
			ts.Fatalf("usage: restart REGION")
		}
		ts.Check(s.Regions[args[0]].Nodes[0].Start(context.Background()))
	}
	return all
}

func matches(pattern, text string) bool {
	return regexp.MustCompile("(?m)" + pattern).MatchString(text)
}
