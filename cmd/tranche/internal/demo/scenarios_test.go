package demo

import (
	"strings"
	"testing"
	"time"

	"tranche/cmd/tranche/internal/api"
)

// A story whose period ends in its middle would blame Tranche for what the calendar did.
func TestCalmWindowOutlastsAStory(t *testing.T) {
	begin := time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC)
	for now := begin; now.Before(begin.Add(24 * time.Hour)); now = now.Add(17 * time.Second) {
		window, period := calm(now)
		start, err := time.Parse(time.RFC3339, period)
		if err != nil {
			t.Fatal(err)
		}
		if start.Unix()%int64(window.Every) != 0 {
			t.Fatalf("at %s: no period of %d s begins at %s", now, window.Every, start)
		}
		end := start.Add(time.Duration(window.Every) * time.Second)
		if now.Before(start) || end.Sub(now) <= walkAtMost || window.Every > 3600 {
			t.Fatalf("at %s: the period of %d s from %s to %s", now, window.Every, start, end)
		}
	}
}

// A name that was typed wrong must not start the long walk, nor leave one guessing.
func TestUnknownScenarioListsThem(t *testing.T) {
	for _, name := range []string{"", "strandde"} {
		err := Known(name)
		if err == nil {
			t.Fatalf("%q is taken for a scenario", name)
		}
		for _, s := range Scenarios() {
			if !strings.Contains(err.Error(), s.Name) || Known(s.Name) != nil {
				t.Errorf("%v: without %s", err, s.Name)
			}
		}
	}
}

// What the gateways saw is the judge over a database that lost what it knew: the judge must be able to condemn.
func TestRecordCountsWhatADatabaseLost(t *testing.T) {
	r := newRecord()
	admitted := api.Decision{Status: 200, Reason: "allow", Budgets: []api.BudgetPart{{Budget: "b", Limit: 3, Period: &api.Period{Start: "p"}}}}
	for _, id := range []string{"1", "2", "2"} {
		r.note("us-east", id, admitted)
	}
	r.lose("us-east")
	r.note("us-east", "3", admitted)
	if n, over := r.sums(); n != 3 || over != 0 {
		t.Errorf("%d admitted, %d over the limit", n, over)
	}
	if at, recorded, _, differs := r.differs(nil); !differs || recorded != 1 {
		t.Errorf("the new database is held to %d at %v", recorded, at)
	}
	r.note("eu-west", "1", admitted)
	if n, over := r.sums(); n != 4 || over != 1 {
		t.Errorf("%d admitted, %d over the limit", n, over)
	}
}
