package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// Whoever keeps the account reads the CSV: a row for each region, and a term of which nobody was granted anything is there
// as well.
func TestClosingsCSV(t *testing.T) {
	c := coordinator.Closing{
		Budget: "acme/requests", Unit: "requests", Term: 60, Periods: allocation.Periods{First: 60, Step: 60, Count: 2}, Closed: time.Unix(300, 0).UTC(),
		Generation: allocation.Generation{Number: 3, Stamp: "s"}, Limit: 200, Unused: 70, Unrecovered: 50, OpeningSpent: 5,
		Regions: []coordinator.ClosedRegion{
			{Holder: allocation.Holder{Region: "eu", Incarnation: "a"}, Held: 120, Spent: 70, Reserved: 5},
			{Holder: allocation.Holder{Region: "us", Incarnation: "b"}, Held: 80, Spent: 30, Unrecovered: 50, Late: &coordinator.LateStatement{At: time.Unix(3600, 0).UTC(), Spent: 42, Reserved: 1, Overdraft: 2}},
		},
	}
	empty := c
	empty.Budget, empty.Regions = "acme/none", nil
	var text strings.Builder
	if err := writeClosings(&text, []coordinator.Closing{c, empty}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[0], "budget,unit,term") {
		t.Fatalf("%q", lines)
	}
	for i, want := range []string{
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,eu,a,120,70,5,0,0,false,,,,",
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,us,b,80,30,0,0,50,false,1970-01-01T01:00:00Z,42,1,2",
		"acme/none,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,,,0,0,0,0,0,false,,,,",
	} {
		if lines[i+1] != want {
			t.Errorf("row %d is %s", i+1, lines[i+1])
		}
	}
}

// The same for each period: who is billed by the minute reads these rows. A term without periods has none.
func TestClosedPeriodsCSV(t *testing.T) {
	c := coordinator.Closing{
		Budget: "acme/requests", Unit: "requests", Term: 60, Periods: allocation.Periods{First: 60, Step: 60, Count: 2}, Closed: time.Unix(300, 0).UTC(),
		Limit: 200, Unused: 75, Unrecovered: 50, OpeningSpent: 5, Limits: []int64{100},
		Regions: []coordinator.ClosedRegion{
			{Holder: allocation.Holder{Region: "eu", Incarnation: "a"}, Held: 120, Spent: 70, Periods: &coordinator.ClosedColumns{Held: []int64{60}, Spent: []int64{10, 60}}},
			{Holder: allocation.Holder{Region: "us", Incarnation: "b"}, Held: 70, Unrecovered: 50, Spent: 20, Periods: &coordinator.ClosedColumns{Held: []int64{35}, Spent: []int64{0, 20}}},
		},
	}
	without := c
	without.PeriodsLeftOut = true
	var text strings.Builder
	if err := writeClosedPeriods(&text, []coordinator.Closing{c, without}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	want := []string{
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:01:00Z,1970-01-01T00:02:00Z,1970-01-01T00:05:00Z,100,5,50,35,eu,a,60,10,0,0,0,false",
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:01:00Z,1970-01-01T00:02:00Z,1970-01-01T00:05:00Z,100,5,50,35,us,b,35,0,0,0,35,false",
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:02:00Z,1970-01-01T00:03:00Z,1970-01-01T00:05:00Z,100,0,5,15,eu,a,60,60,0,0,0,false",
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:02:00Z,1970-01-01T00:03:00Z,1970-01-01T00:05:00Z,100,0,5,15,us,b,35,20,0,0,15,false",
	}
	if !slices.Equal(lines[1:], want) {
		t.Errorf("%s", text.String())
	}
}
