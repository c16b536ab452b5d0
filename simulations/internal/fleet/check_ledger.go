package fleet

import (
	"slices"
	"strings"

	"tranche/allocation"
	"tranche/coordinator"
)

// ledgerView is a ledger as it is, and what it ever was.
type ledgerView struct {
	key      string
	doc      allocation.Ledger
	highest  int64 // the highest limit of the budget since the ledger was opened, by the budget's own document
	closed   bool
	restored bool                           // etcd lost it, and it was not made anew
	lost     []allocation.Ledger            // as it was where etcd was restored, until every region has stated what it holds
	stated   []allocation.Ledger            // those of them that ended with that
	stamps   map[allocation.Generation]bool // every generation that it ever had
	numbers  map[int64]bool                 // their numbers
}

// limitOf is the highest limit that ever counted in a period: no more may be spent or reserved.
func (l *ledgerView) limitOf(period allocation.Instant) int64 {
	i, ok := l.doc.Periods.Index(period)
	if !ok {
		return 0
	}
	top := l.doc.EntryAt(i).Highest
	for _, doc := range l.lost {
		top = max(top, doc.EntryAt(i).Highest)
	}
	return min(l.highest, top)
}

// granted is what a holder was ever granted of a period. What was granted in a history that was lost counts until all that
// came of it is stated; what comes later must be in the ledger as it is.
func (l *ledgerView) granted(h allocation.Holder, period allocation.Instant, class allocation.Class) int64 {
	i, ok := l.doc.Periods.Index(period)
	if !ok {
		return 0
	}
	a, _ := allocationOf(l.doc.EntryAt(i), h, class)
	for _, doc := range l.lost {
		before, _ := allocationOf(doc.EntryAt(i), h, class)
		a.Granted = max(a.Granted, before.Granted)
	}
	return a.Granted
}

// everGranted is what a holder was granted of a period in any history at all.
func (l *ledgerView) everGranted(h allocation.Holder, period allocation.Instant, class allocation.Class) int64 {
	all := *l
	all.lost = slices.Concat(l.lost, l.stated)
	return all.granted(h, period, class)
}

func allocationOf(e allocation.Entry, h allocation.Holder, class allocation.Class) (allocation.Allocation, bool) {
	for _, a := range e.Allocations {
		if a.Holder == h && a.Class == class {
			return a, true
		}
	}
	return allocation.Allocation{}, false
}

// outOf is what is out of an entry, by this package's own sum.
func outOf(l allocation.Ledger, e allocation.Entry) int64 {
	byRegion := map[string]int64{}
	sum, most := int64(0), int64(0)
	for _, a := range e.Allocations {
		held := a.Granted - a.Returned
		sum += held
		byRegion[a.Region] += held
		most = max(most, byRegion[a.Region])
	}
	if l.Template && l.Policy.Policy == allocation.PolicyHome && l.Policy.Region == "" {
		return most // each instance has one home
	}
	return sum + e.OpeningSpent
}

