package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
)

// Scenario is a short story: a part of what Tranche promises, on real parts.
type Scenario struct {
	Name string `json:"scenario"`
	Line string `json:"shows"`
}

// tale is what is told, and on what.
type tale struct {
	Scenario
	intro []string
	stage stage.Options
	walk  func(*world, context.Context) (totals, error)
}

// theWalk is the one through everything.
var theWalk = tale{
	intro: []string{
		fmt.Sprintf("Tranche demo: a hard budget of %d requests for two regions, %s and %s.\n", limit, regionA, regionB),
		"Real: etcd, a coordinator, two Postgres, four nodes, each a process of its own; every request is an HTTP call.",
		fmt.Sprintf("Simulated: only the partition (a proxy breaks the links). Windows are %d s and %d s so that you need not wait.\n", windowSeconds, burstSeconds),
	},
	stage: stage.Options{NodesEach: 2, Coordinators: 1},
	walk:  (*world).steps,
}

// tales are the scenarios.
var tales = []tale{
	story("stranded", "a region is cut off with part of its share unspent: who may use it, what the report says, what became of it",
		stage.Options{NodesEach: 1, Coordinators: 1}, (*world).strandedStory),
	story("rebalance", "most callers come to one region: a fixed split, a move by hand, and a budget that follows by itself",
		stage.Options{NodesEach: 1, Coordinators: 1}, (*world).rebalanceStory),
	story("restore", "a region's database is restored from a dump that is older than what it spent",
		stage.Options{NodesEach: 1, Coordinators: 1}, (*world).restoreStory),
	story("failover", "a region's database crashes and comes back; then etcd is taken back to an earlier copy",
		stage.Options{NodesEach: 1, Coordinators: 2, EtcdMembers: 1}, (*world).failoverStory),
}

func story(name, line string, o stage.Options, walk func(*world, context.Context) (totals, error)) tale {
	return tale{
		Scenario: Scenario{name, line},
		intro:    []string{fmt.Sprintf("Tranche demo, scenario %s: %s.\n", name, line)},
		stage:    o, walk: walk,
	}
}

// Scenarios lists the stories.
func Scenarios() (all []Scenario) {
	for _, t := range tales {
		all = append(all, t.Scenario)
	}
	return all
}

// Known says whether there is a scenario of this name; if not, the error lists them.
func Known(name string) error {
	_, err := named(name)
	return err
}

// find is the tale of a scenario's name; without a name the walk.
func find(name string) (tale, error) {
	if name == "" {
		return theWalk, nil
	}
	return named(name)
}

func named(name string) (tale, error) {
	var names []string
	for _, t := range tales {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return tale{}, fmt.Errorf("there is no scenario %.40q; choose one of %s", name, strings.Join(names, ", "))
}

// calm is a window of about an hour whose running period does not end during a story, and that period.
func calm(now time.Time) (allocation.Window, string) {
	for every := int64(3600); ; every -= 60 { // periods are counted from 1970, as time.Truncate does not
		if start := time.Unix(now.Unix()-now.Unix()%every, 0); start.Add(time.Duration(every)*time.Second).Sub(now) > walkAtMost {
			return allocation.Window{Every: allocation.Duration(every)}, allocation.At(start).String()
		}
	}
}

// each is a window in words.
func each(w allocation.Window) string {
	if w.Every == 3600 {
		return "an hour"
	}
	return fmt.Sprintf("every %d minutes", w.Every/60)
}

// endStory judges the account of a story, where so many incarnations can be read no more. Notes explain its figures.
func (w *world) endStory(ctx context.Context, lost int, notes ...string) (totals, error) {
	e, err := w.account(ctx, lost)
	if err != nil {
		return totals{}, err
	}
	lines, account, t := w.table(e.Report)
	if len(notes) == 0 {
		lines = lines[:len(lines)-1]
	}
	admitted, over := w.record.sums()
	t.spent, t.overspent = admitted, max(t.overspent, over)
	if t.overspent > 0 {
		return t, fmt.Errorf("the gateways recorded %d admissions, %d more than the limits allow", admitted, t.overspent)
	}
	w.tell.step("verify", fields{"conserved": true, "lines": len(e.Report.Lines), "admitted": admitted, "limit": t.limit, "account": account},
		fmt.Sprintf("The whole account, read from etcd and both databases as `tranche verify` does: every permit is in exactly one place. "+
			"The gateways' own record: %d admitted, within a limit of %d.", admitted, t.limit), append(lines, notes...)...)
	return t, nil
}
