//go:build long

package main

import (
	"strings"
	"testing"
)

// The demo's promise to whoever reads its last line: every step was as promised, and nothing was overspent.
func TestDemoAsPromised(t *testing.T) {
	d := startDemo(t)
	<-d.Ended()
	names, last := d.steps(t)
	if want := "grant race spend cut stranded kept alone healed boundary crash verify done"; strings.Join(names, " ") != want {
		t.Errorf("steps %v%s", names, d.Tail())
	}
	if last["overspent"] != 0.0 || last["spent"].(float64) < 700 || last["seconds"].(float64) > 60 {
		t.Errorf("the last line is %v", last)
	}
	d.nothingLeft(t)
}

// The stories that take longer to tell, or need more to run.
func TestDemoScenarios(t *testing.T) {
	for scenario, steps := range map[string]string{
		"rebalance": "fixed moved followed compared",
		"restore":   "share restored anew stranded counted",
		"failover":  "crash moved frozen thawed spent",
	} {
		t.Run(scenario, func(t *testing.T) { tellsStory(t, scenario, strings.Fields(steps)...) })
	}
}
