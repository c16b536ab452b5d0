package fleet

import (
	"testing"
	"time"

	"tranche/allocation"
	"tranche/simulations/internal/ownertwin"
)

// What the original sold since it was copied the copy may sell once more, and not a permit beyond it. A checker that allowed
// more would take everything that a copy sells for expected, and one that allowed it before an incarnation was seen to live in
// two databases would hide what has another cause.
func TestACopySellsOnceMoreAndNothingBeyond(t *testing.T) {
	for name, c := range map[string]struct {
		twice  bool // it was seen
		beyond int64
		holds  bool
	}{
		"as much as the original sold":            {true, 0, true},
		"a permit beyond it":                      {true, 1, false},
		"before it was seen to live in two":       {false, 0, false},
		"and up to the limit, which needs nobody": {false, -1, true},
	} {
		f := newFleet(Options{Seed: 3, Kind: KindCalm})
		f.w.Go("script", f.script)
		run := func(d time.Duration) {
			if err := f.w.Run(d); err != nil {
				t.Fatal(err)
			}
		}
		run(8 * time.Second)
		r := f.regions[0]
		copied := r.db.Clone(f.w, "copy")
		f.check.mayLiveTwice(r, copied)
		run(12 * time.Second)
		f.check.twice.violation = f.check.violation(3, "it lives in two databases")
		row, sold := soldSince(f.check, r.db, copied)
		if sold == 0 {
			t.Fatal("nothing was sold since it was copied")
		}
		l := f.check.ledgers[allocation.ShareRef{Budget: row.Budget, Term: row.Term}]
		used := l.limitOf(row.Period) + sold + c.beyond
		if !c.twice {
			f.check.twice.violation = nil
			if c.beyond < 0 {
				used = l.limitOf(row.Period)
			}
		}
		k := row.UsageKey
		for _, class := range []allocation.Class{allocation.General, allocation.Protected} {
			k.Class = class
			f.check.used[k] = 0
		}
		f.check.used[row.UsageKey] = used - f.check.openingOf(row.UsageKey)
		f.check.judgeUsage(r, &ownertwin.Commit{Database: r.db.Name(), Incarnation: r.db.Incarnation()}, ownertwin.UsageChange{Before: row, After: row})
		if f.w.Failed() == c.holds {
			t.Errorf("%s: a violation is found: %v", name, f.w.Failed())
		}
		f.w.Close()
	}
}

// soldSince is a row that was made since the database was copied, and what was sold of it: all that is spent or held.
func soldSince(c *checks, original, copied *ownertwin.Database) (row allocation.Usage, sold int64) {
	for _, ref := range c.openLedgers() {
		for _, k := range original.Keys(ref) {
			protected := k
			protected.Class = allocation.Protected
			u, _ := original.Usage(k)
			p, _ := original.Usage(protected)
			if _, before := copied.Usage(k); !before && k.Class == allocation.General && u.Spent+u.Reserved+p.Spent+p.Reserved > sold {
				row, sold = u, u.Spent+u.Reserved+p.Spent+p.Reserved
			}
		}
	}
	return row, sold
}