func (c *checks) ledgerChanged(key string, next allocation.Ledger) {
	ref := allocation.ShareRef{Budget: next.Budget, Term: next.Periods.Start()}
	b := c.budgets[next.Budget]
	if b == nil {
		c.fail(1, "a ledger of %s, which was never declared", next.Budget)
		return
	}
	v := c.ledgers[ref]
	limit := limitOf(b.doc)
	if v == nil {
		c.must(ref.Term >= c.ends[ref.Budget], 10, "the term %s of %s begins before %s, where the one before it ended", ref.Term, ref.Budget, c.ends[ref.Budget])
		c.judgeOpening(next, b)
		ended, known := c.ends[ref.Budget]
		if known && ref.Term > ended && b.doc.Budget.Window.Once == nil {
			// Only a coordinator that was away until then leaves time out, and only time that was over.
			c.must(ended <= c.latest, 10, "the term %s of %s leaves a gap after %s, and no replica's clock was there yet", ref.Term, ref.Budget, ended)
		}
		c.ends[ref.Budget] = next.Periods.End()
		c.must(next.Periods.End() <= b.doc.OpenedThrough, 10, "the term %s of %s ends after what is opened", ref.Term, ref.Budget)
		v = &ledgerView{key: key, highest: limit, stamps: map[allocation.Generation]bool{}, numbers: map[int64]bool{}}
		c.ledgers[ref] = v
	} else if !v.restored {
		c.must(!v.closed, 8, "the ledger of %s, term %s, was closed and is there again", ref.Budget, ref.Term)
		// Settled under a new history, with nothing stranded by it, a ledger says the same as before.
		settled := next.Generation == v.doc.Generation && next.History.Number > v.doc.History.Number
		c.must(settled || next.Generation.Number > v.doc.Generation.Number, 8, "the ledger of %s, term %s, went from generation %s to %s", ref.Budget, ref.Term, v.doc.Generation, next.Generation)
		c.must(samePeriods(next.Periods, v.doc.Periods), 10, "the periods of %s, term %s, changed from %+v to %+v", ref.Budget, ref.Term, v.doc.Periods, next.Periods)
		c.must(next.Version >= v.doc.Version, 8, "the ledger of %s, term %s, went from version %d to %d", ref.Budget, ref.Term, v.doc.Version, next.Version)
	}
	if v.restored {
		c.judgeMadeAnew(v, next, b)
		c.openedAnew(ref.Budget, next.Periods.End())
	}
	if err := next.Conserved(); err != nil {
		c.fail(1, "%v", err)
	}
	c.judgePeriods(ref, v, next)
	c.noteHeld(next)
	v.doc = next
	v.stamps[next.Generation], v.numbers[next.Generation.Number] = true, true
}

// judgePeriods compares every period of a ledger with what it was, and with what its owners hold.
func (c *checks) judgePeriods(ref allocation.ShareRef, v *ledgerView, next allocation.Ledger) {
	old := v.doc
	if v.restored {
		old, v.restored = next, false
	}
	for i := range cuts(old, next) {
		e := next.EntryAt(i)
		period := next.Periods.At(i).Start
		out, before, outBefore := outOf(next, e), allocation.Entry{}, int64(0)
		if len(old.Entries) > 0 {
			before = old.EntryAt(i)
			outBefore = outOf(old, before)
		}
		// What was spent before the budget was declared is out from the start, also under a limit that was lowered before its
		// first term was opened.
		c.must(out <= max(e.Limit, outBefore, e.OpeningSpent) || c.restated(v, old, next), 2, "%s, period %s: %d permits are out under a limit of %d, and %d were before", ref.Budget, period, out, e.Limit, outBefore)
		c.must(e.Limit <= v.highest, 2, "%s, period %s: the ledger's limit is %d, and the budget's was never above %d", ref.Budget, period, e.Limit, v.highest)
		c.judgeKept(ref, old, next, i)
		c.judgeRaise(ref, next, period, before.Limit, e.Limit)
		unallocated, over := max(0, e.Limit-out), max(0, out-e.Limit)
		c.must(e.Limit+over == unallocated+out && next.Unallocated(i) >= 0, 1, "%s, period %s does not add up", ref.Budget, period)
		for _, a := range before.Allocations {
			now, there := allocationOf(e, a.Holder, a.Class)
			c.must(there && now.Granted >= a.Granted && now.Returned >= a.Returned, 8, "%s, period %s, %s: granted and returned went from %d, %d to %d, %d",
				ref.Budget, period, a.Region, a.Granted, a.Returned, now.Granted, now.Returned)
		}
		for _, a := range e.Allocations {
			was, _ := allocationOf(before, a.Holder, a.Class)
			c.judgeBounds(ref, old, next, was, a)
			if a.Returned > was.Returned {
				c.counted(ref, i, next, a)
				c.returnedOff(ref, i, old, next, a)
			}
			switch {
			case a.Granted <= was.Granted:
			case c.standing.Frozen(ref.Term):
				c.stated(ref, period, a)
			case c.isLost(a.Holder) && (next.History != old.History || a.Granted-was.Granted <= e.Highest-before.Highest):
				c.judged[2]++ // Settle, or a raise above all that was known: counted as out, and nobody can spend it
			default:
				c.grantedTo(ref, period, a)
				d := c.members[a.Region]
				c.must(d == nil || !d.Draining || next.Members < c.number.Members, 4, "%s, period %s: %s drains, and is granted %d after %d", ref.Budget, period, a.Region, a.Granted, was.Granted)
			}
		}
	}
}

