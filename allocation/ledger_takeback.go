package allocation

import "slices"

// TakeBack ends a manual rebalance that cannot finish: of the n permits of every period from `from` on, those that the
// giver still holds above its target are its own again, and are not promised to the taker any more. What has moved stays
// moved. Only targets change, and a return that is counted later is granted to the giver again.
//
//	giver holds 60, target 35; taker holds 40, target 65       10 of 25 were returned: giver 50, taker 50
//	TakeBack 25: giver target 60, taker target 40              TakeBack 25: giver target 50, taker target 50
//
// The generation rises. It fails with ErrTooManyEntries only.
func (l Ledger) TakeBack(giver, taker Holder, n int64, from int, gen Generation) (Ledger, error) {
	l = l.cut(from)
	for i := range l.Entries {
		e := &l.Entries[i]
		g, t := e.find(giver, General), e.find(taker, General)
		if e.From < from || g == nil || t == nil {
			continue
		}
		// The taker may have promised on what it was promised: only what is still its own comes back.
		back := min(max(0, g.Held()-g.Target), n, t.Target)
		g.Target, g.Moved = g.Target+back, g.Moved+back
		t.Target, t.Moved = t.Target-back, t.Moved-back
	}
	l = l.grant(gen)
	if len(l.Entries) > MaxEntries {
		return l, ErrTooManyEntries
	}
	return l, nil
}

// fitMoves lowers moves to what their givers are to have now: where a region takes part again, a giver's part may be less than
// it gave away by hand. What it cannot give, its takers are not promised. Else the targets would add up to more than there is,
// and the region that came would wait for permits that nobody is asked to return.
//
//	a drained; b 60, c 40; b gave c 40: b 20, c 80     a is back, of b's 30 it can give 30: a 50, b 0, c 50
func (e *Entry) fitMoves(holders []Holder, split map[string]int64) {
	var lacking int64
	for _, h := range holders {
		if a := e.find(h, General); a != nil && split[h.Region]+a.Moved < 0 {
			lacking -= split[h.Region] + a.Moved
			a.Moved = -split[h.Region]
		}
	}
	for i := range e.Allocations {
		if a := &e.Allocations[i]; a.Moved > 0 && slices.Contains(holders, a.Holder) {
			less := min(a.Moved, lacking)
			a.Moved, lacking = a.Moved-less, lacking-less
		}
	}
}
