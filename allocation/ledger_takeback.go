package allocation

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
