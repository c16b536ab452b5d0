package coordinator_test

import (
	"testing"

	"tranche/coordinator"
)

// The record of a term must say where every permit went: one that an incarnation took with it is neither spent nor unused,
// and who only sees the sum of what was spent would look for it for ever.
func TestClosingsAddUp(t *testing.T) {
	w, east, west, first := overTerm(t, 1)
	r := w.replicas[0]
	west.spend(acmeBudget, 0)
	former := east.incarnation
	east.lost = true
	for range 2 {
		east.sync(r)
		west.sync(r)
		w.persist(r)
	}
	east.closed = first.Until
	for _, f := range []*fakeRegion{east, west} {
		f.untilQuiet(r)
	}
	w.persist(r)
	w.persist(r)
	if w.closeTerms(r) == 0 {
		t.Fatal("nothing was closed")
	}
	w.settle(r)
	list := get[coordinator.ClosingsAnswer](w, r, "/v1/closings?budget=acme/*").Closings
	if len(list) == 0 || list[0].Term != first.Term {
		t.Fatalf("%+v", list)
	}
	c := list[0]
	if c.Limit != 100*int64(c.Periods.Len()) || c.Unrecovered == 0 || c.Limit != c.Unused+c.Unrecovered {
		t.Errorf("of a limit of %d nothing is known to be spent, %d are unused and %d were not recovered", c.Limit, c.Unused, c.Unrecovered)
	}
	for _, g := range c.Regions {
		if gone := g.Incarnation == former; gone != (g.Unrecovered > 0) || gone && (g.Unrecovered != g.Held || g.Held != c.Unrecovered) {
			t.Errorf("of %+v, former %v", g, gone)
		}
	}
	addsUp(t, c)
	for query, field := range map[string]string{"?budget=none": "budget", "?match=x": "match", "?limit=0": "limit", "?limit=x": "limit"} {
		if a := w.must(r, 422, "GET", "/v1/closings"+query, nil); a["field"] != field || a["fix"] == "" {
			t.Errorf("%s: %v", query, a)
		}
	}
	seen := 0
	for after := ""; ; {
		page := get[coordinator.ClosingsAnswer](w, r, "/v1/closings?limit=1&after="+after)
		if seen += len(page.Closings); len(page.Closings) > 1 {
			t.Fatalf("a page of %d", len(page.Closings))
		}
		if after = page.More; after == "" {
			break
		}
	}
	if all := get[coordinator.ClosingsAnswer](w, r, "/v1/closings"); seen != len(all.Closings) || all.Revision == 0 {
		t.Errorf("%d of %d in pages", seen, len(all.Closings))
	}
}
