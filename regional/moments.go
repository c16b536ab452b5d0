package regional

import (
	"sync/atomic"

	"tranche/allocation"
)

// Answers that are given together tell the same instants: those of one batch were decided at one moment, and a period
// lasts. So their texts are remembered, a few of each, and most answers write none anew.
const (
	momentsKept = 16
	periodsKept = 64
)

// moments are the texts of instants and periods that were written last. What a place holds never changes; another text
// replaces it whole.
type moments struct {
	micros  [momentsKept]atomic.Pointer[momentText]
	periods [periodsKept]atomic.Pointer[periodText]
}

type momentText struct {
	at   int64
	text string
}

type periodText struct {
	from, until allocation.Instant
	body        periodBody
}

// mixed spreads numbers that lie together, or far apart by round steps.
func mixed(n int64) uint64 { return uint64(n) * 0x9e3779b97f4a7c15 >> 32 }

// text is formatMicros.
func (m *moments) text(at int64) string {
	place := &m.micros[mixed(at)%momentsKept]
	if known := place.Load(); known != nil && known.at == at {
		return known.text
	}
	made := &momentText{at, formatMicros(at)}
	place.Store(made)
	return made.text
}

// period is the period of a part of a decision; nil if no opened term held the instant. Nobody may change it.
func (m *moments) period(b *allocation.BudgetDecision) *periodBody {
	if b.Until == 0 {
		return nil
	}
	place := &m.periods[mixed(int64(b.Period)^int64(b.Until)<<1)%periodsKept]
	if known := place.Load(); known != nil && known.from == b.Period && known.until == b.Until {
		return &known.body
	}
	made := &periodText{b.Period, b.Until, periodBody{Start: b.Period.String(), End: b.Until.String()}}
	place.Store(made)
	return &made.body
}
