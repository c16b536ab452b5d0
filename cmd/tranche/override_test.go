package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/api"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// decide asks a node for one unit, and returns what it says of a budget.
func (v *vault) decide(region, tenant, budget string) (reason, override string, limit int64) {
	v.t.Helper()
	client, err := v.Gateway(stage.Edge1, v.Regions[region].Nodes[0])
	if err != nil {
		v.t.Fatal(err)
	}
	d, err := decided(v.t.Context(), client, api.Admission{
		ID: fmt.Sprintf("override-%06d", serial.Add(1)), Op: "spend", Labels: map[string]string{"tenant": tenant}, Deadline: 5 * time.Second,
	})
	if err != nil {
		v.t.Fatal(err)
	}
	var body struct {
		Budgets []struct {
			Budget, Override string
			Limit            int64
		}
	}
	if err := json.Unmarshal(d.Raw, &body); err != nil {
		v.t.Fatal(err)
	}
	for _, b := range body.Budgets {
		if b.Budget == budget {
			return d.Reason, b.Override, b.Limit
		}
	}
	return d.Reason, "", 0
}

// What a person does at two in the morning: look, raise, see it in every decision, and see it end.
func TestOverrideByCommand(t *testing.T) {
	v := openVault(t)
	v.declare(fixed("launch/year", 10, "launch", allocation.Window{Calendar: "year"}))
	if text := v.run(2, "override", "budget", "launch/year", "--units", "4"); !strings.Contains(text, "--for is missing") {
		t.Errorf("%s", text)
	}
	if text := v.run(2, "override", "budget", "launch/year", "--units", "4", "--for", "1h", "--yes", "--reason", "x"); !strings.Contains(text, "--approved-by is missing") {
		t.Errorf("%s", text)
	}
	ask := []string{"override", "budget", "launch/year", "--units", "4", "--for", "1h", "--approved-by", "Ada", "--reason", "launch"}
	if text := v.run(0, ask...); !strings.Contains(text, "would be raised from 10 to 14") || !strings.Contains(text, "1 period, so at most 4 more in all") || !strings.Contains(text, "nothing was changed") {
		t.Errorf("%s", text)
	}
	if n := v.spend("us-east", "launch", 6)[string(allocation.Allow)] + v.spend("eu-west", "launch", 4)[string(allocation.Allow)]; n != 10 {
		t.Fatalf("%d of 10 are spent", n)
	}
	text := v.run(0, append(ask, "--yes")...)
	id := regexp.MustCompile(`o-[0-9a-f]+`).FindString(text)
	if id == "" {
		t.Fatal(text)
	}
	admitted := 0
	err := stage.Until(t.Context(), progressWait, "two more are admitted in each region", func() (bool, error) {
		for _, region := range []string{"us-east", "eu-west"} {
			reason, override, limit := v.decide(region, "launch", "launch/year")
			if reason != string(allocation.Allow) {
				continue
			}
			if admitted++; override != id || limit != 14 {
				return false, stage.Fatal{Err: fmt.Errorf("it was admitted under override %q with limit %d", override, limit)}
			}
		}
		return admitted >= 4, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	v.untilSpentStated("launch/year", 8)
	v.untilTold(coordinator.EventOverride, coordinator.EventBegan, func(e coordinator.FeedEvent) bool { return e.By == "Ada" && e.Subject == id })
	if text := v.run(0, "override", "list"); !strings.Contains(text, id) || !strings.Contains(text, "active") || !strings.Contains(text, "Ada") {
		t.Errorf("%s", text)
	}
	v.run(2, "override", "end", id)
	if text := v.run(0, "override", "end", id, "--reason", "over", "--by", "Bo"); !strings.Contains(text, "is over") {
		t.Errorf("%s", text)
	}
	v.untilTold(coordinator.EventOverride, coordinator.EventEnded, anyEvent)
	for _, want := range []string{"budget.override ", "127.0.0.1", "limit 10 → 14", "because: launch", "limit 14 → 10", "because: over"} {
		if text := v.run(0, "audit", "--limit", "10"); !strings.Contains(strings.Join(strings.Fields(text), " "), strings.TrimSpace(want)) {
			t.Errorf("the audit does not show %q: %s", want, text)
		}
	}
	var shares coordinator.SharesAnswer
	if err := json.Unmarshal([]byte(v.run(0, "budgets", "shares", "launch/year", "--json")), &shares); err != nil {
		t.Fatal(err)
	}
	if s := shares.Terms[0]; s.Limit != 10 || s.Overcommitted != 4 {
		t.Errorf("%+v", s)
	}
	v.untilTold(coordinator.EventOvercommitted, coordinator.EventBegan, func(e coordinator.FeedEvent) bool { return e.Figures["overcommitted"] == 4 })
	if reason, _, _ := v.decide("us-east", "launch", "launch/year"); reason == string(allocation.Allow) {
		t.Error("more was admitted after the end")
	}
}
