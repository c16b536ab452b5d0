package allocation

import (
	"math"
	"math/bits"
)

// Elapsed is what became of stranded permits while time went by. An owner that cannot be asked may have spent them
// meanwhile: its late statement says so. Sums stop at the largest int64.
type Elapsed struct {
	PermitSeconds int64 `json:"permit_seconds"` // of the running periods: how many permits were stranded, for how long
	Periods       int64 `json:"periods"`        // that ended
	Expired       int64 `json:"expired"`        // permits of those periods: stranded to the end, and so never recovered
}

// Add sums two spans.
func (e Elapsed) Add(o Elapsed) Elapsed {
	return Elapsed{
		PermitSeconds: addUp(e.PermitSeconds, o.PermitSeconds), Periods: addUp(e.Periods, o.Periods), Expired: addUp(e.Expired, o.Expired),
	}
}

// StrandedOver is what became of h's permits of this term in [from, until), while h could not be asked, by its last
// statement. A period counts while it runs: of a budget of 60 a minute, of which nothing was spent, two minutes are
// 60·60 + 60·60 permit-seconds and 120 expired permits.
//
//	       from                         until
//	┌───────┼──────┬──────────────┬───────┼──────┐
//	│   60  │//////│//////////////│///////│      │    //// 60 permits each second; two of these periods have ended
//	└───────┼──────┴──────────────┴───────┼──────┘
//
// Many periods alike cost as much as one.
func (l Ledger) StrandedOver(h Holder, s ShareStatement, from, until Instant, maxInstances int64) Elapsed {
	var sum Elapsed
	used := map[int]bool{}
	for _, u := range s.Usage {
		if n, ok := l.Periods.Index(u.Period); ok {
			used[n] = true
		}
	}
	for n, e := range l.Entries {
		first, end := e.From, l.endOf(n)
		var alone Elapsed // of those periods that differ
		var apart Elapsed // the same periods, as if they did not
		alike := l.RemainderAt(h, first, ShareStatement{}, maxInstances).Stranded
		for k := range used {
			if k >= first && k < end {
				alone = alone.Add(l.over(k, k+1, l.RemainderAt(h, k, s, maxInstances).Stranded, from, until))
				apart = apart.Add(l.over(k, k+1, 1, from, until))
			}
		}
		// One permit in each of the run's periods, less those that were looked at, times what each holds.
		run := l.over(first, end, 1, from, until)
		sum = sum.Add(alone).Add(Elapsed{
			PermitSeconds: multiply(run.PermitSeconds-apart.PermitSeconds, alike),
			Expired:       multiply(run.Expired-apart.Expired, alike),
		})
		if alike > 0 {
			sum.Periods = addUp(sum.Periods, run.Periods-apart.Periods)
		}
	}
	return sum
}

// over is the periods of index [first, end) with so many permits in each, as far as they run in [from, until).
func (l Ledger) over(first, end int, permits int64, from, until Instant) Elapsed {
	if permits <= 0 || first >= end {
		return Elapsed{}
	}
	begin, stop := max(from, l.Periods.At(first).Start), min(until, l.Periods.At(end-1).End)
	ended := int64(min(end, max(first, l.endedBy(until))) - min(end, max(first, l.endedBy(from))))
	e := Elapsed{Periods: max(0, ended), Expired: multiply(permits, max(0, ended))}
	if stop > begin {
		e.PermitSeconds = multiply(permits, int64(stop-begin))
	}
	return e
}

// endedBy is how many of the term's periods have ended at t.
func (l Ledger) endedBy(t Instant) int {
	if t >= l.Periods.End() {
		return l.Periods.Len()
	}
	i, _ := l.Periods.Find(t)
	return i
}

// Rate is units over a span of time, as statements showed them.
type Rate struct {
	Units int64    `json:"units"`
	Over  Duration `json:"over"` // 0: nothing is known
}

// Add joins two regions' rates over one span.
func (r Rate) Add(o Rate) Rate {
	return Rate{Units: addUp(r.Units, o.Units), Over: max(r.Over, o.Over)}
}

// Lasts is how long so many permits last at the rate; false if they last for ever, or nothing is known. It is rounded
// down: permits may end within the second.
func (r Rate) Lasts(permits int64) (Duration, bool) {
	if r.Units <= 0 || r.Over <= 0 {
		return 0, false
	}
	return Duration(mulDiv(max(0, permits), int64(r.Over), r.Units)), true
}

// In is how many units come in so much time at the rate.
func (r Rate) In(d Duration) int64 {
	if r.Over <= 0 || d <= 0 {
		return 0
	}
	return mulDiv(max(0, r.Units), int64(d), int64(r.Over))
}

// mulDiv is a·b/c, rounded down, of numbers that are not negative; at most the largest int64.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
