package allocation

import (
	"fmt"
	"math/bits"
)

// A budget's protected permits are a floor that only essential traffic may go below. Take a limit of 100 with 10
// protected, split 60 to 40:
//
//	ledger   a: target 60, of which protected 6     b: target 40, of which protected 4
//	owner a  54 spent, 6 left        batch and interactive traffic: only_protected_left; essential traffic: 6 more
//
// They are no permits of another kind: a grant, a return and a spend move permits as ever, and nothing of conservation or of
// the cap knows of them. Each region's part is in proportion to its target, so that a region that is given more has more of
// the floor, and what is unallocated has its part too. They are returned last: while a region holds a target it keeps its
// part free of what it gives back. A region that drains has no target and no part, and gives back all.
//
// A part is rounded up, and depends on the region's own target alone: else a permit that is moved between two regions could
// lower the floor of a third, which others made up for too late. So the regions together protect at least what is declared,
// and less than one permit a region more.

// protect sets how much of each target is protected. Where each instance has one home, all of it is there.
func (l Ledger) protect(e *Entry) {
	limit, protected := e.Givable(), min(e.Protected, e.Givable())
	for i := range e.Allocations {
		a := &e.Allocations[i]
		switch {
		case protected <= 0 || a.Target <= 0:
			a.Protected = 0
		case l.perInstanceHome() || a.Target >= limit:
			a.Protected = min(a.Target, protected)
		default:
			a.Protected = proportionUp(protected, a.Target, limit)
		}
	}
}

// proportion is n·part/whole, rounded down; part is at most whole.
func proportion(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

// proportionUp is the same, rounded up.
func proportionUp(n, part, whole int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(part))
	q, rest := bits.Div64(hi, lo, uint64(whole))
	if rest > 0 {
		q++
	}
	return int64(q)
}

// protectedInAll is at least what a whole entry protects of which this is a part: for a ledger that is made anew from what an
// owner holds. It errs upwards, until the ledger follows its budget.
func (a Allocation) protectedInAll(e Entry) int64 {
	switch {
	case a.Protected <= 0:
		return 0
	case e.Protected > 0 || a.Target >= e.Limit: // it is known
		return a.Protected
	}
	return proportion(a.Protected, e.Limit, a.Target)
}

// protectedConserved finds a floor that is higher than the budget's, or than the target that it is a part of.
func (l Ledger) protectedConserved(e Entry, start Instant) error {
	for _, a := range e.Allocations {
		if a.Protected < 0 || a.Protected > min(a.Target, e.Protected) {
			return fmt.Errorf("%s, period %s: %s protects %d of a target of %d, and the budget %d",
				l.Budget, start, a.Region, a.Protected, a.Target, e.Protected)
		}
	}
	return nil
}

// SpendableBy is what traffic of a priority may still spend or reserve here: all but what is protected, unless it is
// essential.
func (u *Usage) SpendableBy(p Priority, limit int64) int64 {
	if p == Essential {
		return u.Spendable(limit)
	}
	return max(0, min(u.Granted-u.Returned, u.Target, limit)-u.Spent-u.Reserved-u.Protected)
}

func (b *Budget) checkProtected(found *Problems) {
	switch limit, n := b.LimitOrZero(), b.Protected; {
	case n < 0 || n > MaxUnits:
		found.add("protected", fmt.Sprintf("is %d", n), "use 0 to the limit")
	case n > limit && limit > 0: // a limit of 0 refuses all, whatever else is declared
		found.add("protected", fmt.Sprintf("is %d, and the limit is %d: nobody but essential traffic would ever be admitted, and not even all of it", n, limit),
			fmt.Sprintf("protect at most %d", limit))
	}
}
