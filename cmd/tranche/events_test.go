package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tranche/allocation"
	"tranche/cmd/tranche/internal/stage"
	"tranche/coordinator"
)

// feed is what `tranche events` prints.
func (v *vault) feed(args ...string) (list []coordinator.FeedEvent) {
	v.t.Helper()
	for line := range strings.Lines(v.run(0, append([]string{"events", "--json"}, args...)...)) {
		var e coordinator.FeedEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			v.t.Fatalf("%s: %v", line, err)
		}
		list = append(list, e)
	}
	return list
}

// untilTold waits for an event of a kind and change.
func (v *vault) untilTold(kind coordinator.EventKind, change coordinator.EventChange, holds func(coordinator.FeedEvent) bool) (found coordinator.FeedEvent) {
	v.t.Helper()
	err := stage.Until(v.t.Context(), progressWait, fmt.Sprintf("%s %s is told", kind, change), func() (bool, error) {
		for _, e := range v.feed() {
			if e.Kind == kind && e.Change == change && holds(e) {
				found = e
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		v.t.Fatal(err)
	}
	return found
}

func anyEvent(coordinator.FeedEvent) bool { return true }

// What an operator would hear of: it must come by itself, once, and the cursor must go on from it.
func TestEventsByCommand(t *testing.T) {
	v := openVault(t)
	v.declare(fixed("feed/small", 10, "small", allocation.Window{Calendar: "year"}))
	near := fixed("feed/near", 10, "near", allocation.Window{Calendar: "year"})
	near.Thresholds = []int64{20, 60}
	v.declare(near)
	if n := v.spend("us-east", "near", 5)[string(allocation.Allow)]; n != 5 {
		t.Fatal(n)
	}
	if e := v.untilTold(coordinator.EventThreshold, coordinator.EventCrossed, func(e coordinator.FeedEvent) bool { return e.Budget == "feed/near" }); e.Figures["percent"] != 20 || e.Figures["spent"] < 2 {
		t.Errorf("%+v", e)
	}
	v.contains(v.run(0, "budgets", "get", "feed/near"), "20 %, 60 %")
	if n := v.spend("us-east", "small", 5)[string(allocation.Allow)]; n != 5 {
		t.Fatal(n)
	}
	half := v.untilTold(coordinator.EventThreshold, coordinator.EventCrossed, func(e coordinator.FeedEvent) bool { return e.Budget == "feed/small" })
	if half.Figures["percent"] != 50 || half.Figures["spent"] != 5 || half.Tenant != "small" {
		t.Errorf("%+v", half)
	}
	v.run(0, "block", "tenant=small", "--for", "2h", "--reason", "a test", "--by", "kim")
	v.untilTold(coordinator.EventBlock, coordinator.EventBegan, anyEvent)
	after := v.feed("--since", half.ID)
	if len(after) != 1 || after[0].Kind != coordinator.EventBlock || after[0].Tenant != "small" {
		t.Fatalf("%+v", after)
	}
	if text := v.run(0, "events"); !strings.Contains(text, "feed/small: 50 % of 10 requests is used") || !strings.Contains(text, "tenant=small is refused until") {
		t.Errorf("%s", text)
	}
	v.Regions["us-east"].Cut()
	gone := v.untilTold(coordinator.EventStranded, coordinator.EventBegan, func(e coordinator.FeedEvent) bool { return e.ID > after[0].ID && e.Region == "us-east" })
	if len(gone.Budgets)+gone.More != 3 || gone.Units["requests"] == 0 {
		t.Errorf("%+v", gone)
	}
	v.Regions["us-east"].Heal()
	v.untilTold(coordinator.EventStranded, coordinator.EventEnded, func(e coordinator.FeedEvent) bool { return e.ID > gone.ID && e.Region == "us-east" })
	if text := v.run(2, "events", "--since", "yesterday"); !strings.Contains(text, "after") || !strings.Contains(text, "is no cursor") {
		t.Errorf("%s", text)
	}
	for _, secret := range v.secrets {
		if strings.Contains(v.run(0, "events", "--json"), secret) {
			t.Error("a secret stands in the feed")
		}
	}
}
