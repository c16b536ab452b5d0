package coordinator

import (
	"slices"

	"tranche/allocation"
)

// Terms of short windows have many periods, and etcd has very many records, so a record keeps them as columns of numbers. In
// a column that is shorter than the term its last number stands for all periods that follow; one that is empty is 0 throughout:
//
//	limits [100]   us-east: held [60], spent [12,0,60,0]   eu-west: held [40]
//
// says of an hour of minutes that us-east spent 12 in the first, 60 in the third, and nobody anything else. What was not used
// follows: see ByPeriod.

// maxClosedNumbers bounds the numbers in all columns of one record, some 8 KiB. A term that would need more keeps its sums
// only.
const maxClosedNumbers = 1024

// ClosedColumns is what one incarnation made of the periods of a term.
type ClosedColumns struct {
	Held      []int64 `json:"held,omitempty"`
	Spent     []int64 `json:"spent,omitempty"`
	Reserved  []int64 `json:"reserved,omitempty"`
	Overdraft []int64 `json:"overdraft,omitempty"`
}

// column is the numbers of n periods, as short as it can be.
func column(n int, of func(i int) int64) []int64 {
	list := make([]int64, n)
	for i := range list {
		list[i] = of(i)
	}
	for len(list) > 1 && list[len(list)-1] == list[len(list)-2] {
		list = list[:len(list)-1]
	}
	if len(list) == 1 && list[0] == 0 {
		return nil
	}
	return exact(list)
}

// columnAt is the number of a period.
func columnAt(list []int64, i int) int64 {
	if len(list) == 0 {
		return 0
	}
	return list[min(i, len(list)-1)]
}

// enterPeriods enters the columns, of a term that has several periods. Usage is what each of the regions last stated.
func (c *Closing) enterPeriods(l allocation.Ledger, usage [][]allocation.UsageStatement) {
	n := l.Periods.Len()
	if n < 2 {
		return
	}
	limits := column(n, func(i int) int64 { return l.EntryAt(i).Limit })
	numbers, all := len(limits), make([]*ClosedColumns, len(c.Regions))
	for k, r := range c.Regions {
		all[k] = columnsOf(r, l, usage[k])
		numbers += len(all[k].Held) + len(all[k].Spent) + len(all[k].Reserved) + len(all[k].Overdraft)
	}
	if c.PeriodsLeftOut = numbers > maxClosedNumbers; c.PeriodsLeftOut {
		return
	}
	c.Limits = limits
	for k := range c.Regions {
		c.Regions[k].Periods = all[k]
	}
}

// columnsOf is the columns of one incarnation. What it did not state of a term counts as spent there too: see closedRegion.
func columnsOf(r ClosedRegion, l allocation.Ledger, usage []allocation.UsageStatement) *ClosedColumns {
	n := l.Periods.Len()
	by := make([]ClosedRegion, n)
	for _, u := range usage {
		if i, found := l.Periods.Index(u.Period); found {
			by[i].Spent, by[i].Reserved, by[i].Overdraft = by[i].Spent+u.Spent, by[i].Reserved+u.Reserved, by[i].Overdraft+u.Overdraft
		}
	}
	for i := range by {
		for _, a := range l.EntryAt(i).Allocations {
			if a.Holder == r.Holder {
				by[i].Held += a.Held()
			}
		}
		if r.Unstated {
			by[i].Spent = max(by[i].Spent, by[i].Held-by[i].Reserved)
		}
	}
	return &ClosedColumns{
		Held:      column(n, func(i int) int64 { return by[i].Held }),
		Spent:     column(n, func(i int) int64 { return by[i].Spent }),
		Reserved:  column(n, func(i int) int64 { return by[i].Reserved }),
		Overdraft: column(n, func(i int) int64 { return by[i].Overdraft }),
	}
}

// ClosedPeriod is what became of one period of a closed term.
type ClosedPeriod struct {
	allocation.Period
	Limit        int64
	OpeningSpent int64
	Unused       int64 // of a template it is not known, nor is Unrecovered
	Unrecovered  int64
	Regions      []ClosedRegion // as those of the term, of this period
}

// ByPeriod reads the columns; nil where the record has none. A term of one period is that period.
func (c Closing) ByPeriod() []ClosedPeriod {
	n := c.Periods.Len()
	none := c.PeriodsLeftOut || c.Limit > 0 && len(c.Limits) == 0
	if n > 1 && (none || slices.ContainsFunc(c.Regions, func(r ClosedRegion) bool { return r.Periods == nil })) {
		return nil
	}
	list := make([]ClosedPeriod, n)
	if n == 1 {
		list[0] = ClosedPeriod{Period: c.Periods.At(0), Limit: c.Limit, OpeningSpent: c.OpeningSpent, Unused: c.Unused, Unrecovered: c.Unrecovered, Regions: c.Regions}
		return list
	}
	for i := range list {
		p := ClosedPeriod{Period: c.Periods.At(i), Limit: columnAt(c.Limits, i)}
		if i == 0 {
			p.OpeningSpent = c.OpeningSpent
		}
		used := p.OpeningSpent
		for _, r := range c.Regions {
			at := ClosedRegion{
				Holder: r.Holder, Unstated: r.Unstated, Held: columnAt(r.Periods.Held, i), Spent: columnAt(r.Periods.Spent, i),
				Reserved: columnAt(r.Periods.Reserved, i), Overdraft: columnAt(r.Periods.Overdraft, i),
			}
			if r.Unrecovered > 0 {
				at.Unrecovered = max(0, at.Held-at.Spent-at.Reserved)
			}
			used = allocation.SumUp(used, allocation.SumUp(at.Spent, at.Reserved))
			p.Unrecovered = allocation.SumUp(p.Unrecovered, at.Unrecovered)
			p.Regions = append(p.Regions, at)
		}
		if c.Limit == 0 { // of a template: see sum
			p.Unrecovered = 0
		} else {
			p.Unused = max(0, p.Limit-used-p.Unrecovered)
		}
		list[i] = p
	}
	return list
}