// cuts are the periods at which one of two states of a ledger begins to differ, one of each run.
func cuts(a, b allocation.Ledger) map[int]bool {
	at := map[int]bool{}
	for _, l := range []allocation.Ledger{a, b} {
		for _, e := range l.Entries {
			at[e.From] = true
		}
	}
	return at
}

// counted judges a return that the ledger counts: it must be durable at the owner (invariants 4 and 5).
func (c *checks) counted(ref allocation.ShareRef, from int, l allocation.Ledger, a allocation.Allocation) {
	db := c.databaseOf(a.Region)
	if db == nil || db.Incarnation() != a.Incarnation {
		c.must(db != nil, 5, "%s: a return of region %s, which does not exist", ref.Budget, a.Region)
		return
	}
	if c.doomed[a.Incarnation] {
		return // what it stated before its database went back was so, and nothing of it is spent in there any more
	}
	for i := from; i < l.Periods.Len(); i++ {
		if i > from && cutsAt(l, i) {
			return
		}
		p := l.Periods.At(i)
		if p.End <= db.ClosedBefore() {
			continue // its rows may be gone
		}
		u, ok := db.Row(ref, allocation.UsageKey{Budget: ref.Budget, Period: p.Start, Class: a.Class})
		c.must(ok && u.Returned >= a.Returned, 4, "%s, period %s: the ledger counts %d returned by %s, whose owner has returned %d", ref.Budget, p.Start, a.Returned, a.Region, u.Returned)
	}
}

func cutsAt(l allocation.Ledger, i int) bool {
	for _, e := range l.Entries {
		if e.From == i {
			return true
		}
	}
	return false
}

// grantedTo judges that only the present, confirmed incarnation of a region is granted anything.
func (c *checks) grantedTo(ref allocation.ShareRef, period allocation.Instant, a allocation.Allocation) {
	d := c.members[a.Region]
	c.must(d != nil && d.Confirmed && d.Incarnation == a.Incarnation, 3, "%s, period %s: %d granted to incarnation %s of %s, which is not its present one",
		ref.Budget, period, a.Granted, a.Incarnation, a.Region)
}

// ledgerClosed judges that every owner that was granted something has closed all periods of the term, but for one that left.
func (c *checks) ledgerClosed(key string) {
	for _, v := range c.ledgers {
		if v.key != key {
			continue
		}
		v.closed = true
		end := v.doc.Periods.End()
		for _, e := range v.doc.Entries {
			for _, a := range e.Allocations {
				if db := c.databaseOf(a.Region); a.Granted > 0 && db != nil && db.Incarnation() == a.Incarnation && !c.replacedBeside(a.Region, a.Incarnation) && !c.departed[a.Incarnation] {
					c.closed[a.Region] = max(c.closed[a.Region], db.ClosedBefore())
					c.must(c.closed[a.Region] >= end, 5, "the ledger of %s, term %s, is closed, and %s has closed only what ends before %s", v.doc.Budget, v.doc.Periods.Start(), a.Region, c.closed[a.Region])
				}
			}
		}
		record := c.fleet.etcd.Items(closingOf(key))
		c.must(len(record) > 0, 5, "%s is gone without a closing", key)
		if len(record) > 0 {
			c.understated(v, read[coordinator.Closing](c, coordinator.Event{Item: record[0]}))
		}
		return
	}
}

// closingOf is the key of the record of a ledger that is closed.
func closingOf(ledger string) string {
	return strings.Replace(ledger, coordinator.Root+"ledgers/", coordinator.Root+"closings/", 1)
}
