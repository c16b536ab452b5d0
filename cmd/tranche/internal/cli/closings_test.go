package cli

import (
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
			{Holder: allocation.Holder{Region: "us", Incarnation: "b"}, Held: 80, Spent: 30, Unrecovered: 50},
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
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,eu,a,120,70,5,0,0,false",
		"acme/requests,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,us,b,80,30,0,0,50,false",
		"acme/none,requests,1970-01-01T00:01:00Z,1970-01-01T00:03:00Z,2,1970-01-01T00:05:00Z,3·s,200,5,70,50,,,0,0,0,0,0,false",
	} {
		if lines[i+1] != want {
			t.Errorf("row %d is %s", i+1, lines[i+1])
		}
	}
}
