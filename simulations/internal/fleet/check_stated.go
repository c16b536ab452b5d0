package fleet

import (
	"encoding/json"
	"fmt"

	"tranche/allocation"
	"tranche/coordinator"
)

// counts is what was done with the permits of one period, over all instances of a template.
type counts struct{ spent, reserved, overdraft int64 }

type statedKey struct {
	region, budget string
	period         allocation.Instant
	class          allocation.Class
}

// misstated compares what the coordinator has written down of every owner's counters with the counters, in the terms that
// are open: what is reported as spent, reserved and stranded rests on it (invariant 1). Statements are late by design, so
// that only counts once all faults are over and everything stands still.
func (f *fleet) misstated() (list []string) {
	stated := map[statedKey]counts{}
	for _, item := range f.etcd.Items(coordinator.Root + "statements/") {
		var d coordinator.StatementDocument
		if json.Unmarshal(item.Value, &d) != nil || d.Trimmed {
			continue
		}
		if db := f.check.databaseOf(d.Region); db != nil && db.Incarnation() != d.Incarnation {
			continue // of one that is gone
		}
		for _, sh := range d.Shares {
			for _, u := range sh.Usage {
				stated[statedKey{d.Region, sh.Budget, u.Period, u.Class}] = counts{u.Spent, u.Reserved, u.Overdraft}
			}
		}
	}
	for _, ref := range f.check.openLedgers() {
		for _, r := range f.regions {
			for _, k := range r.db.Keys(ref) {
				at := statedKey{r.name, ref.Budget, k.Period, k.Class}
				truth := r.counted(ref, k)
				if stated[at] != truth {
					list = append(list, fmt.Sprintf("%s, period %s: %s has %+v, and the coordinator has written down %+v", ref.Budget, k.Period, r.name, truth, stated[at]))
				}
			}
		}
	}
	return list
}

// understated judges that the record of a closed term says of no owner that it spent less than it did (invariant 1): a
// ledger is closed only by what was stated.
func (c *checks) understated(v *ledgerView, closing coordinator.Closing) {
	for _, at := range closing.Regions {
		db := c.databaseOf(at.Region)
		if db == nil || db.Incarnation() != at.Incarnation || c.doomed[at.Incarnation] || c.replacedBeside(at.Region, at.Incarnation) || c.departed[at.Incarnation] {
			continue
		}
		used := int64(0) // only falls once the periods are closed: a reservation may be given back
		for _, k := range db.Keys(allocation.ShareRef{Budget: v.doc.Budget, Term: v.doc.Periods.Start()}) {
			u, _ := db.Usage(k)
			used += u.Spent + u.Reserved
		}
		c.fleet.notes["closings"]++
		if at.Unstated {
			c.fleet.notes["closings of what etcd lost"]++
			s, there := db.Share(allocation.ShareRef{Budget: v.doc.Budget, Term: v.doc.Periods.Start()})
			// One that was granted so late that its owner had closed its periods, and that it stored all the same, nobody ever spent of.
			c.must(used == 0 || !there && c.restores > 0, 1, "the closing of %s, term %s, says that etcd lost what %s stated, and its owner has the share and can state it: %+v",
				v.doc.Budget, v.doc.Periods.Start(), at.Region, s)
			continue
		}
		c.must(at.Spent+at.Reserved >= used, 1, "the closing of %s, term %s, says that %s spent %d and reserves %d, and it is %d in all",
			v.doc.Budget, v.doc.Periods.Start(), at.Region, at.Spent, at.Reserved, used)
	}
}

// counted sums the rows of a period and class.
func (r *region) counted(ref allocation.ShareRef, of allocation.UsageKey) (sum counts) {
	for _, k := range r.db.Keys(ref) {
		if u, ok := r.db.Usage(k); ok && k.Period == of.Period && k.Class == of.Class {
			sum.spent, sum.reserved, sum.overdraft = sum.spent+u.Spent, sum.reserved+u.Reserved, sum.overdraft+u.Overdraft
		}
	}
	return sum
}
