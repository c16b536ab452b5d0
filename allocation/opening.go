package allocation

import "fmt"

// A budget that is declared in the middle of a period may say how much of that period's limit was spent elsewhere before:
//
//	limit 2000, opening_spent 1200, two regions evenly
//	from 0: limit 2000  opening spent 1200   a: granted 400   b: granted 400     unallocated 0
//	from 1: limit 2000                       a: granted 1000  b: granted 1000    unallocated 0
//
// It is out from the start, as what owners spend is, and no owner ever holds it; so no rule but the sums knows of it. Yet
// every owner is told, and states it with the shares that it holds: if etcd loses the term, and maybe the declaration too,
// the ledger that is made anew counts it again.

// openWith enters what was spent before the term's first period was opened. Where that is more than a limit that was
// lowered meanwhile, the period begins overcommitted.
func (l Ledger) openWith(spent int64) Ledger {
	if spent <= 0 || l.Template {
		return l
	}
	if l.Periods.Len() > 1 {
		l = l.cut(1)
	}
	e := &l.Entries[0]
	e.OpeningSpent = spent
	e.Highest = max(e.Highest, l.out(*e))
	return l
}

// openedWith takes over what an owner knows to have been spent before the term's first period was opened.
func (l Ledger) openedWith(spent int64) Ledger {
	if spent > l.EntryAt(0).OpeningSpent {
		l = l.cut(0).openWith(spent)
	}
	return l
}

// Givable is the part of the limit that incarnations may come to hold: all but what was spent before.
func (e Entry) Givable() int64 { return max(0, e.Limit-e.OpeningSpent) }

// openingConserved finds an opening where none can be: what was spent before is of one period, and of a single budget.
func (l Ledger) openingConserved(i int) error {
	e := l.Entries[i]
	if e.OpeningSpent < 0 || e.OpeningSpent > 0 && (l.Template || e.From > 0 || l.endOf(i) > 1) {
		return fmt.Errorf("%s, period %s: %d spent before it was opened, and that can be only in the first period of a single budget",
			l.Budget, l.Periods.At(e.From).Start, e.OpeningSpent)
	}
	return nil
}

func (b *Budget) checkOpening(found *Problems) {
	switch n := b.OpeningSpent; {
	case n < 0 || n > MaxUnits:
		found.add("opening_spent", fmt.Sprintf("is %d", n), fmt.Sprintf("use 0 to %d", MaxUnits))
	case n > 0 && b.IsTemplate():
		found.add("opening_spent", "is for single budgets: a template's limit is per instance, and so is what was spent of it",
			"leave it out, or declare budgets for the instances that have spent some")
	}
}

// Later is the budget as it counts in every term but its first: with nothing spent before.
func (b Budget) Later() Budget {
	b.OpeningSpent = 0
	return b
}
