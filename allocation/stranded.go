package allocation

import (
	"math"
	"math/bits"
)

// Remainder is what one incarnation holds of one period, or of several together, as it last stated: the words of
// DESIGN.md. Stranded + reserved is exposed, the most that such an owner may still come to spend. A statement that is
// late overstates it, and never understates it, since spent only rises. Sums stop at the largest int64.
//
// For a template the counters are per instance, and Spent, Reserved and Stranded are sums over the instances that were
// seen; Unseen is what the instances that may still come, up to the budget's max_instances, could spend.
type Remainder struct {
	Granted  int64 `json:"granted"`
	Returned int64 `json:"returned"`
	Spent    int64 `json:"spent"`
	Reserved int64 `json:"reserved"`
	Stranded int64 `json:"stranded"`
	Exposed  int64 `json:"exposed"`
	Unseen   int64 `json:"unseen,omitempty"`
}

// Add sums two remainders.
func (r Remainder) Add(o Remainder) Remainder {
	return Remainder{
		Granted: addUp(r.Granted, o.Granted), Returned: addUp(r.Returned, o.Returned), Spent: addUp(r.Spent, o.Spent),
		Reserved: addUp(r.Reserved, o.Reserved), Stranded: addUp(r.Stranded, o.Stranded), Exposed: addUp(r.Exposed, o.Exposed),
		Unseen: addUp(r.Unseen, o.Unseen),
	}
}

// times is n periods alike.
func (r Remainder) times(n int64) Remainder {
	return Remainder{
		Granted: multiply(r.Granted, n), Returned: multiply(r.Returned, n), Spent: multiply(r.Spent, n),
		Reserved: multiply(r.Reserved, n), Stranded: multiply(r.Stranded, n), Exposed: multiply(r.Exposed, n),
		Unseen: multiply(r.Unseen, n),
	}
}

// SumUp is a+b of numbers that are not negative, at most the largest int64.
func SumUp(a, b int64) int64 { return addUp(a, b) }

func addUp(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

func multiply(a, n int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(n))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// RemainderAt is what h holds of the period of index i, in all classes, by the ledger and its owner's last statement
// (empty if there is none). maxInstances counts for a template only.
func (l Ledger) RemainderAt(h Holder, i int, s ShareStatement, maxInstances int64) Remainder {
	var sum Remainder
	period := l.Periods.At(i).Start
	for _, a := range l.EntryAt(i).Allocations {
		if a.Holder != h {
			continue
		}
		var used UsageStatement
		for _, u := range s.Usage {
			if u.Period == period && u.Class == a.Class {
				used = u
			}
		}
		sum = sum.Add(l.remainder(a, used, maxInstances))
	}
	return sum
}

func (l Ledger) remainder(a Allocation, used UsageStatement, maxInstances int64) Remainder {
	r := Remainder{Granted: a.Granted, Returned: a.Returned, Spent: used.Spent, Reserved: used.Reserved}
	held := a.Held()
	if l.Template {
		r.Unseen = multiply(held, max(0, maxInstances-used.Instances))
		held = multiply(held, used.Instances)
	}
	r.Stranded = max(0, held-used.Spent-used.Reserved)
	r.Exposed = addUp(r.Stranded, used.Reserved)
	return r
}

// RemainderAhead is what h holds of all periods from index i on, and of how many periods. A term may have a million
// periods: only those that differ are looked at one by one.
func (l Ledger) RemainderAhead(h Holder, i int, s ShareStatement, maxInstances int64) (sum Remainder, periods int) {
	used := map[int]bool{}
	for _, u := range s.Usage {
		if n, ok := l.Periods.Index(u.Period); ok && n >= i {
			used[n] = true
		}
	}
	for n, e := range l.Entries {
		from, end := max(e.From, i), l.endOf(n)
		if from >= end {
			continue
		}
		alike, any := int64(end-from), false
		for _, a := range e.Allocations {
			any = any || a.Holder == h && a.Held() > 0
		}
		if any {
			periods += end - from
		}
		for k := range used {
			if k >= from && k < end {
				sum = sum.Add(l.RemainderAt(h, k, s, maxInstances))
				alike--
			}
		}
		sum = sum.Add(l.RemainderAt(h, from, ShareStatement{}, maxInstances).times(alike))
	}
	return sum, periods
}
