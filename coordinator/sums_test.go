package coordinator_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tranche/allocation"
	"tranche/coordinator"
)

// A shard of very many terms has no room for all usage in its document. The record that a replica makes which read only
// that document must say as much as that of one which heard the statement: in sum, and marked so.
func TestARecordOfWhatHadNoRoom(t *testing.T) {
	w, east, west := two(t, 2)
	hears, leads := w.replicas[0], w.replicas[1]
	first := get[coordinator.SharesAnswer](w, hears, "/v1/shares/acme/requests").Terms[0]
	east.spend("acme/requests", 12)
	shard := allocation.ShardOf("acme/requests")
	// Other budgets of the same shard fill the document.
	var fill []string
	for i := 0; len(fill) < 8; i++ {
		if name := fmt.Sprintf("filler/%d", i); allocation.ShardOf(name) == shard {
			fill = append(fill, name)
			w.must(hears, 201, "POST", "/v1/budgets", strings.Replace(budgetJSON(name, "100"), `"tenant":"acme"`, `"tenant":"`+name+`"`, 1))
		}
	}
	west.untilQuiet(hears)
	east.untilQuiet(hears)
	for ref, share := range east.shares {
		if ref.Budget == "acme/requests" {
			continue
		}
		east.used[ref], east.changed[ref] = map[allocation.UsageKey]allocation.Usage{}, 0
		for i := range share.Periods.Len() {
			key := allocation.UsageKey{Budget: ref.Budget, Period: share.Periods.At(i).Start, Class: allocation.General}
			u, _ := share.Usage(key)
			u.Spent = 1
			east.used[ref][key] = u
		}
	}
	w.clock.move(2 * time.Hour)
	east.closed, west.closed = first.Until, first.Until
	west.sync(hears)
	east.sync(hears)
	w.persist(hears)
	w.persist(hears)
	items, _, err := w.store.Range(t.Context(), fmt.Sprintf("%sstatements/us-east/%03d", coordinator.Root, shard))
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	var d coordinator.StatementDocument
	if err := json.Unmarshal(items[0].Value, &d); err != nil || !d.Trimmed || len(items[0].Value) > 64<<10 {
		t.Fatalf("%d bytes, trimmed %v, %v", len(items[0].Value), d.Trimmed, err)
	}
	n, err := leads.CloseTerms(t.Context())
	if err != nil || n == 0 {
		t.Fatal(n, err)
	}
	w.refreshAll()
	inSum := 0
	for _, stored := range w.closings(hears, "?region=us-east").Closings {
		c := stored.Closing
		want := int64(c.Total.Periods)
		if c.Budget == "acme/requests" {
			want = 12
		}
		at := c.Regions[1]
		if at.Spent != want || at.Unknown || c.Total.Spent != want || c.Total.Limit != c.Total.Spent+c.Total.Unused {
			t.Errorf("%s: %+v, in all %+v", c.Budget, at, c.Total)
		}
		if at.InSum {
			inSum++
		}
	}
	if inSum == 0 {
		t.Error("no record was made from sums: the test shows nothing")
	}
}
