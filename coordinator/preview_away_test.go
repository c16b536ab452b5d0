package coordinator_test

import (
	"fmt"
	"strings"
	"testing"
)

// A drain gives its part to the others. To one that is cut off it is out of reach from the start: whoever drains hears so before.
func TestDrainToARegionThatIsCutOff(t *testing.T) {
	w, east, west, r := cutEast(t)
	const path, warns = "/v1/regions/eu-west/drain?dry_run=true", "80 requests of running periods go to region us-east, which cannot be asked"
	if notes := fmt.Sprint(w.must(r, 200, "POST", path, nil)["notes"]); !strings.Contains(notes, warns) { // 40 of each budget
		t.Error(notes)
	}
	w.must(r, 200, "POST", "/v1/regions/eu-west/drain", nil)
	for range 3 {
		w.round(r, west)
	}
	if l := w.lineOf(r, "us-east", "acme/year"); l == nil || l.Granted != 95 { // eu-west spent 5
		t.Errorf("%+v", l)
	}
	w.must(r, 200, "POST", "/v1/regions/eu-west/resume", nil)
	east.untilQuiet(r)
	w.round(r, east, west)
	if notes := fmt.Sprint(w.must(r, 200, "POST", path, nil)["notes"]); strings.Contains(notes, "cannot be asked") {
		t.Error(notes)
	}
	w.conserved()
}
