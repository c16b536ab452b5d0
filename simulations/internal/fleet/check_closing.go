package fleet

import (
	"encoding/json"
	"fmt"

	"tranche/allocation"
	"tranche/coordinator"
)

// judgeClosing judges the record of a term as it is closed: it adds up, period by period, and says of no owner that it spent
// less than it did (invariant 1). A ledger is closed only by what was stated.
func (c *checks) judgeClosing(v *ledgerView, closing coordinator.Closing) {
	for _, p := range closing.Detail {
		adds := v.doc.Template || p.Limit+p.Overcommitted == p.Spent+p.Reserved+p.Unused+p.Stranded
		c.must(adds, 1, "the closing of %s, period %s, does not add up: %+v", v.doc.Budget, p.From, p)
	}
	for _, at := range closing.Regions {
		db := c.databaseOf(at.Region)
		if db == nil || db.Incarnation() != at.Incarnation {
			continue
		}
		sum := sumAt(c.fleet, at.Region, allocation.ShareRef{Budget: v.doc.Budget, Term: v.doc.Periods.Start()})
		used := sum.spent + sum.reserved // only falls once the periods are closed: a reservation may be given back
		c.fleet.notes["closings"]++
		c.must(at.Spent+at.Reserved >= used, 1, "the closing of %s, term %s, says that %s spent %d and reserves %d, and it is %d in all",
			v.doc.Budget, v.doc.Periods.Start(), at.Region, at.Spent, at.Reserved, used)
	}
}

// misrecorded compares the records that are still there with the owners' counters, once everything stands still: what was
// settled after a term was closed must have been entered in its record.
func (f *fleet) misrecorded() (list []string) {
	for _, item := range f.etcd.Items(coordinator.Root + "closings/") {
		var d coordinator.Closing
		if json.Unmarshal(item.Value, &d) != nil {
			continue
		}
		for _, at := range d.Regions {
			db := f.check.databaseOf(at.Region)
			ref := allocation.ShareRef{Budget: d.Budget, Term: d.Term}
			if db == nil || db.Incarnation() != at.Incarnation || len(db.Keys(ref)) == 0 {
				continue // its rows are tidied away
			}
			if at.Late != nil {
				f.notes["late statements"]++
			}
			said := at.Final()
			if truth := sumAt(f, at.Region, ref); truth != (counts{said.Spent, said.Reserved, said.Overdraft}) {
				list = append(list, fmt.Sprintf("%s, term %s: %s has %+v, and the record says %+v", d.Budget, d.Term, at.Region, truth, said))
			}
		}
	}
	return list
}

// sumAt is all that an owner did in a term.
func sumAt(f *fleet, region string, ref allocation.ShareRef) (sum counts) {
	db := f.check.databaseOf(region)
	for _, k := range db.Keys(ref) {
		u, _ := db.Usage(k)
		sum.spent, sum.reserved, sum.overdraft = sum.spent+u.Spent, sum.reserved+u.Reserved, sum.overdraft+u.Overdraft
	}
	return sum
}
